#!/usr/bin/env bash
# From a fresh clone to answers: installs what is missing, builds, brings a real model, and runs the prompts of inputs/ through it
# with two ranks that share every layer (--tp 2: 6 + 3 heads). Ends with a table.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs/build.sh cpu lockstep
model=$(jobs/get_model.sh)
[ "$(id -u)" -eq 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun -np 2 --bind-to none build/cpu/lockstep run --model "$model" --input inputs/quickstart.jsonl \
  --output results/quickstart --tp 2 --overwrite
echo; echo "The first answers:"
head -n 3 results/quickstart/completions.jsonl | python3 -c '
import json, sys
for line in sys.stdin:
    record = json.loads(line)
    choice = record["response"]["body"]["choices"][0]
    print("  " + record["custom_id"] + ": " + json.dumps(choice.get("text") or choice["message"]["content"], ensure_ascii=False))'
