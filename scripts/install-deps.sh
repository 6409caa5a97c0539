#!/usr/bin/env bash
# Installs what Espalier needs to be built and run on Debian 12: packages by apt, LibTorch into .deps/libtorch.
#   scripts/install-deps.sh            to build and run
#   scripts/install-deps.sh --tests    to run the tests as well
#   scripts/install-deps.sh --package  to make Debian packages as well
# Needs root or sudo only when a package is missing. Prints nothing when all is there. ESPALIER_DEPS names another folder
# than .deps.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

tests=no package=no
for argument in "$@"; do
  case $argument in
    --tests) tests=yes ;;
    --package) package=yes ;;
    -h | --help)
      sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "unknown argument '$argument': only --tests and --package are known" ;;
  esac
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

# The wheels are fetched for CPython 3.11 whatever python3 is here, since only their C++ parts are used.
install_libtorch() {
  local wanted=$ROOT/scripts/requirements-libtorch.txt into=$DEPS/libtorch stamp work
  stamp=$(cat "$wanted" "$ROOT/scripts/libtorch-files.txt" | sha256sum)
  [ "$(cat "$into/.stamp" 2>/dev/null || true)" != "$stamp" ] || return 0
  say "fetching LibTorch 2.15.0 (555 MB) into $into"
  mkdir -p "$DEPS"
  work=$(mktemp -d "$DEPS/libtorch.XXXXXX")
  # shellcheck disable=SC2064  # the folder's name as it is now
  trap "rm -rf '$work'" EXIT
  quietly python3 -m pip download --no-input --disable-pip-version-check --no-cache-dir --no-deps --require-hashes \
    --only-binary :all: --python-version 3.11 --implementation cp --abi cp311 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --dest "$work/wheels" -r "$wanted" ||
    die "cannot download the wheels of $wanted, or they are not the pinned ones (see above): check the connection to the" \
      "Python package index and run this again"
  local files=() left_out=() wheel file
  mapfile -t files < <(grep -v '^[#!]' "$ROOT/scripts/libtorch-files.txt")
  mapfile -t left_out < <(sed -n 's/^!//p' "$ROOT/scripts/libtorch-files.txt")
  for wheel in "$work"/wheels/*.whl; do
    # 11: some of the patterns are of another wheel
    unzip -q "$wheel" "${files[@]}" -x "${left_out[@]}" -d "$work/tree" 2>/dev/null || [ $? -eq 11 ] ||
      die "cannot unpack ${wheel##*/} into $work/tree: is the disk full?"
    rm "$wheel"
  done
  for file in torch/lib/libtorch_cpu.so nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13; do
    [ -e "$work/tree/$file" ] || die "the wheels of $wanted hold no $file: do their versions fit each other?"
  done
  printf '%s\n' "$stamp" >"$work/tree/.stamp"
  rm -rf "$into"
  mv "$work/tree" "$into"
  rm -rf "$work"
  trap - EXIT
}

install_packages
install_libtorch
