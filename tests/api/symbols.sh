#!/bin/bash
# The functions of libcloob.so are those of cmake/symbols.txt, each with a version node.
# Usage: symbols.sh LIBRARY SOURCE_DIR [--write]    --write: makes the list anew, after a function was added or removed on purpose
shown=$(nm -D --defined-only "$1" | awk '$2 == "T" { print $3 }' | sort)
list=$2/cmake/symbols.txt
bare=$(grep -v '@@CLOOB_' <<<"$shown")
[ -z "$bare" ] || { echo "FAIL: symbols without a version node:" $bare; exit 1; }
if [ "$3" = --write ]; then sed 's/@@.*//' <<<"$shown" >"$list"; exit; fi
diff <(sed 's/@@.*//' <<<"$shown") "$list" || { echo "FAIL: $1 and cmake/symbols.txt differ ('<': exported, '>': listed); see $0 --write"; exit 1; }
