#!/usr/bin/env bash
# Checks form and types: clang-format, ruff, mypy. Prints nothing when all is well. Needs `install-deps.sh --tests`.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_venv "$DEPS/venv-tests" "$ROOT/scripts/requirements-tests.txt"
bin=$DEPS/venv-tests/bin
cd "$ROOT"
rc=0

find proto server worker client tests bench \( -name '*.h' -o -name '*.cc' \) -exec clang-format --dry-run --Werror {} + || rc=1
quietly "$bin/ruff" check . || rc=1
quietly "$bin/ruff" format --check . || rc=1
find examples tests bench client -name '*.py' -exec "$bin/mypy" --no-error-summary --strict --explicit-package-bases \
  --ignore-missing-imports --no-warn-return-any --allow-untyped-calls --allow-untyped-decorators {} + || rc=1
exit $rc
