#!/usr/bin/env bash
# A job array's three shards, each under another layout, merged: the files of the one run. What doesn't fit together is refused by name.
source "$(dirname "$0")/lib.sh"
rm -rf "$WORK"/{shard-*,out,bin}
shard() {  # I NP OPTIONS...
  lockstep "$2" --input "$DATA/prompts.jsonl" --output "$WORK/shard-$1" --max-model-len 2048 --shard "$1/3" "${@:3}"
}
merge() {  # SHARD... [OPTIONS...]
  status=0
  (cd "$WORK" && "$PROGRAM" merge "$@" >log 2>&1) || status=$?
}
expect_word() { grep -q -- "$1" "$WORK/log" || die "no word of: $1"; }
same_as_reference() {
  cmp "$REFERENCE/out/completions.jsonl" "$WORK/$1/completions.jsonl" || die "completions.jsonl differs"
  cmp "$REFERENCE/out/errors.jsonl" "$WORK/$1/errors.jsonl" || die "errors.jsonl differs"
}

# The first one as a task of jobs/array.sbatch, with an srun that is none.
mkdir -p "$WORK/bin"
printf '%s\n' '#!/usr/bin/env bash' 'while [[ $1 == -* ]]; do shift; done' 'exec "$@"' >"$WORK/bin/srun"
chmod +x "$WORK/bin/srun"
status=0
PATH=$WORK/bin:$PATH SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=3 INPUT=$DATA/prompts.jsonl OUTPUT=$WORK LOCKSTEP=$PROGRAM \
  LOCKSTEP_OPTIONS="--max-model-len 2048" "$(dirname "$0")/../../jobs/array.sbatch" >"$WORK/log" 2>&1 || status=$?
expect_status 20
shard 2 1 --limit 20; expect_status 20
merge shard-1 shard-2 --output out; expect_status 2; expect_word "--limit 20"
merge shard-1 shard-1 --output out; expect_status 2; expect_word "shard-1 and shard-1 are both shard 1/3"
shard 2 2 --pp 2; expect_status 20  # appended lines run
lockstep 1 --input "$DATA/prompts.jsonl" --output "$WORK/shard-2" --max-model-len 2048 --shard 1/3
expect_status 2; expect_word "--shard (was '2/3', now '1/3')"

# A shard's own file holds its lines, every third.
awk 'NR % 3 == 2' "$REFERENCE/out/completions.jsonl" | cmp - "$WORK/shard-2/completions.jsonl" || die "shard 2 holds other lines"

merge shard-2 shard-1 --output out; expect_status 2; expect_word "no directory is given of shard 3/3"
merge shard-2 shard-1 --output out --partial; expect_status 75; expect_word "without shard 3/3"
awk 'NR % 3 != 0' "$REFERENCE/out/completions.jsonl" | cmp - "$WORK/out/completions.jsonl" || die "the partial file is another"
shard 0 2 --dp 2 --limit 20; expect_status 0  # the same shard as 3/3
mv "$WORK/shard-0" "$WORK/shard-3"
shard 3 2 --dp 2; expect_status 20
merge shard-3 shard-1 shard-2 --output out; expect_status 20
same_as_reference out
merge shard-1 shard-2 shard-3; expect_status 20  # without --output: into the first
same_as_reference shard-1
