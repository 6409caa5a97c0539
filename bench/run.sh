#!/usr/bin/env bash
# Runs the benchmarks of the table in README.md, or those named, and prints for each question: ratio, target, PASS or FAIL.
# Both sides of a ratio are measured in the same run. Never fails by its figures.
#   bench/run.sh [B1 B4 ...]
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/../scripts/lib.sh"

"$ROOT/scripts/install-deps.sh" --tests
"$ROOT/scripts/get-smollm2.sh"
build default -DESPALIER_BUILD_BENCH=ON >/dev/null
programs=$ROOT/build/default/bench
smol=$SMOLLM2
big=$ROOT/build/bench/llama-1.1b
[ -e "$big/model.safetensors" ] || "$programs/make_llama" "$big" >/dev/null

wanted=" ${*:-B1 B2 B3 B4 B5 B6 B7 B8 B12} "
want() { for name in "$@"; do case $wanted in *" $name "*) return 0 ;; esac done; return 1; }
# Another row of the same program is not asked for; its lines are left out.
only() { local line; while IFS= read -r line; do case $wanted in *" ${line%% *} "*) printf '%s\n' "$line" ;; esac done; }

printf '%s, %s, %s\n' "$(date -u +%F)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc) cores"
! want B1 || taskset -c 0 "$programs/b1_apply" | only
! want B2 || taskset -c 0 "$programs/b2_count" | only
! want B3 || taskset -c 0 "$programs/b3_select" "$smol" | only
! want B4 || for model in "$smol" "$big"; do "$programs/b4_select_ranks" "$model" | only; done
! want B5 B6 || for model in "$smol" "$big"; do "$programs/b5_report" "$model" | only; done
! want B7 || for model in "$smol" "$big"; do "$programs/b7_load" "$model" | only; done
! want B8 || for model in "$smol" "$big"; do "$programs/b8_save" "$model" | only; done
! want B12 || python3 "$ROOT/bench/b12_cold_start.py" "$ROOT/build/default/bin" "$smol" "$ROOT/examples/smollm2/prune-50.yaml"
