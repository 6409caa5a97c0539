#!/usr/bin/env bash
# A cluster in containers, from nothing to nothing: builds the images, starts docker-compose.yml, prunes SmolLM2-135M by a run
# that is submitted through the published port, asks Prometheus for its sparsity, which must be the report's, takes a picture
# of the status page, and removes all containers and volumes. Everything it keeps is in build/demo-cluster.
# Uses Docker with compose, or the script that CONTAINERS_SH names. Needs what scripts/quickstart.sh installs; the picture is
# taken where there is a chromium.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -eq 0 ] || die "unexpected argument '$1': this script takes none"

"$ROOT/scripts/install-deps.sh"
"$ROOT/scripts/get-smollm2.sh"
build default espalier
use_containers

work=$ROOT/build/demo-cluster
rm -rf "$work"
mkdir -p "$work/models"
cp -r "$SMOLLM2" "$work/models/SmolLM2-135M"
# The containers' account must be able to write there: root can give the folder away, anybody else lends them the own account.
if [ "$(id -u)" -eq 0 ]; then
  chown -R 10001:10001 "$work/models"
else
  ESPALIER_UID=$(id -u) ESPALIER_GID=$(id -g)
  export ESPALIER_UID ESPALIER_GID
fi
export ESPALIER_MODELS=$work/models
# Free ports of loopback, so that nothing else is in the way.
export ESPALIER_PORT=0 ESPALIER_METRICS_PORT=0 ESPALIER_PROMETHEUS_PORT=0
compose() { (cd "$ROOT" && $COMPOSE --project-name espalier-demo "$@"); }
published() { compose port "$1" "$2" | sed 's/^0[.]0[.]0[.]0/127.0.0.1/'; }
health() { "$ENGINE" inspect --format '{{.State.Health.Status}}' "$1"; }
# value QUERY: of its first series, to 12 digits (metrics carry 16 of 17); nothing where there is none.
value() {
  python3 - "http://$prometheus/api/v1/query" "$1" <<'PYTHON'
import json, sys, urllib.parse, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(sys.argv[1] + "?" + urllib.parse.urlencode({"query": sys.argv[2]}), timeout=10) as answer:
    results = json.load(answer)["data"]["result"]
print(f"{float(results[0]['value'][1]):.12g}" if results else "")
PYTHON
}
# until_is SECONDS WANTED COMMAND...: asks every second until the command prints what is wanted.
until_is() {
  local patience=$1 wanted=$2 got
  shift 2
  for ((; patience > 0; --patience)); do
    got=$("$@" 2>/dev/null || true)
    [ "$got" != "$wanted" ] || return 0
    sleep 1
  done
  compose logs --tail 30 >&2
  die "'$*' says '$got' and not '$wanted'"
}
finish() {
  compose down --volumes --timeout 20 >"$work/down.log" 2>&1 || cat "$work/down.log" >&2
}
trap finish EXIT

say "building the images"
compose build >"$work/build.log" 2>&1 || { tail -40 "$work/build.log" >&2 && die "the images do not build: see $work/build.log"; }
"$ENGINE" images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep -E '(^|/)espalier'

say "starting coordinator, workers and Prometheus"
compose up --detach >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2 && die "the containers do not start"; }
for container in $(compose ps -q); do until_is 120 healthy health "$container"; done
coordinator=$(published coordinator 4770) pages=$(published coordinator 4771) prometheus=$(published prometheus 9090)
espalier=$ROOT/build/default/bin/espalier
export ESPALIER_COORDINATOR=$coordinator
"$espalier" health
"$espalier" workers

say "submitting examples/smollm2/prune-50.yaml at $coordinator"
run=$("$espalier" submit "$ROOT/examples/smollm2/prune-50.yaml" --model /models/SmolLM2-135M --output /models/SmolLM2-135M-50 \
  --workers 2 --hold --wait)
"$espalier" report "$run" --json >"$work/report.json"
reported=$(python3 -c 'import json,sys; print(format(json.load(open(sys.argv[1]))["params_summary"]["sparsity_percent"] / 100, ".12g"))' "$work/report.json")
say "the report says $reported; asking Prometheus at $prometheus"
until_is 60 "$reported" value "espalier_run_sparsity_ratio{run=\"$run\",kind=\"measured\"}"
until_is 60 3 value 'sum(up)'
say "Prometheus says $(value "espalier_run_sparsity_ratio{run=\"$run\",kind=\"measured\"}") and scrapes $(value 'count(up)') targets, all up"

if command -v chromium >/dev/null; then
  quietly chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-proxy-server --user-data-dir="$work/profile" \
    --window-size=1200,1700 --screenshot="$work/status.png" "http://$pages/?run=$run"
  rm -rf "$work/profile"
  say "the status page is in $work/status.png"
else
  say "no chromium here: the status page of a live run is at /?run=RUN of port 4771"
fi

"$espalier" finish "$run"
"$espalier" watch "$run" >/dev/null
"$espalier" verify "$work/models/SmolLM2-135M-50"
finish
trap - EXIT
left=$("$ENGINE" ps -aq --filter label=com.docker.compose.project=espalier-demo
  "$ENGINE" volume ls -q --filter label=com.docker.compose.project=espalier-demo)
[ -z "$left" ] || die "still there: $left"
say "all containers and volumes are gone"
