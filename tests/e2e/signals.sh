#!/usr/bin/env bash
# SIGUSR1, SIGTERM and SIGINT in every phase of a run: exit code 75 within seconds (or the run is done), nothing finished is lost, and
# the same command gives the same bytes. bad_disk.cpp holds the program at a call of the phase until the signal is there.
source "$(dirname "$0")/tiny.sh"
n_lines=60 n_checks=0
make_input $n_lines "$WORK/input.jsonl"
run=(--input "$WORK/input.jsonl" --output "$out" --threads 1)
lockstep 1 --input "$WORK/input.jsonl" --output "$WORK/reference"
expect_status 20

# Every ending of this file: what came of it, and what the same command makes of it.
resumes() {
  local name=$1 before
  before=$(journal_lines)
  lockstep 1 "${run[@]}"
  expect_status 20
  same_as "$WORK/reference" "$name: the resumed files differ"
  [ "$(journal_lines)" -eq $n_lines ] || die "$name: $(journal_lines) lines in the journal, $n_lines expected ($before before)"
  n_checks=$((n_checks + 1))
  rm -rf "$out"
}
expect_stopped() {
  [ $status -eq 75 ] || die "$1: exit code $status, expected 75"
  grep -q "the same command resumes" "$log" || die "$1: no word about how to go on"
  [ ! -e "$out/completions.jsonl" ] && [ ! -e "$out/completions.jsonl.tmp" ] || die "$1: a stopped run left a final file"
  [ ! -e "$out/journal/lock" ] || die "$1: a stopped run left its lock"
}

# ---- one rank, by itself ----
# Before the first call of ours: the handlers are there from the first moment of main on.
for signal in USR1 TERM INT; do
  begin "" 1 "${run[@]}"
  bit=$((1 << ($(kill -l $signal) - 1)))
  for ((t = 0; t < 5000; t++)); do
    caught=$(awk '/SigCgt/ {print "0x" $2}' "/proc/$job/status" 2>/dev/null || true)
    if [ $((${caught:-0} & bit)) -ne 0 ] && [ "$(cat "/proc/$job/comm")" = lockstep ]; then break; fi
  done
  kill -"$signal" "$job"
  finish
  expect_stopped "$signal at start"
  resumes "$signal at start"
done

# name | call where the program waits | other exit codes that are right | what must be there, what not
points=(
  "model files|open:/model.safetensors:wait||"
  "digests|open:/tokenizer.json:wait@2||"
  "input|open:/input.jsonl:wait||"
  "lock|link:/journal/lock:wait||"
  "tokenizer|open:/tokenizer.json:wait@3||"
  "weights|pread:/model.safetensors:wait@20||"
  "manifest|rename:/journal/manifest.json:wait||"
  "epoch|link:/epochs/0001:wait||"
  "shard|open:/journal/e0001-w000:wait||"
  "first line|pread:/input.jsonl:wait@3||"
  "middle|pread:/input.jsonl:wait@40||"
  "last commit|sync:/journal/e0001-w000:wait|20|"
  "merge|open:/completions.jsonl.tmp:wait|20|"
  "rename|rename:/completions.jsonl:wait|20|"
  "run.json|rename:/run.json:wait|20|"
)
for point in "${points[@]}"; do
  IFS='|' read -r name rule other _ <<<"$point"
  for signal in USR1 TERM INT; do
    begin "$rule" 1 "${run[@]}"
    await 0 || die "$name: the program never came there"
    case $name in
      tokenizer | weights) [ -e "$out/journal/lock" ] && [ ! -e "$out/journal/epochs/0001.json" ] || die "$name: not while loading" ;;
      first* | middle) [ -e "$out/journal/e0001-w000.jsonl" ] || die "$name: not while running" ;;
    esac
    kill -"$signal" "$job"
    go_on
    finish
    if [ "$status" != "$other" ]; then expect_stopped "$signal at $name"; fi
    resumes "$signal at $name"
  done
done

# A merge that takes long is left, and leaves nothing behind; `lockstep merge` too.
begin "open:/completions.jsonl.tmp:stall=3" 1 "${run[@]}"
await 0; kill -TERM "$job"; finish
expect_stopped "SIGTERM in a long merge"
[ "$(journal_lines)" -eq $n_lines ] || die "a merge that was left lost lines"
mkdir -p "$marks"; rm -f "$marks"/*
LD_PRELOAD="$BAD_DISK_LIBRARY" BAD_DISK="sync:/completions.jsonl.tmp:stall=3" BAD_DISK_MARKS="$marks" setsid "$PROGRAM" merge "$out" >"$log" 2>&1 &
job=$!
await 0; kill -INT "$job"; finish
expect_stopped "SIGINT in lockstep merge"
resumes "a long merge"

# --overwrite that is stopped while loading: the old results are whole.
lockstep 1 "${run[@]}"
begin "pread:/model.safetensors:wait@20" 1 "${run[@]}" --overwrite --seed 5
await 0; kill -TERM "$job"; go_on; finish
[ $status -eq 75 ] || die "overwrite: exit code $status, expected 75"
same_as "$WORK/reference" "overwrite: a stop while loading touched the old results"
rm -rf "$out"

# A second signal ends the program at once, where it stands.
for second in TERM INT; do
  begin "pread:/input.jsonl:wait@40" 1 "${run[@]}"
  await 0; kill -USR1 "$job"; sleep 0.3; kill -$second "$job"; finish
  [ $status -eq $((128 + $(kill -l $second))) ] || die "second signal: exit code $status"
  resumes "a second signal"
done

# ---- several ranks ----
# mpirun forwards SIGUSR1.
layouts=("2 --tp 2" "2 --pp 2" "2 --dp 2" "4 --tp 2 --pp 2")
i=0
for rule in "read:/model.safetensors:wait" "pread:/model.safetensors:wait@15" "link:/epochs/0001:wait" "pread:/input.jsonl:wait@10" "open:/completions.jsonl.tmp:wait"; do
  read -ra layout <<<"${layouts[i++ % 4]}"
  begin "$rule" "${layout[0]}" "${run[@]}" "${layout[@]:1}"
  await 0; kill -USR1 "$job"; sleep 0.5; go_on; finish
  if [ $status -ne 20 ] || [[ $rule != *completions* ]]; then expect_stopped "SIGUSR1 to mpirun, $rule, ${layout[*]}"; fi
  resumes "SIGUSR1 to mpirun, $rule, ${layout[*]}"
done

# One rank alone is told, whichever: all of them stop.
for rule in "pread:/model.safetensors:wait@15" "pread:/input.jsonl:wait@10"; do
  for layout in "2 --tp 2" "2 --pp 2" "2 --dp 2"; do
    for which in 0 1; do
      read -ra options <<<"$layout"
      begin "$rule" 2 "${run[@]}" "${options[@]:1}"
      await 0; find_ranks 2
      kill -TERM "${ranks[which]}"; sleep 0.1; go_on; finish
      expect_stopped "SIGTERM to rank $which of $layout, $rule"
      resumes "SIGTERM to rank $which of $layout, $rule"
    done
  done
done

# SIGTERM to mpirun: it ends the ranks as it likes, and nothing is lost.
begin "pread:/input.jsonl:stall=0.2@30" 2 "${run[@]}" --dp 2
await 0; kill -TERM "$job"; finish
[ $status -ne 0 ] || die "SIGTERM to mpirun: exit code 0"
resumes "SIGTERM to mpirun"

# A signal in the middle of each commit: what was committed stays, what is asked again is only the rest.
begin "sync:/journal/e0001-w000:wait" 1 "${run[@]}" --max-sequences 4
await 0; kill -9 "$job"; finish
resumes "kill -9 at a commit"
echo "$n_checks stops resumed to the same bytes"
