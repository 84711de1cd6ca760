#!/usr/bin/env bash
# Installs what is missing and builds the preset named (default: cpu, or cuda where nvcc is found) in build/PRESET.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs/install_deps.sh
default=cpu; if command -v nvcc >/dev/null; then default=cuda; fi
preset=${1:-$default}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
