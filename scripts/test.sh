#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests: the linters, the fuzz targets' short slices, and every
# ctest test of the default preset, the Python ones and the short slices of robustness and soak tests among them.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -eq 0 ] || die "unexpected argument '$1': this script takes none (for some tests: ctest --preset default -R NAME)"

"$ROOT/scripts/install-deps.sh" --tests
make_venv "$DEPS/venv-tests" "$ROOT/scripts/requirements-tests.txt"
"$ROOT/scripts/get-smollm2.sh"
failed=()
"$ROOT/scripts/lint.sh" || failed+=(lint)
build default -DESPALIER_BUILD_TESTS=ON -DESPALIER_BUILD_BENCH=ON
build fuzz fuzzers

cd "$ROOT"
ctest --preset fuzz || failed+=(fuzz)
[ ${#failed[@]} -eq 0 ] || say "FAILED before the last part: ${failed[*]}"
ctest --preset default --parallel "$(nproc)" || failed+=(default)
[ ${#failed[@]} -eq 0 ]
