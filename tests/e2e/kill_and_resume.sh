#!/usr/bin/env bash
# kill -9 of a random rank, 50 times (KILLS), in every phase of a run and at random moments of it; each time another layout, budget,
# lag and cache setting resumes. Whenever a run gets through, its files equal those of an uninterrupted run, and the next begins anew.
source "$(dirname "$0")/tiny.sh"
kills=${KILLS:-50} seed=${SEED:-$RANDOM} n_lines=1200; RANDOM=$seed
echo "seed $seed"
make_input $n_lines "$WORK/input.jsonl" 40  # seconds of work: the journal commits every two
lockstep 1 --input "$WORK/input.jsonl" --output "$WORK/reference"
expect_status 20

layouts=("1" "2 --tp 2" "3 --tp 3" "2 --pp 2" "4 --pp 4" "2 --dp 2" "4 --tp 2 --pp 2" "3 --dp 3")
settings=("--max-batch-tokens 256 --max-sequences 16" "--prefix-cache off" "--max-sequences 8 --lag 1" "--max-batch-tokens 2048" "--lag 4 --max-sequences 48")
# Each rule shows the begin of a phase; the short ones are drawn out, so that kills fall into them.
rules="link:/journal/lock:stall=0.3,link:/epochs/:stall=0.3,open:/journal/e0:stall=0,open:/completions.jsonl.tmp:stall=0.4,rename:/completions.jsonl:stall=0.2"
phases=(open load run merge rename) targets=(start open load run run run merge run run rename)
declare -A hits=([start]=0 [open]=0 [load]=0 [run]=0 [merge]=0 [rename]=0)
reach_ms=2000 n_killed=0 n_through=0 n_attempts=0

check_through() {
  same_as "$WORK/reference" "the files differ after $n_killed kills (seed $seed)"
  [ "$(journal_lines)" -eq $n_lines ] || die "$(journal_lines) lines in the journal, $n_lines expected: some were done twice"
  rm -rf "$out"
  n_through=$((n_through + 1))
}

while [ $n_killed -lt "$kills" ]; do
  read -ra layout <<<"${layouts[n_attempts % 8]}"
  read -ra setting <<<"${settings[n_attempts % 5]}"
  target=${targets[n_killed % 10]}
  n_attempts=$((n_attempts + 1))
  [ $n_attempts -lt $((4 * kills)) ] || die "the kills come too late"
  before=$(journal_lines)
  begin "$rules" "${layout[0]}" --input "$WORK/input.jsonl" --output "$out" --threads 1 "${layout[@]:1}" "${setting[@]}"
  case $target in
    start) sleep "0.$((RANDOM % 3))$((RANDOM % 10))" ;;
    open) await 0 && sleep "0.$((RANDOM % 3))$((RANDOM % 10))" || true ;;
    load) await 1 && sleep "0.$((RANDOM % 3))$((RANDOM % 10))" || true ;;
    run)
      # A moment of what the work left should take; the estimate follows what is met there.
      ms=$((RANDOM % (reach_ms * (n_lines - before) / n_lines + 50)))
      await 2 && sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))" || true
      if alive "$job" && ! [ -e "$marks/3" ]; then reach_ms=$((reach_ms * 11 / 10)); else reach_ms=$((reach_ms * 7 / 10)); fi ;;
    merge) await 3 && sleep "0.$((RANDOM % 4))$((RANDOM % 10))" || true ;;
    rename) await 4 && sleep "0.$((RANDOM % 2))$((RANDOM % 10))" || true ;;
  esac
  find_ranks "${layout[0]}"
  victim=none
  if [ ${#ranks[@]} -gt 0 ]; then victim=${ranks[RANDOM % ${#ranks[@]}]}; fi
  phase=start
  for k in 0 1 2 3 4; do if [ -e "$marks/$k" ]; then phase=${phases[k]}; fi; done
  killed=0; if [ "$victim" != none ] && kill -9 "$victim" 2>/dev/null; then killed=1; fi
  finish
  echo "${SECONDS}s: np ${layout[*]} ${setting[*]}: aimed at $target, $victim in $phase, exit code $status"
  for rank in "${ranks[@]}"; do  # the launcher has ended them
    for ((t = 0; t < 1000; t++)); do alive "$rank" || break; sleep 0.01; done
    if alive "$rank"; then die "rank $rank outlived its job"; fi
  done
  if [ $status -eq 20 ]; then  # through before the kill
    check_through
    continue
  fi
  [ $killed -eq 1 ] || die "exit code $status, and nobody killed it"
  if [ "$(journal_lines)" -lt "$before" ]; then die "the journal had $before lines, now it has $(journal_lines)"; fi
  n_killed=$((n_killed + 1))
  hits[$phase]=$((hits[$phase] + 1))
done
lockstep 1 --input "$WORK/input.jsonl" --output "$out"
expect_status 20
check_through
for phase in start "${phases[@]}"; do echo "kills in $phase: ${hits[$phase]}"; done
echo "$n_killed kills, $n_attempts attempts, $n_through times through and the same"
[ "${hits[run]}" -ge $((kills / 4)) ] || die "too few kills fell into the run"
[ $((hits[merge] + hits[rename])) -ge $((kills / 12)) ] && [ $((hits[start] + hits[open] + hits[load])) -ge $((kills / 12)) ] || die "too few kills fell into start and end"
