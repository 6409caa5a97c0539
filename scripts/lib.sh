# Shared by the scripts of this folder; sourced, not run. Expects `set -euo pipefail`.
# shellcheck shell=bash

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
DEPS=${ESPALIER_DEPS:-$ROOT/.deps}
case $DEPS in /*) ;; *) DEPS=$PWD/$DEPS ;; esac # one meaning from every folder
export ESPALIER_DEPS=$DEPS
# shellcheck disable=SC2034  # of the scripts that source this
SMOLLM2=$DEPS/models/SmolLM2-135M-Instruct

export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
# Paths below the checkout are hashed as relative ones, so that a second clone finds what the first compiled.
export CCACHE_BASEDIR=${CCACHE_BASEDIR-$ROOT} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR-1}
export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-$DEPS}/.cache}/ccache}
# A precompiled header made again is no reason to compile again what includes it.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}

say() { printf '%s\n' "${0##*/}: $*"; }
die() {
  printf '%s\n' "${0##*/}: error: $*" >&2
  exit 1
}

# as_root COMMAND...: runs it as root, through sudo if need be.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -- "$@"; fi
}

# quietly COMMAND...: shows its output only when it fails.
quietly() {
  local log rc=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || rc=$?
  [ "$rc" -eq 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$rc"
}

# make_venv DIR REQUIREMENTS: a virtual environment with the pinned packages of the file; does nothing when it was made from
# the same file by the same interpreter.
make_venv() {
  local dir=$1 requirements=$2 stamp
  stamp=$({ python3 --version && cat "$requirements"; } | sha256sum)
  [ "$(cat "$dir/.stamp" 2>/dev/null || true)" != "$stamp" ] || return 0
  say "making the virtual environment $dir"
  rm -rf "$dir"
  quietly python3 -m venv "$dir" || die "cannot make the virtual environment $dir: see above"
  quietly "$dir/bin/pip" install --no-input --disable-pip-version-check -r "$requirements" ||
    die "cannot install the packages of $requirements: check the connection to the Python package index and run this again"
  printf '%s\n' "$stamp" >"$dir/.stamp"
}

# build PRESET [-DOPTION=VALUE...] [TARGET...]: configures the preset and builds the targets, or all.
build() {
  local preset=$1 options=() targets=()
  shift
  while [ $# -gt 0 ]; do
    case $1 in -D*) options+=("$1") ;; *) targets+=("$1") ;; esac
    shift
  done
  [ ${#targets[@]} -eq 0 ] || targets=(--target "${targets[@]}")
  say "building preset $preset in $ROOT/build/$preset"
  quietly cmake -S "$ROOT" --preset "$preset" -DESPALIER_DEPS="$DEPS" "${options[@]}" ||
    die "cmake cannot configure preset $preset: see above"
  cmake --build "$ROOT/build/$preset" --parallel "$(nproc)" "${targets[@]}" ||
    die "preset $preset does not build: see above"
}

# use_containers: sets ENGINE and COMPOSE to the commands of Docker, or of what stands in for it where there is none: the
# script that CONTAINERS_SH names (default: ../shared/tools/containers.sh). COMPOSE may be set already.
use_containers() {
  local containers=${CONTAINERS_SH:-$ROOT/../shared/tools/containers.sh}
  if [ -x "$containers" ]; then
    quietly "$containers" up || die "$containers cannot start: see above"
    eval "$("$containers" env)"
    ENGINE=podman COMPOSE=${COMPOSE:-docker-compose}
  else
    ENGINE=docker COMPOSE=${COMPOSE:-docker compose}
  fi
  command -v "$ENGINE" >/dev/null || die "no $ENGINE here: install it, or name a stand-in with CONTAINERS_SH"
  export ENGINE COMPOSE
}
