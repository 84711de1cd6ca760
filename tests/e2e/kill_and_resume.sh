#!/usr/bin/env bash
# Twenty kills at random moments, each resumed under another layout; then the file equals the uninterrupted one.
source "$(dirname "$0")/lib.sh"
kills=${KILLS:-20} seed=${SEED:-$RANDOM}; RANDOM=$seed
echo "seed $seed"
rm -rf "$WORK/out"
layouts=("1" "2 --tp 2" "3 --tp 3" "2 --pp 2" "4 --pp 4" "2 --dp 2" "4 --tp 2 --pp 2" "3 --dp 3")
done_early=0
for ((i = 0; i < kills; i++)); do
  read -ra layout <<<"${layouts[i % ${#layouts[@]}]}"
  (
    exec setsid mpirun -np "${layout[0]}" --oversubscribe --bind-to none "$PROGRAM" run --model "$MODEL" --input "$DATA/prompts.jsonl" \
      --output "$WORK/out" --max-model-len 2048 --max-sequences 4 --threads 1 "${layout[@]:1}" >"$WORK/log" 2>&1
  ) &
  job=$!
  # Most kills fall into the run, some into start and load. The first moments of a step are as good as any other.
  sleep "$(printf '%d.%03d' $((RANDOM % 3)) $((RANDOM % 1000)))"
  victim=$(pgrep -f "$PROGRAM run .*$WORK/out" | shuf -n 1 --random-source=<(yes $((seed + i))) || true)
  if [ -n "$victim" ]; then kill -9 "$victim" 2>/dev/null || true; fi
  code=0; wait "$job" || code=$?
  [ "$code" -eq 20 ] && done_early=$((done_early + 1))
  pkill -9 -f "$PROGRAM run .*$WORK/out" 2>/dev/null || true
done
lockstep 1 --input "$DATA/prompts.jsonl" --output "$WORK/out" --max-model-len 2048
expect_status 20
cmp "$REFERENCE/out/completions.jsonl" "$WORK/out/completions.jsonl" || die "completions.jsonl differs after $kills kills (seed $seed)"
cmp "$REFERENCE/out/errors.jsonl" "$WORK/out/errors.jsonl" || die "errors.jsonl differs"
echo "epochs: $(ls "$WORK/out/journal/epochs" | wc -l), runs that ended before their kill: $done_early"
[ "$(ls "$WORK/out/journal/epochs" | wc -l)" -ge 2 ] || die "no kill fell into a run: nothing was tested"
