#!/usr/bin/env bash
# Runs clang-tidy, and clang's thread-safety analysis with it, over our C++ files or over those given; prints its findings
# and exits with 1 when there are any.
#   scripts/tidy.sh [FILE.cc...]
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

build tidy espalier_grpc espalier_records # the generated headers
cd "$ROOT"
if [ $# -gt 0 ]; then files=("$@"); else mapfile -t files < <(git ls-files 'proto/*.cc' 'server/*.cc' 'worker/*.cc' 'client/*.cc'); fi

# One command line a file: what is compiled a second time with fault points would be read twice.
database=$ROOT/build/tidy/once
mkdir -p "$database"
python3 - "$ROOT/build/tidy/compile_commands.json" "$database/compile_commands.json" <<'END'
import json, sys
once = {}
for command in json.load(open(sys.argv[1])):
    once.setdefault(command["file"], command)
json.dump(list(once.values()), open(sys.argv[2], "w"))
END
printf "%s\0" "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p "$database" \
  2> >(grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -' >&2)
