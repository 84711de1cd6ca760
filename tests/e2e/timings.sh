#!/usr/bin/env bash
# timings.h5 and report.html of real runs of a tiny model: stopped under tp2 and resumed under dp2; killed and resumed. timings.py reads
# what they leave, with h5py, pandas and xarray where they are installed. The GPUs are those of a made-up driver (LOCKSTEP_NVML_GPU).
MODEL=$WORK  # made below; lib.sh wants one that is there
source "$(dirname "$0")/lib.sh"
MODEL=$WORK/model
rm -rf "$WORK"/{model,out,killed,fresh} && mkdir -p "$MODEL"
"$MAKE_TINY_MODEL" "$MODEL" hidden=256 n_heads=8 head_dim=32 n_layers=4 ffn=768
python3 - "$WORK/prompts.jsonl" <<'P'
import json, random, sys
random.seed(7)
with open(sys.argv[1], "w", encoding="utf-8") as f:
    for i in range(240):
        name = ["<script>alert(1)</script>", "</script><img src=x>", "ключ-界-👍", "\"quotes\" & 'more'"][i % 4] + f" {i}"
        f.write(json.dumps({"custom_id": name, "prompt": "word " * random.randint(1, 40), "max_tokens": random.randint(60, 400)}) + "\n")
        if i % 60 == 59: f.write(json.dumps({"prompt": 7}) + "\n")
P
# Two GPUs; every reading of their counters finds 2.5 or 4 J more.
cat >"$WORK/gpus" <<'G'
gpu 00000000:1B:00.0
energy 7000000 +2500
power 100000 350000
temperature 31 64
sm_clock 345 1980
memory_clock 2619
utilisation 0 97
memory_utilisation 0 38
memory_used 1000000000 70000000000
reasons 1 4
gpu 00000000:43:00.0
energy 9000000 +4000
power 120000
G
export LOCKSTEP_FAKE_NVML=$WORK/gpus LOCKSTEP_NVML_LIBRARY=$FAKE_NVML_LIBRARY
# OUT NP OPTIONS...: in the background, until a first record is in the journal (after two seconds, of ten or more); leaves `job`.
run_in() {
  local out=$1 np=$2; shift 2
  local launch=(); [ "$np" -eq 1 ] || launch=(mpirun -np "$np" --oversubscribe --bind-to none)
  setsid "${launch[@]}" "$PROGRAM" run --model "$MODEL" --input "$WORK/prompts.jsonl" --output "$out" --max-sequences 1 --threads 1 "$@" >"$WORK/log" 2>&1 &
  job=$!
  for ((i = 0; i < 1200; i++)); do
    if compgen -G "$out/journal/e*.jsonl" >/dev/null && [ -s "$(ls "$out"/journal/e*.jsonl | head -n 1)" ]; then return; fi
    sleep 0.02
  done
  die "no record came"
}
report() { status=0; "$PROGRAM" report "$@" >"$WORK/log" 2>&1 || status=$?; }

# ---- stopped under tp2, resumed under dp2 ----
export LOCKSTEP_NVML_GPU=0000:1b:00.0  # of both ranks
run_in "$WORK/out" 2 --tp 2
kill -USR1 "$job"
status=0; wait "$job" || status=$?
expect_status 75
grep -q '"energy_gpus": 1,' "$WORK/out/run.json" || die "a GPU that ranks share is not counted once"
report "$WORK/out"; expect_status 0
export LOCKSTEP_NVML_GPU=0000:1b:00.0,0000:43:00.0
lockstep 2 --input "$WORK/prompts.jsonl" --output "$WORK/out" --threads 1 --dp 2
expect_status 20
report "$WORK/out"; expect_status 0

# ---- killed, looked at, resumed ----
run_in "$WORK/killed" 1
kill -9 "$job"; wait "$job" 2>/dev/null || true
[ ! -e "$WORK/killed/timings.h5" ] || die "a killed run has no timings.h5"
report "$WORK/killed" --output "$WORK/killed.html"; expect_status 0
grep -q "drawn from the raw records" "$WORK/killed.html" || die "the report of a killed run doesn't say what it is drawn from"
LOCKSTEP_NVML_LIBRARY=/nonexistent/libnvidia-ml.so.1 lockstep 1 --input "$WORK/prompts.jsonl" --output "$WORK/killed" --threads 1
expect_status 20
[ "$(grep -c "the GPU is not measured: /nonexistent" "$WORK/log")" -eq 1 ] || die "a missing driver is one line of the log"

# ---- what can't be read is one message and exit code 3; what can't be written 74 ----
report "$WORK/nowhere"; expect_status 3
mkdir "$WORK/fresh"
report "$WORK/fresh"; expect_status 3
head -c 3000 "$WORK/out/timings.h5" >"$WORK/fresh/timings.h5"
report "$WORK/fresh"; expect_status 3
[ "$(wc -l <"$WORK/log")" -eq 1 ] || die "more than one message"
report "$WORK/out" --output "$WORK/nowhere/report.html"; expect_status 74
report; expect_status 2

for python in python3 /usr/bin/python3; do
  if "$python" -c 'import h5py, numpy, pandas, xarray, h5netcdf' 2>/dev/null; then exec "$python" "$(dirname "$0")/timings.py" "$WORK"; fi
done
echo "skipped: reading timings.h5 wants python3 with h5py, pandas, xarray and h5netcdf (CI=true jobs/install_deps.sh brings them)"
exit 77
