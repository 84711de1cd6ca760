#!/usr/bin/env bash
# Field cases, each a small run of the program: cases.py.
source "$(dirname "$0")/lib.sh"
exec python3 "$(dirname "$0")/cases.py" "$@"
