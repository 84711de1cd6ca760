#!/usr/bin/env bash
# Two nodes of two ranks, pretended on one machine: tensor ranks stay inside a node where the layout is left open, stages go across,
# each node reads the model for itself, and the bytes are those of one rank.
source "$(dirname "$0")/tiny.sh"
make_input 12 "$WORK/input.jsonl"
export LOCKSTEP_NODE_RANKS=2

# lay NP LAYOUT NODES OPTIONS...: runs over NP ranks; LAYOUT is what run.json says, NODES how many of them read weights.
lay() {
  local np=$1 layout=$2 nodes=$3; shift 3
  rm -rf "$out"
  lockstep "$np" --input "$WORK/input.jsonl" --output "$out" --threads 1 "$@"
  expect_status 20
  local got; got=$(python3 -c 'import json, sys
layout = json.load(open(sys.argv[1]))["layout"]; print(*(f"{way} {layout[way]}" for way in ("tp", "pp", "dp")))' "$out/run.json")
  echo "$np ranks $*: $got"
  [ "$got" = "$layout" ] || die "$np ranks $*: layout $got, expected $layout"
  [ ! -e "$WORK/reference" ] || same_as "$WORK/reference" "$np ranks $*: the files differ"
  [ "$(grep -ac "this node read" "$log")" -eq "$nodes" ] || die "$np ranks $*: not $nodes nodes"
}

lay 1 "tp 1 pp 1 dp 1" 1
cp -r "$out" "$WORK/reference"
lay 4 "tp 2 pp 2 dp 1" 2 --dp 1
! grep -aq "spans nodes" "$log" || die "--dp 1: nobody spans nodes"
lay 4 "tp 2 pp 1 dp 2" 2 --dp 2
lay 4 "tp 1 pp 1 dp 4" 2
lay 4 "tp 4 pp 1 dp 1" 2 --tp 4
grep -aq "warning: --tp 4 spans nodes" "$log" || die "--tp 4: no warning"
LOCKSTEP_NODE_RANKS=4 lay 4 "tp 4 pp 1 dp 1" 1 --dp 1
