#!/usr/bin/env bash
# same_bytes.sh NP OPTIONS...: the same prompts under another layout, budget or thread count give the same file.
source "$(dirname "$0")/lib.sh"
rm -rf "$WORK/out"
lockstep "$1" --input "$DATA/prompts.jsonl" --output "$WORK/out" --max-model-len 2048 "${@:2}"
expect_status 20
cmp "$REFERENCE/out/completions.jsonl" "$WORK/out/completions.jsonl" || die "completions.jsonl differs"
cmp "$REFERENCE/out/errors.jsonl" "$WORK/out/errors.jsonl" || die "errors.jsonl differs"
