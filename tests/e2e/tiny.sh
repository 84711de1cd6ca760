# What the tests of faults share, over a tiny model of their own. Source it: needs PROGRAM, MAKE_MODEL (make_tiny_model),
# BAD_DISK_LIBRARY and WORK (a directory of its own) in the environment.
set -euo pipefail
rm -rf "${WORK:?}"/*
export MODEL=$WORK/model
mkdir -p "$MODEL"
"$MAKE_MODEL" "$MODEL" n_layers=4 n_heads=8 n_kv_heads=4
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export LOCKSTEP_LOG=info
out=$WORK/out marks=$WORK/marks log=$WORK/log

# make_input N FILE [TOKENS]: N requests of all kinds, each of TOKENS (4) to TOKENS + 19 tokens; every 50th is faulty.
make_input() {
  python3 - "$1" "$2" "${3:-4}" <<'P'
import json, sys
with open(sys.argv[2], "w") as f:
    for i in range(int(sys.argv[1])):
        line = {"custom_id": f"r{i}", "max_tokens": int(sys.argv[3]) + i * 7 % 20, "temperature": i % 2, "ignore_eos": True}
        if i % 5 == 4:
            line["messages"] = [{"role": "user", "content": f"question {i // 10} " * (1 + i % 2)}]
        else:
            line["prompt"] = f"They begin alike, then {i} " * (1 + i % 3)
        if i % 50 == 7:
            line["max_token"] = 3
        if i % 11 == 3:
            line.update(n=2, temperature=1)
        if i % 13 == 5:
            line.update(logprobs=True, top_logprobs=3) if "messages" in line else line.update(logprobs=3)
        f.write(json.dumps(line) + "\n")
P
}

# begin RULES NP OPTIONS...: starts the program in the background, on a disk with these faults (bad_disk.cpp). Sets `job`.
begin() {
  local rules=$1 np=$2; shift 2
  rm -rf "$marks"; mkdir "$marks"
  local program=(env LD_PRELOAD="$BAD_DISK_LIBRARY" BAD_DISK="$rules" BAD_DISK_MARKS="$marks" "$PROGRAM" run --model "$MODEL" "$@")
  if [ "$np" -gt 1 ]; then program=(mpirun -np "$np" --oversubscribe --bind-to none "${program[@]}"); fi
  setsid "${program[@]}" >"$log" 2>&1 &
  job=$!
}
go_on() { touch "$marks/go"; }  # ends `wait`
alive() { kill -0 "$1" 2>/dev/null; }

# await K: until rule K has acted. False: the program ended before.
await() {
  for ((t = 0; t < 6000; t++)); do
    if [ -e "$marks/$1" ]; then return 0; fi
    alive "$job" || return 1
    sleep 0.005
  done
  die "nothing happened for a minute"
}

# finish: the exit code of the program in `status`; it has a minute.
finish() {
  for ((t = 0; t < 6000; t++)); do alive "$job" || break; sleep 0.01; done
  if alive "$job"; then kill -9 -- "-$job"; die "still there after a minute"; fi
  status=0; wait "$job" || status=$?
}

# find_ranks NP: into the array `ranks` the processes of the program; none where it ended before.
find_ranks() {
  ranks=()
  for ((t = 0; t < 6000; t++)); do
    if [ "$1" -eq 1 ]; then mapfile -t ranks < <(pgrep -x lockstep -s "$job"); else mapfile -t ranks < <(pgrep -x lockstep -P "$job"); fi
    if [ ${#ranks[@]} -gt 0 ] || ! alive "$job"; then return 0; fi
    sleep 0.005
  done
}

same_as() { cmp "$1/completions.jsonl" "$out/completions.jsonl" && cmp "$1/errors.jsonl" "$out/errors.jsonl" || die "${2:-the files differ}"; }

# Whole lines of the journal. Each id is answered once: what a run finds done it doesn't do again.
journal_lines() { { cat "$out"/journal/e*.jsonl 2>/dev/null || true; } | wc -l; }
