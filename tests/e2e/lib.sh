# What the end-to-end tests share. Source it: needs PROGRAM, MODEL, DATA (tests/data/e2e) and WORK (a directory of its own) in the environment.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LC_ALL=C
[ -e "$MODEL" ] || { echo "skipped: $MODEL is absent (jobs/get_model.sh brings it)"; exit 77; }

# lockstep NP OPTIONS...: runs the program over NP ranks; leaves its exit code in `status`, its messages in $WORK/log.
lockstep() {
  local np=$1; shift
  status=0
  if [ "$np" -eq 1 ]; then
    "$PROGRAM" run --model "$MODEL" "$@" >"$WORK/log" 2>&1 || status=$?
  else
    mpirun -np "$np" --oversubscribe --bind-to none "$PROGRAM" run --model "$MODEL" "$@" >"$WORK/log" 2>&1 || status=$?
  fi
}

die() { echo "FAILED: $*"; [ -f "$WORK/log" ] && tail -n 20 "$WORK/log"; exit 1; }
expect_status() { [ "$status" -eq "$1" ] || die "exit code $status, expected $1"; }
