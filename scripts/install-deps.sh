#!/usr/bin/env bash
# Installs what Espalier needs to be built and run on Debian 12: packages by apt, LibTorch into .deps/libtorch.
#   scripts/install-deps.sh                to build and run
#   scripts/install-deps.sh --tests        to run the tests as well
#   scripts/install-deps.sh --package      to make Debian packages as well
#   scripts/install-deps.sh --device cuda  to build for NVIDIA GPUs: CUDA's LibTorch and nvcc, into .deps/libtorch-cuda
# Needs root or sudo only when a package is missing. Prints nothing when all is there. ESPALIER_DEPS names another folder
# than .deps.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

tests=no package=no device=cpu
while [ $# -gt 0 ]; do
  case $1 in
    --tests) tests=yes ;;
    --package) package=yes ;;
    --device)
      case ${2:-} in cpu | cuda) device=$2 ;; *) die "--device is cpu or cuda, not '${2:-}'" ;; esac
      shift
      ;;
    -h | --help)
      sed -n '2,8s/^# //p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "unknown argument '$1': only --tests, --package and --device are known" ;;
  esac
  shift
done

[ "$(uname -m)" = x86_64 ] ||
  die "this machine is $(uname -m): the pinned LibTorch is for x86_64. Unpack a LibTorch 2.15 for this machine into" \
    "$DEPS/libtorch/torch (include/ and lib/), install the packages listed in ${BASH_SOURCE[0]} and build with cmake"
command -v apt-get >/dev/null ||
  die "no apt-get here: this script knows Debian 12; on another system install the packages listed in ${BASH_SOURCE[0]}"

packages=(
  # tools
  ca-certificates git g++ cmake ninja-build ccache pkg-config unzip python3 python3-venv python3-pip
  # libraries
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libhwy-dev libisal-dev zlib1g-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libpcre2-dev
  libsqlite3-dev libspdlog-dev libgloo-dev prometheus-cpp-dev libcivetweb-dev libsystemd-dev
)
if [ "$tests" = yes ]; then
  packages+=(
    libgtest-dev libgmock-dev libbenchmark-dev
    clang clang-tidy clang-format libclang-rt-14-dev
    zsh prometheus systemd chromium
  )
fi
[ "$package" = no ] || packages+=(dpkg-dev file)

install_packages() {
  local missing=() name options=(-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
  for name in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
    die "these packages are missing and installing them needs root or sudo: ${missing[*]}"
  say "installing ${#missing[@]} packages: ${missing[*]}"
  quietly as_root apt-get -q "${options[@]}" update ||
    die "apt-get update failed: check the connection to the package mirror and /etc/apt/sources.list, and run this again"
  quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "${options[@]}" install --no-install-recommends \
    "${missing[@]}" ||
    die "apt-get could not install: ${missing[*]}. See its messages above; Debian 12 (bookworm) has all of them"
}

# unpack_wheels INTO REQUIREMENTS FILES SIZE EXPECTED...: takes the listed files out of the pinned wheels. The wheels are fetched
# for CPython 3.11 whatever python3 is here, since only their C++ parts are used.
unpack_wheels() {
  local into=$1 wanted=$2 list=$3 size=$4 included stamp work platforms=() version
  shift 4
  included=$(sed -n "s|^-r |$ROOT/scripts/|p" "$wanted")
  stamp=$(cat "$wanted" ${included:+"$included"} "$list" | sha256sum)
  [ "$(cat "$into/.stamp" 2>/dev/null || true)" != "$stamp" ] || return 0
  say "fetching LibTorch 2.15.0 ($size) into $into"
  mkdir -p "$DEPS"
  work=$(mktemp -d "$into.XXXXXX")
  # shellcheck disable=SC2064  # the folder's name as it is now
  trap "rm -rf '$work'" EXIT
  for version in _2_28 _2_27 _2_25 _2_18 _2_17 2014 2010; do platforms+=(--platform "manylinux${version}_x86_64"); done
  quietly python3 -m pip download --no-input --disable-pip-version-check --no-cache-dir --no-deps --require-hashes \
    --only-binary :all: --python-version 3.11 --implementation cp --abi cp311 --abi none "${platforms[@]}" \
    --dest "$work/wheels" -r "$wanted" ||
    die "cannot download the wheels of $wanted, or they are not the pinned ones (see above): check the connection to the" \
      "Python package index and run this again"
  local files=() left_out=() wheel file
  mapfile -t files < <(grep -v '^[#!]' "$list")
  mapfile -t left_out < <(sed -n 's/^!//p' "$list")
  for wheel in "$work"/wheels/*.whl; do
    # 11: some of the patterns are of another wheel
    unzip -q "$wheel" "${files[@]}" -x "${left_out[@]}" -d "$work/tree" 2>/dev/null || [ $? -eq 11 ] ||
      die "cannot unpack ${wheel##*/} into $work/tree: is the disk full?"
    rm "$wheel"
  done
  for file in "$@"; do
    [ -e "$work/tree/$file" ] || die "the wheels of $wanted hold no $file: do their versions fit each other?"
  done
  printf '%s\n' "$stamp" >"$work/tree/.stamp"
  rm -rf "$into"
  mv "$work/tree" "$into"
  rm -rf "$work"
  trap - EXIT
}

install_packages
if [ "$device" = cpu ]; then
  unpack_wheels "$DEPS/libtorch" "$ROOT/scripts/requirements-libtorch.txt" "$ROOT/scripts/libtorch-files.txt" "555 MB" \
    torch/lib/libtorch_cpu.so nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13
else
  unpack_wheels "$DEPS/libtorch-cuda" "$ROOT/scripts/requirements-libtorch-cuda.txt" \
    "$ROOT/scripts/libtorch-cuda-files.txt" "2.6 GB" \
    torch/lib/libtorch_cuda.so nvidia/nccl/lib/libnccl.so.2 nvidia/nccl/include/nccl.h nvidia/cu13/bin/nvcc \
    nvidia/cu13/lib/libcublas.so.13 nvidia/cudnn/lib/libcudnn.so.9
  chmod +x "$DEPS"/libtorch-cuda/nvidia/cu13/bin/* "$DEPS"/libtorch-cuda/nvidia/cu13/nvvm/bin/*
fi
