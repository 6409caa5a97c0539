#!/usr/bin/env bash
# Builds the Debian packages espalier (coordinator and command) and espalier-worker into build/package, or into the folder given:
#   scripts/package.sh [FOLDER]
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -le 1 ] || die "one folder at most: scripts/package.sh [FOLDER]"

"$ROOT/scripts/install-deps.sh" --package
build package espalier espalier-coordinator espalier-worker
say "packing"
cd "$ROOT/build/package"
rm -f ./*.deb
quietly cpack --config CPackConfig.cmake -D CPACK_THREADS=0
[ $# -eq 0 ] || { mkdir -p "$1" && mv ./*.deb "$1"; }
