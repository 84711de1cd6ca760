#!/usr/bin/env bash
# fuzz.sh [SECONDS [TARGET...]]: builds the fuzzers (preset fuzz: clang 16, address and undefined behaviour sanitizers) and runs all of
# them, or those named, for SECONDS each (default 60), as many at a time as there are cores. Inputs that reach something new are kept in
# build/fuzz/new, never among the committed ones. One line a target; ends with 1 after any finding.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/fuzz

run_one() {  # TARGET SECONDS
  local name=$1 seconds=$2 max_len=4096 status=0 found executions coverage
  local log=$out/logs/$name.log options=()
  case $name in
    gguf) max_len=8192 ;;
    tokenizer_json) max_len=8192 ;;
    encode_text) max_len=1024 ;;
  esac
  [ -f "tests/fuzz/$name.dict" ] && options+=("-dict=tests/fuzz/$name.dict")
  mkdir -p "$out/new/$name" "$out/findings"
  # A sanitizer that reads all of the text at each memmem makes linear searches quadratic.
  ASAN_OPTIONS=intercept_memmem=0 "$out/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -max_len="$max_len" -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=512 -print_final_stats=1 -artifact_prefix="$out/findings/$name-" "${options[@]}" \
    "$out/new/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2 || true)
  found=$(sed -n 's/.*Test unit written to //p' "$log" | head -1)
  if [ "$status" -eq 0 ]; then found="no finding"; else found=${found:-"ended with $status, see $log"}; fi
  printf '%-20s %10s executions, coverage %6s: %s\n' "$name" "${executions:-?}" "${coverage:-?}" "$found"
  [ "$status" -eq 0 ]
}
if [ "${1:-}" = --one ]; then run_one "$2" "$3"; exit; fi

seconds=${1:-60}
shift $(($# > 0 ? 1 : 0))
if ! command -v clang++-16 >/dev/null || ! clang-16 -print-file-name=libclang_rt.fuzzer-"$(uname -m)".a | grep -q /; then
  jobs/install_deps.sh clang-16 libclang-rt-16-dev || { echo "fuzz.sh: clang-16 and libclang-rt-16-dev can't be installed" >&2; exit 1; }
fi
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/corpus)
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}"
mkdir -p "$out/logs"
status=0
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} "$0" --one {} "$seconds" || status=1
exit $status
