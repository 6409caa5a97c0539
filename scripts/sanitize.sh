#!/usr/bin/env bash
# Builds and runs the tests under the sanitizers: scripts/sanitize.sh [asan] [tsan]; both when none is named.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -gt 0 ] || set -- asan tsan
for preset in "$@"; do
  case $preset in asan | tsan) ;; *) die "unknown sanitizer '$preset': asan or tsan" ;; esac
done

"$ROOT/scripts/install-deps.sh" --tests
for preset in "$@"; do
  build "$preset"
  (cd "$ROOT" && ctest --preset "$preset")
done
