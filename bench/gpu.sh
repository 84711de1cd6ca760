#!/usr/bin/env bash
# gpu.sh WORKLOADS CONFIG_DIR OUT: on a machine with a GPU: builds, runs the GPU tests, compares bytes over budgets, caches, pages, graphs and
# kills, times every op beside the copy and product rates of the same minute, then runs each WORKLOADS/*.jsonl on random weights of
# CONFIG_DIR/config.json, with the shares of products, attention, small kernels and gaps (libkernel_times.so).
# TINY: directory of small models for the bytes (default: ../shared/goldens/tiny). BUILD: build directory (default: build/cuda).
set -euo pipefail
workloads=$(realpath "$1") config=$(realpath "$2") out=$3
cd "$(dirname "$0")/.."
build=${BUILD:-build/cuda} tiny=${TINY:-../shared/goldens/tiny}
mkdir -p "$out"
[ -f "$build/build.ninja" ] || cmake --preset cuda -B "$build" >/dev/null
cmake --build "$build" --target lockstep test_ops_cuda test_model_cuda test_kernels cuda_ops_bench kernel_times >/dev/null
date -u +%FT%TZ; git rev-parse HEAD 2>/dev/null || true
nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader

echo "== tests"
"$build/tests/test_ops_cuda" | tail -n 3
"$build/tests/test_model_cuda" | tail -n 3
"$build/tests/test_kernels" | tail -n 3
for model in "$tiny"/{qwen3,mistral-swa,llama-rope-llama3}; do
  [ -d "$model" ] || { echo "bytes: $model is absent"; continue; }
  for graphs in on off; do
    PROGRAM=$PWD/$build/lockstep WORK=$out/bits MODEL=$model COMBINATIONS=${COMBINATIONS:-6} tests/e2e/bits_matrix.sh "$model" \
      --device cuda --graphs $graphs | tail -n 1
  done
done

echo "== ops"
"$build/bench/cuda_ops_bench"

# NAME INPUT [OPTIONS...]: one run of the shape into $out/NAME; its log is shown where it fails.
run() {
  local name=$1 input=$2
  shift 2
  "$build/lockstep" run --model "$config" --load-format dummy --input "$input" --output "$out/$name" --device cuda \
    --max-model-len "${MAX_MODEL_LEN:-4096}" --progress off "$@" >"$out/$name.log" 2>&1 || { cat "$out/$name.log"; return 1; }
}

echo "== workloads"
for file in "$workloads"/*.jsonl; do
  name=$(basename "$file" .jsonl)
  begin=$(date +%s.%N)
  KERNEL_TIMES=$out/$name.kernels CUDA_INJECTION64_PATH=$PWD/$build/bench/libkernel_times.so run "$name" "$file" --overwrite
  end=$(date +%s.%N)
  python3 - "$name" "$out/$name/run.json" "$begin" "$end" <<'P'
import json, sys
name, path, begin, end = sys.argv[1:]
run = json.load(open(path))
phases = run["phases_s"]
print(f"{name}: {run['tokens_per_s']['generated']:.0f} out tok/s, {run['tokens_per_s']['total']:.0f} total tok/s, run {phases['run']:.1f} s, "
      f"load {phases['load']:.1f} s, whole process {float(end) - float(begin):.1f} s, completions {run['completions_digest'][:12]}")
P
  head -n 4 "$out/$name.kernels"
done

echo "== bytes of the shape"
files=("$workloads"/*.jsonl)
head -n 200 "${files[0]}" >"$out/few.txt"
reference=
same() {  # WHAT: whether $out/few holds the bytes of the first time
  local digest
  digest=$(sha256sum <"$out/few/completions.jsonl" | cut -c 1-16)
  [ -n "$reference" ] || reference=$digest
  [ "$digest" = "$reference" ] && verdict=same || verdict=OTHER
  echo "$verdict $digest 200 lines, $1"
}
for options in "" "--max-batch-tokens 512" "--max-batch-tokens 16384" "--max-sequences 50" "--max-sequences 1024" "--prefix-cache off" \
  "--kv-memory 1G --max-sequences 64" "--kv-memory 1G --max-sequences 64 --swap-memory 0" "--lag 3" "--graphs off"; do
  # shellcheck disable=SC2086
  run few "$out/few.txt" --overwrite $options
  same "${options:-defaults}"
done
rm -rf "$out/few"
for delay in 9 11; do  # killed while it works, twice; then it goes on under other options
  timeout -s KILL $delay "$build/lockstep" run --model "$config" --load-format dummy --input "$out/few.txt" --output "$out/few" --device cuda \
    --max-model-len "${MAX_MODEL_LEN:-4096}" --progress off >"$out/few.log" 2>&1 || true
done
run few "$out/few.txt" --max-batch-tokens 2048 --graphs off
same "killed twice, then --max-batch-tokens 2048 --graphs off"
