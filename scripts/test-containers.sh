#!/usr/bin/env bash
# Tests of what needs a container engine, which are not part of scripts/test.sh: the images of deploy/docker run as
# docker-compose.yml says, and the Debian packages in a bare Debian 12. Takes as long as a build the first time.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

"$ROOT/scripts/install-deps.sh" --package
make_venv "$DEPS/venv-tests" "$ROOT/scripts/requirements-tests.txt"
build default espalier
use_containers
export ESPALIER_PACKAGES=$ROOT/build/packages
"$ROOT/scripts/package.sh" "$ESPALIER_PACKAGES"
say "building the images"
(cd "$ROOT" && quietly $COMPOSE build) || die "the images do not build: see above"
export ESPALIER_BIN=$ROOT/build/default/bin ESPALIER_SMOLLM2=$SMOLLM2 ESPALIER_PROTO=$ROOT/proto
export ESPALIER_ORACLES=${ESPALIER_ORACLES:-$ROOT/../shared/oracles} PYTHONPATH=$ROOT/tests/e2e PYTHONDONTWRITEBYTECODE=1
"$DEPS/venv-tests/bin/python" -m pytest -q -p no:cacheprovider "$ROOT/tests/containers" "$@"
