#!/usr/bin/env bash
# build.sh [PRESET [TARGET...]]: installs what is missing and builds the preset (default: cpu, or cuda where nvcc is found), all of it
# or the targets named, in build/PRESET.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs/install_deps.sh
default=cpu; if command -v nvcc >/dev/null; then default=cuda; fi
preset=${1:-$default}
cmake --preset "$preset" >/dev/null
if grep -q '^NCCL_LIBRARY:.*NOTFOUND$\|^NCCL_INCLUDE_DIR:.*NOTFOUND$' "build/$preset/CMakeCache.txt"; then
  if jobs/install_nccl.sh; then cmake --preset "$preset" >/dev/null; else echo "NCCL could not be brought: built without it"; fi
fi
cmake --build --preset "$preset" ${2:+--target "${@:2}"}
