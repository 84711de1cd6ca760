#!/usr/bin/env bash
# A node reads each byte of a model once for its digest (read) and once into its weights (pread), however many ranks it has, and
# a file that fails under one rank ends all of them, named.
source "$(dirname "$0")/tiny.sh"
make_input 12 "$WORK/input.jsonl"
layouts=("1" "2 --tp 2" "2 --dp 2" "2 --pp 2" "4 --tp 2 --dp 2" "4 --pp 2 --dp 2")
shape=(n_layers=6 hidden=256 n_heads=8 n_kv_heads=4 head_dim=32 ffn=768 vocab=260 n_shards=3)

# bytes_of HEADERS: of the model's files; of their headers.
bytes_of() {
  python3 - "$1" "$MODEL"/*.safetensors <<'P'
import os, struct, sys
print(sum(8 + struct.unpack("<Q", open(f, "rb").read(8))[0] if int(sys.argv[1]) else os.path.getsize(f) for f in sys.argv[2:]))
P
}
counted() { echo $(($(cat "$marks/$1".* | paste -sd+))); }

for tied in 0 1; do
  MODEL=$WORK/tied$tied; mkdir "$MODEL"
  "$MAKE_MODEL" "$MODEL" "${shape[@]}" tied=$tied
  file_bytes=$(bytes_of 0) header_bytes=$(bytes_of 1)
  for layout in "${layouts[@]}"; do
    read -ra words <<<"$layout"
    begin "read:of-00003.safetensors:count,pread:of-00003.safetensors:count" "${words[0]}" --input "$WORK/input.jsonl" --output "$out" --threads 1 "${words[@]:1}"
    finish
    expect_status 20
    if [ "$layout" = 1 ]; then rm -rf "$WORK/reference" && cp -r "$out" "$WORK/reference"; fi
    same_as "$WORK/reference" "tied=$tied $layout: the files differ"
    digest=$(counted 0) weights=$(($(counted 1) - words[0] * header_bytes))
    echo "tied=$tied ranks and layout $layout: digest $digest, weights $weights of $file_bytes bytes"
    [ "$digest" -eq "$file_bytes" ] || die "the digest read $digest bytes"
    [ $((weights * 100)) -ge $((file_bytes * 98)) ] || die "the weights' reads are not all counted"
    [ $((weights * 100)) -le $((file_bytes * 102)) ] || die "the weights were read more than once"
    grep -q "loaded in .*: this node read .* of weights, .* GB/s" "$log" || die "the log doesn't say what was read"
    rm -rf "$out"
  done
done

# One rank's disk fails, in the middle of loading.
for layout in "${layouts[@]:1}"; do
  read -ra words <<<"$layout"
  for rank in 0 $((words[0] - 1)); do
    BAD_DISK_RANK=$rank begin "pread:of-00003.safetensors:fail=EIO@10" "${words[0]}" --input "$WORK/input.jsonl" --output "$out" "${words[@]:1}"
    finish
    expect_status 3
    [ -e "$marks/0" ] || die "$layout: nothing failed, so nothing was tested"
    [ "$(grep -ac "error: " "$log")" -eq 1 ] || die "$layout: not one message"
    grep -aq "error: .*tensor 'model\..*': $MODEL/model-0000.-of-00003.safetensors: reading at [0-9]*: Input/output error" "$log" ||
      die "$layout: the message names no tensor or no file"
    rm -rf "$out"
  done
done
# And while it is identified.
BAD_DISK_RANK=1 begin "read:of-00003.safetensors:fail=EIO" 4 --input "$WORK/input.jsonl" --output "$out" --dp 4
finish
expect_status 3
grep -aq "error: .*model-0000.-of-00003.safetensors: Input/output error" "$log" || die "the message names no file"
echo "a failing disk under one rank: one message, exit code 3"
