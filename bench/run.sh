#!/usr/bin/env bash
# Runs the benchmarks of the table in README.md, or those named, and prints for each question: ratio, target, PASS or FAIL.
# Both sides of a ratio are measured in the same run. Never fails by its figures.
#   bench/run.sh [B1 B4 ...]
# The peers' sides of B3, B5, B7 and B8 are measured where PyTorch is: BENCH_PYTHON names an interpreter that has torch and
# numpy (default: python3).
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/../scripts/lib.sh"

"$ROOT/scripts/install-deps.sh" --tests
"$ROOT/scripts/get-smollm2.sh"
build default -DESPALIER_BUILD_BENCH=ON >/dev/null
programs=$ROOT/build/default/bench
smol=$SMOLLM2
big=$ROOT/build/bench/llama-1.1b
[ -e "$big/model.safetensors" ] || "$programs/make_llama" "$big" >/dev/null

wanted=" ${*:-B1 B2 B3 B4 B5 B6 B7 B8 B9 B12 METRICS} "
want() { for name in "$@"; do case $wanted in *" $name "*) return 0 ;; esac done; return 1; }
lines=$(mktemp)
trap 'rm -f "$lines" "$lines.errors"' EXIT
# show MODEL: prints the lines of the rows asked for (a program may have another's) and keeps them for peers.py.
show() {
  local line
  while IFS= read -r line; do
    case $wanted in *" ${line%% *} "*) ;; *) continue ;; esac
    printf '%s\n' "$line"
    printf '%s model=%s\n' "$line" "$1" >>"$lines"
  done
}
# on_models PROGRAM: on two sizes, which shows how the cost grows.
on_models() { for model in "$smol" "$big"; do printf '%s\n' "  on ${model##*/}:" && "$programs/$1" "$model" | show "$model"; done; }

printf '%s, %s, %s\n' "$(date -u +%F)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc) cores"
! want B1 || taskset -c 0 "$programs/b1_apply" | show -
! want B2 || taskset -c 0 "$programs/b2_count" | show -
! want B3 || taskset -c 0 "$programs/b3_select" "$smol" | show "$smol"
! want B4 || on_models b4_select_ranks
! want B5 B6 || on_models b5_report
! want B7 || on_models b7_load
! want B7 || for model in "$smol" "$big"; do
  python3 "$ROOT/bench/b7_memory.py" "$ROOT/build/default/bin" "$model" "$ROOT/examples/smollm2/prune-50.yaml"
done
! want B8 || on_models b8_save
! want B9 || "$programs/b9_fanout"
! want B12 || python3 "$ROOT/bench/b12_cold_start.py" "$ROOT/build/default/bin" "$smol" "$ROOT/examples/smollm2/prune-50.yaml"
! want METRICS ||
  python3 "$ROOT/bench/metrics_cost.py" "$ROOT/build/default/bin" "$smol" "$ROOT/examples/smollm2/prune-50.yaml"

python=${BENCH_PYTHON:-python3}
if ! want B3 B5 B7 B8; then
  :
elif "$python" -c 'import numpy, torch' 2>/dev/null; then
  echo "  against PyTorch $("$python" -c 'import torch; print(torch.__version__)'):"
  # PyTorch warns a lot; what it says matters only when it fails.
  "$python" "$ROOT/bench/peers.py" "$lines" "$smol" "$big" 2>"$lines.errors" || {
    cat "$lines.errors" >&2
    die "the peers could not be measured: see above"
  }
else
  say "the peers' sides of B3, B5, B7 and B8 are left out: no torch and numpy in $python (name one by BENCH_PYTHON)"
fi
