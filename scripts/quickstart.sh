#!/usr/bin/env bash
# From a fresh checkout to a pruned model: installs what is missing, builds, obtains SmolLM2-135M and prunes half of its linear
# weights with two workers, checks the output in three ways and ends with its report.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -eq 0 ] || die "unexpected argument '$1': this script takes none"

"$ROOT/scripts/install-deps.sh"
# The libraries of tests and benchmarks need not be here.
build default -DESPALIER_BUILD_TESTS=OFF -DESPALIER_BUILD_BENCH=OFF espalier espalier-coordinator espalier-worker
"$ROOT/scripts/get-smollm2.sh"

output=$ROOT/build/quickstart/smollm2-50
espalier=$ROOT/build/default/bin/espalier
mkdir -p "${output%/*}"
say "espalier run prune-50.yaml with 2 workers"
"$espalier" run "$ROOT/examples/smollm2/prune-50.yaml" --model "$SMOLLM2" --output "$output" --workers 2 --overwrite

say "espalier verify"
"$espalier" verify "$output"
say "recount of the saved files in Python"
"$espalier" inspect "$output" --json >"$output.json"
"$DEPS/venv-example/bin/python" "$ROOT/examples/smollm2/recount.py" "$output" --report "$output.json"
say "espalier inspect $output"
"$espalier" inspect "$output"
