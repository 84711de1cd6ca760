#!/usr/bin/env bash
# The output directory on a file system that fills up, at every level from "not even a lock" to "all but the last file": exit code 74
# and one message with path and reason, nothing committed is lost, and with room again the same command gives the same bytes.
source "$(dirname "$0")/tiny.sh"
n_lines=300
make_input $n_lines "$WORK/input.jsonl"
lockstep 1 --input "$WORK/input.jsonl" --output "$WORK/reference"
expect_status 20
run=(--input "$WORK/input.jsonl" --output "$out" --threads 1)

# What failed and how: the last message of the log, without its time.
complaint() { grep -a "error: " "$log" | sed 's/.*error: //; s/^\[[^]]*\] //'; }
declare -A failed_at
expect_full() {
  [ $status -eq 74 ] || die "$1: exit code $status, expected 74"
  local n; n=$(complaint | wc -l)  # each rank that writes may meet the full disk at once
  [ "$n" -ge 1 ] && [ "$n" -le "$2" ] || die "$1: $n messages"
  [ "$(complaint | grep -c "^$out.*No space left on device")" -eq "$n" ] || die "$1: a message names no path or no reason"
  local file; file=$(complaint | head -n 1 | sed "s|^$out/||; s|: .*||; s|-[0-9a-f]\{16\}||; s|e[0-9]\{4\}-w[0-9]*|eNNNN-wNNN|")
  failed_at[$file]=$((${failed_at[$file]:-0} + 1))
  [ ! -e "$out/journal/lock" ] || [ "$2" -gt 1 ] || die "$1: the lock was left"
}

# ---- a real one, where we may mount: in a name space of our own, else as root ----
if [ -z "${LOCKSTEP_MOUNTED:-}" ] && unshare -rm true 2>/dev/null; then
  LOCKSTEP_MOUNTED=1 exec unshare -rm "$0" "$@"
fi
if [ -n "${LOCKSTEP_MOUNTED:-}" ]; then
  mkdir "$WORK/disk"; out=$WORK/disk/out; run[3]=$out
  mount -t tmpfs -o size=4m none "$WORK/disk"
  free_kib() { df -k --output=avail "$WORK/disk" | tail -n 1; }
  # leave N: so many KiB of room.
  leave() {
    rm -f "$WORK/disk/ballast"
    local n=$(($(free_kib) - $1))
    if [ $n -gt 0 ]; then head -c $((n * 1024)) /dev/zero >"$WORK/disk/ballast"; fi
  }
  before=0 n_full=0
  for room in 0 4 8 12 16 20 24 28 32 40 48 64 80 96 112 128 144 160 176 192 208 224 240 256; do
    leave $room
    np=$((room % 16 == 0 ? 2 : 1))
    if [ $np -eq 1 ]; then lockstep 1 "${run[@]}"; else lockstep 2 "${run[@]}" --dp 2; fi
    if [ $status -eq 20 ]; then break; fi
    expect_full "$room KiB" $np
    n_full=$((n_full + 1))
    if [ "$(journal_lines)" -lt "$before" ]; then die "$room KiB: the journal had $before lines, now $(journal_lines)"; fi
    before=$(journal_lines)
  done
  [ $n_full -ge 10 ] || die "only $n_full runs met a full disk"
  [ "$before" -gt 0 ] || die "no run on the full disk got as far as a line"
  leave 3000
  lockstep 1 "${run[@]}"
  expect_status 20
  same_as "$WORK/reference" "after the disk was full"
  echo "tmpfs: $n_full runs on a full disk, $before lines were kept; then the same bytes"
  for file in "${!failed_at[@]}"; do echo "  ${failed_at[$file]} x $file"; done
  umount "$WORK/disk"
else
  echo "no mount: the disks below are simulated only"
fi

# ---- each file by name, and by the number of bytes that still fit ----
out=$WORK/out; run[3]=$out
for rule in "write:/journal/lock:fail=ENOSPC" "write:/journal/manifest.json:fail=ENOSPC" "write:/epochs/0001:fail=ENOSPC" \
  "write:/epochs/0001.json.tmp:fail=ENOSPC" "open:/journal/e0001-w000:fail=ENOSPC" "write:/journal/e0001-w000:fail=ENOSPC" \
  "sync:/journal/e0001-w000:fail=ENOSPC" "write:/journal/e0001:room=20000" "write:/completions.jsonl.tmp:fail=ENOSPC" \
  "write:/completions.jsonl.tmp:room=50000" "sync:/completions.jsonl.tmp:fail=ENOSPC" "write:/errors.jsonl.tmp:fail=ENOSPC" \
  "rename:/completions.jsonl:fail=ENOSPC" "write:/run.json.tmp:fail=ENOSPC"; do
  for np in 1 2; do
    begin "$rule" $np "${run[@]}" --dp $np
    finish
    expect_full "$rule" $np
    before=$(journal_lines)
    case $rule in *completions* | *errors* | *run.json*) [ "$before" -eq $n_lines ] || die "$rule: $before lines in the journal" ;; esac
    lockstep 1 "${run[@]}"
    expect_status 20
    same_as "$WORK/reference" "$rule"
    [ "$(journal_lines)" -le $((n_lines + 1)) ] || die "$rule: lines that were in the journal were done again"
    rm -rf "$out"
  done
done

# ---- figures are not worth a run: every way in which the timings fail ----
for rule in "open:/journal/timings/:fail=ENOSPC" "write:/journal/timings/:fail=ENOSPC" "write:/timings.h5:fail=ENOSPC" "open:/timings.h5:fail=ENOSPC" \
  "sync:/timings.h5:fail=EIO" "rename:/timings.h5:fail=ENOSPC" "write:/timings.h5:room=4000"; do
  begin "$rule" 1 "${run[@]}"
  finish
  expect_status 20
  [ -e "$marks/0" ] || die "$rule: nothing failed, so nothing was tested"
  grep -q "warning: .*timings" "$log" || die "$rule: no warning"
  same_as "$WORK/reference" "$rule"
  [ -e "$out/run.json" ] || die "$rule: no run.json"
  if [ -e "$out/timings.h5.tmp" ]; then die "$rule: timings.h5.tmp is left"; fi
  rm -rf "$out"
done
echo "every file by name: one message, exit code 74, the same bytes; timings: a warning"
