#!/usr/bin/env bash
# The rules of resuming, one named check each: resume_rules.py.
source "$(dirname "$0")/tiny.sh"
exec python3 "$(dirname "$0")/resume_rules.py" "$@"
