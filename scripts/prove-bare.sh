#!/usr/bin/env bash
# Proves that no install step is missing: builds an image from a bare Debian 12 that holds the last commit and nothing else, and
# runs quickstart.sh and test.sh in it. An hour on two cores, 15 GB of disk; the image is deleted.
# CONTAINERS_SH names the script that stands in for Docker where there is none (default: ../shared/tools/containers.sh);
# where that is missing too, `docker` is used. ESPALIER_ORACLES: as for the tests. PROVE_CCACHE names a folder of ccache to
# mount (podman alone), which shortens it to half; a header that no package brought is missed all the same.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -eq 0 ] || die "unexpected argument '$1': this script takes none"

oracles=${ESPALIER_ORACLES:-$ROOT/../shared/oracles}
[ -d "$oracles" ] || die "the tests' oracles are not in $oracles: name their folder with ESPALIER_ORACLES"
[ -z "$(git -C "$ROOT" status --porcelain)" ] || say "what is not committed stays out"

use_containers

image=espalier-prove-bare
context=$(mktemp -d)
trap 'rm -rf "$context"; "$ENGINE" rmi --force "$image" >/dev/null 2>&1 || true' EXIT
mkdir -p "$context/espalier" "$context/shared"
git -C "$ROOT" archive HEAD | tar -x -C "$context/espalier"
cp -r "$oracles" "$context/shared/oracles"
cat >"$context/Dockerfile" <<'DOCKERFILE'
FROM debian:bookworm-slim
ENV CCACHE_DIR=/ccache
COPY . /src
RUN /src/espalier/scripts/quickstart.sh
RUN /src/espalier/scripts/test.sh
DOCKERFILE
volumes=()
[ -z "${PROVE_CCACHE:-}" ] || volumes=(--volume "$PROVE_CCACHE:/ccache")
"$ENGINE" build --no-cache "${volumes[@]}" --tag "$image" "$context"
say "both commands passed in a bare Debian 12"
