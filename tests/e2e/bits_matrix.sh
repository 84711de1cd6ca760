#!/usr/bin/env bash
# bits_matrix.sh MODEL [OPTIONS...]: one input under many layouts, budgets, caches, threads, orders and deaths; see bits_matrix.py.
MODEL=$1; shift
source "$(dirname "$0")/lib.sh"
export MODEL
exec python3 "$(dirname "$0")/bits_matrix.py" "$@"
