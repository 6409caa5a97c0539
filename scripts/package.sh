#!/usr/bin/env bash
# Builds the Debian packages espalier (coordinator and command) and espalier-worker into build/package, or into the folder given:
#   scripts/package.sh [--device cpu|cuda] [FOLDER]
# With --device cuda the worker's package is espalier-worker-cuda, for NVIDIA GPUs, and the folder is build/package-cuda.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
device=cpu
if [ "${1:-}" = --device ]; then
  device=${2:-}
  shift $(($# < 2 ? $# : 2))
fi
case $device in cpu) preset=package ;; cuda) preset=package-cuda ;; *) die "--device is cpu or cuda, not '$device'" ;; esac
[ $# -le 1 ] || die "one folder at most: scripts/package.sh [--device cpu|cuda] [FOLDER]"

"$ROOT/scripts/install-deps.sh" --package --device "$device"
build "$preset" espalier espalier-coordinator espalier-worker
say "packing"
cd "$ROOT/build/$preset"
rm -f ./*.deb
quietly cpack --config CPackConfig.cmake -D CPACK_THREADS=0
[ $# -eq 0 ] || { mkdir -p "$1" && mv ./*.deb "$1"; }
