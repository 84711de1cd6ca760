#!/usr/bin/env bash
# install_nccl.sh: brings NCCL (header and library; BSD licence) out of NVIDIA's PyPI package for nvcc's CUDA into
# build/nccl-cuMAJOR, where CMake looks, if it isn't there yet. Some 200 MB; only this needs a network.
set -euo pipefail
cd "$(dirname "$0")/.."
version=2.28.9
major=$("${NVCC:-nvcc}" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
target=build/nccl-cu${major:?no release in the words of nvcc}
[ -e "$target/nvidia/nccl/include/nccl.h" ] && exit
download=$(mktemp -d); trap 'rm -rf "$download"' EXIT
echo "bringing NCCL $version for CUDA $major into $target"
python3 -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 30 --no-deps --only-binary :all: \
  --dest "$download" "nvidia-nccl-cu$major==$version"
unzip -q "$download"/nvidia_nccl_*.whl 'nvidia/nccl/include/*' 'nvidia/nccl/lib/*' -d "$download/files"
ln -sf libnccl.so.2 "$download/files/nvidia/nccl/lib/libnccl.so"
mkdir -p build
rm -rf "$target"
mv "$download/files" "$target"
