# Shared by the scripts of this folder; sourced, not run. Expects `set -euo pipefail`.
# shellcheck shell=bash

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
DEPS=${ESPALIER_DEPS:-$ROOT/.deps}
case $DEPS in /*) ;; *) DEPS=$PWD/$DEPS ;; esac # one meaning from every folder
export ESPALIER_DEPS=$DEPS

say() { printf '%s\n' "${0##*/}: $*"; }
die() {
  printf '%s\n' "${0##*/}: error: $*" >&2
  exit 1
}

# as_root COMMAND...: runs it as root, through sudo if need be.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    die "root is needed for '$*' and sudo is not installed: run this script as root"
  fi
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

# make_venv DIR REQUIREMENTS: a virtual environment that holds exactly the pinned packages of the file; does nothing when
# it was made from the same file by the same interpreter.
make_venv() {
  local dir=$1 requirements=$2 stamp
  stamp=$({ python3 --version; cat "$requirements"; } | sha256sum)
  [ "$(cat "$dir/.stamp" 2>/dev/null || true)" != "$stamp" ] || return 0
  say "making the virtual environment $dir"
  rm -rf "$dir"
  quietly python3 -m venv "$dir" || die "cannot make the virtual environment $dir (is python3-venv installed?)"
  quietly "$dir/bin/pip" install --no-input --disable-pip-version-check -r "$requirements" ||
    die "cannot install the packages of $requirements: check the connection to the Python package index and run this again"
  printf '%s\n' "$stamp" >"$dir/.stamp"
}

# configure_build DIR_HELPERS: environment of every build here.
setup_ccache() {
  export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-$DEPS}/.cache}/ccache}
  # A precompiled header's time stamp is no reason to compile again.
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}
}
