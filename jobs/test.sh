#!/usr/bin/env bash
# Installs what is missing, builds, runs all tests; with CI=true also the sanitizer build's tests, the fuzzers and the
# format check.
set -euo pipefail
cd "$(dirname "$0")/.."
default=cpu; if command -v nvcc >/dev/null; then default=cuda; fi
jobs/build.sh "$default"
jobs/get_model.sh >/dev/null || echo "no model could be brought: tests that need it are skipped"
if [ "${CI:-}" = true ]; then
  git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' | xargs clang-format --dry-run --Werror
  jobs/build.sh cpu-asan
  ctest --preset cpu-asan
  jobs/fuzz.sh
fi
ctest --preset "$default"
