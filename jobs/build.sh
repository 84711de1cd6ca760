#!/usr/bin/env bash
# build.sh [PRESET [TARGET...]]: installs what is missing and builds the preset (default: cpu, or cuda where nvcc is found), all of it
# or the targets named, in build/PRESET.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs/install_deps.sh
default=cpu; if command -v nvcc >/dev/null; then default=cuda; fi
preset=${1:-$default}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" ${2:+--target "${@:2}"}
