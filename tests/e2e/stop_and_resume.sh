#!/usr/bin/env bash
# SIGUSR1 to mpirun (which forwards it): exit 75 within seconds, what was finished is kept, and the resumed file is the same.
source "$(dirname "$0")/lib.sh"
rm -rf "$WORK/out"
setsid mpirun -np 2 --oversubscribe --bind-to none "$PROGRAM" run --model "$MODEL" --input "$DATA/prompts.jsonl" --output "$WORK/out" \
  --max-model-len 2048 --max-sequences 1 --threads 1 --dp 2 >"$WORK/log" 2>&1 &
job=$!
for ((i = 0; i < 600; i++)); do  # until a first record is in the journal
  if compgen -G "$WORK/out/journal/e*.jsonl" >/dev/null && [ -s "$(ls "$WORK"/out/journal/e*.jsonl | head -n 1)" ]; then break; fi
  sleep 0.05
done
kill -USR1 "$job"
status=0; wait "$job" || status=$?
expect_status 75
grep -q "the same command resumes" "$WORK/log" || die "no word about how to go on"
[ ! -e "$WORK/out/completions.jsonl" ] || die "a stopped run has no final file"
lockstep 1 --input "$DATA/prompts.jsonl" --output "$WORK/out" --max-model-len 2048
expect_status 20
cmp "$REFERENCE/out/completions.jsonl" "$WORK/out/completions.jsonl" || die "completions.jsonl differs"
