#!/usr/bin/env bash
# gpus.sh WORKLOADS CONFIG_DIR OUT: on a machine with two GPUs or more, after gpu.sh: times the gathers, then runs each WORKLOADS/*.jsonl on random
# weights of CONFIG_DIR/config.json in the layouts of N ranks (2) and compares their bytes with those of one rank, also where a rank
# is killed and the job goes on under another layout.
# Then random layouts and options of small models (tests/e2e/bits_matrix.py).
# From the environment: N, LAYOUTS ("--tp N;--pp N;--dp N"), DEVICE (cuda), BUILD (build/cuda), MAX_MODEL_LEN (4096), TINY (directory of small
# models), COMBINATIONS (20). Four GPUs:
#   N=4 LAYOUTS="--tp 4;--tp 2 --pp 2;--tp 2 --dp 2" bench/gpus.sh WORKLOADS CONFIG_DIR OUT
set -euo pipefail
workloads=$(realpath "$1") config=$(realpath "$2") out=$3
cd "$(dirname "$0")/.."
build=${BUILD:-build/cuda} n=${N:-2} device=${DEVICE:-cuda}
mkdir -p "$out"
IFS=';' read -r -a layouts <<<"${LAYOUTS:---tp $n;--pp $n;--dp $n}"
date -u +%FT%TZ; git rev-parse HEAD 2>/dev/null || true
if [ "$device" = cuda ]; then
  nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader
  cmake --build "$build" --target lockstep cuda_comm_bench >/dev/null
  echo "== gathers"
  mpirun -np "$n" --bind-to none "$build/bench/cuda_comm_bench"
fi

# RANKS NAME INPUT [OPTIONS...]
run() {
  local ranks=$1 name=$2 input=$3
  shift 3
  local launch=()
  [ "$ranks" = 1 ] || launch=(mpirun -np "$ranks" --bind-to none --oversubscribe)
  "${launch[@]}" "$build/lockstep" run --model "$config" --load-format dummy --input "$input" --output "$out/$name" --device "$device" \
    --max-model-len "${MAX_MODEL_LEN:-4096}" --progress off "$@" >"$out/$name.log" 2>&1 || { cat "$out/$name.log"; return 1; }
  python3 - "$ranks rank(s) $*" "$out/$name/run.json" <<'P'
import json, sys
what, path = sys.argv[1:]
run = json.load(open(path))
print(f"{run['tokens_per_s']['generated']:9.0f} out tok/s {run['tokens_per_s']['total']:9.0f} total tok/s, run {run['phases_s']['run']:.1f} s, "
      f"load {run['phases_s']['load']:.1f} s, completions {run['completions_digest'][:12]}  {what}")
P
}

for file in "$workloads"/*.jsonl; do
  name=$(basename "$file" .jsonl)
  echo "== $name"
  run 1 "$name" "$file" --overwrite
  cp "$out/$name/completions.jsonl" "$out/$name.jsonl"
  for layout in "${layouts[@]}"; do
    # shellcheck disable=SC2086
    run "$n" "$name" "$file" --overwrite $layout
    cmp "$out/$name/completions.jsonl" "$out/$name.jsonl"
  done
done

echo "== a rank is killed"
files=("$workloads"/*.jsonl)
name=$(basename "${files[0]}" .jsonl)
rm -rf "${out:?}/$name"
# shellcheck disable=SC2086
run "$n" "$name" "$workloads/$name.jsonl" ${layouts[0]} >/dev/null 2>&1 &
job=$!
for _ in $(seq 600); do  # until something is done
  [ -n "$(find "$out/$name/journal" -name '*.jsonl' -size +0 2>/dev/null)" ] && break
  sleep 0.1
done
pkill -KILL -n -f "run --model $config" || true
wait $job || true
# shellcheck disable=SC2086
run "$n" "$name" "$workloads/$name.jsonl" ${layouts[1]:-${layouts[0]}}
cmp "$out/$name/completions.jsonl" "$out/$name.jsonl" && echo "same after the kill"

for model in "${TINY:-../shared/goldens/tiny}"/{qwen3,llama-rope-llama3}; do
  [ -d "$model" ] || { echo "random layouts: $model is absent"; continue; }
  echo "== random layouts and options, $(basename "$model")"
  GPUS=$n PROGRAM=$PWD/$build/lockstep WORK=$out/bits MODEL=$model COMBINATIONS=${COMBINATIONS:-20} SEED=$n tests/e2e/bits_matrix.sh "$model" --device "$device"
done
