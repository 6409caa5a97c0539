#!/usr/bin/env bash
# Proves on a machine with NVIDIA GPUs what cannot be proved without: builds the preset cuda, runs its tests, which may not skip
# there, prunes SmolLM2-135M on GPUs into the same bytes as on the CPU, and measures the kernels. NCCL wants a GPU for each
# rank: with one GPU alone its tests of several ranks skip, which is said, and the two workers of the run share it over Gloo.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -eq 0 ] || die "unexpected argument '$1': this script takes none"

gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ') || true
[ "$gpus" -gt 0 ] || die "nvidia-smi lists no GPU here: this proof needs one with its driver, better two"
quietly "$ROOT/scripts/install-deps.sh" --tests --device cuda || die "not all is there that the build needs: see above"
"$ROOT/scripts/get-smollm2.sh"
build cuda -DESPALIER_BUILD_TESTS=ON -DESPALIER_BUILD_BENCH=ON
work=$ROOT/build/prove-gpu
mkdir -p "$work"

say "tests on $gpus GPUs"
cd "$ROOT"
quietly ctest --preset cuda --label-regex cuda --verbose --output-log "$work/tests.log" || die "tests failed: see above"
skipped=$(grep -o '\[  SKIPPED \] .* ms)$' "$work/tests.log" || true)
if [ "$gpus" -eq 1 ] && [ -n "$skipped" ]; then
  say "tests of several ranks over NCCL skipped: they want two GPUs"
  skipped=$(grep -v 'NcclTest\.' <<<"$skipped" || true)
fi
[ -z "$skipped" ] || die "tests skipped though there are GPUs: $skipped"

prune() { # prune DEVICE: into $work/DEVICE
  say "espalier run prune-50.yaml with 2 workers on $1"
  quietly "$ROOT/build/cuda/bin/espalier" run "$ROOT/examples/smollm2/prune-50.yaml" --model "$SMOLLM2" \
    --output "$work/$1" --workers 2 --device "$1" --overwrite || die "the run on $1 failed: see above"
}
prune cpu
if [ "$gpus" -gt 1 ]; then prune cuda; else ESPALIER_BACKEND=gloo prune cuda; fi
# The manifest also says when and where; masks and tensors lie in files of their own.
diff --recursive --brief --exclude espalier.json "$work/cpu" "$work/cuda" >&2 || die "the outputs differ"
say "both wrote the same bytes"

"$ROOT/build/cuda/bench/gpu_passes"
