#!/usr/bin/env bash
# Runs clang-tidy over our C++ files, or over those given; prints its findings and exits with 1 when there are any.
#   scripts/tidy.sh [FILE.cc...]
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

database=${ESPALIER_BUILD:-$ROOT/build/default}
[ -f "$database/compile_commands.json" ] || die "no compile_commands.json in $database: run cmake --preset default first"
cd "$ROOT"
if [ $# -gt 0 ]; then files=("$@"); else mapfile -t files < <(git ls-files 'proto/*.cc' 'server/*.cc' 'worker/*.cc' 'client/*.cc'); fi
# The database holds gcc's command lines; what only gcc knows must not make clang fail.
printf "%s\0" "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p "$database" \
  --extra-arg=-Wno-unknown-warning-option 2> >(grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -' >&2)
