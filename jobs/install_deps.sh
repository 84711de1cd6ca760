#!/usr/bin/env bash
# install_deps.sh [PACKAGE...]: installs what is missing to build, test and run lockstep on Debian 12 or Ubuntu 24.04, and the packages
# named. Needs root or sudo only if something is missing.
set -euo pipefail
packages=(g++ cmake ninja-build ccache pkg-config git python3 python3-pip unzip xz-utils clang-format
  openmpi-bin libopenmpi-dev libhdf5-dev hdf5-tools libcli11-dev libspdlog-dev nlohmann-json3-dev
  libutf8proc-dev libxxhash-dev libgtest-dev libgmock-dev libbenchmark-dev "$@")
# What a test reads timings.h5 with, as users do; without them it is skipped.
if [ "${CI:-}" = true ]; then packages+=(python3-h5py python3-pandas python3-xarray python3-h5netcdf); fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing: ${missing[*]}"
as_root=(); [ "$(id -u)" -eq 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
