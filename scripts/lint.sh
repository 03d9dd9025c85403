#!/usr/bin/env bash
# Everything `make lint` checks; continues after a finding, so that one run shows all of them: lint.sh [BUILD].
# BUILD is a configured tree (its compile_commands.json is read; nothing is built).
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
jobs=$(nproc)
failed=0

# step NAME COMMAND...: runs it and prints how it ended.
step() {
    local name=$1 start=$SECONDS
    shift
    if "$@"; then echo "lint: $name ok ($((SECONDS - start)) s)"; else
        echo "lint: $name FAILED ($((SECONDS - start)) s)"
        failed=1
    fi
}

format() {
    git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs -P "$jobs" -n 40 clang-format --dry-run -Werror
}

tidy() { # the sources that this build compiles; .clang-tidy lists the checks
    python3 - "$build" <<'PY' | xargs -P "$jobs" -n 8 clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-everything 2>/dev/null
import json, sys
files = {e["file"] for e in json.load(open(sys.argv[1] + "/compile_commands.json"))}
print("\n".join(sorted(f for f in files if ("/src/" in f or "/tools/" in f) and f.endswith(".c"))))
PY
}

check() {
    mkdir -p "$build/cppcheck"
    cppcheck -j "$jobs" --quiet --std=c11 --enable=warning --inline-suppr --suppressions-list=scripts/cppcheck.supp \
        --cppcheck-build-dir="$build/cppcheck" --template='{file}:{line}: {id}: {message}' --error-exitcode=1 \
        -I src -I tools -I include -D_GNU_SOURCE -DCLOOB_VERSION='"0"' src tools
}

version() { # one home, CMakeLists.txt: the change log begins with it, and neither headers nor the package repeat it
    local v
    v=$(sed -nE 's/^project\(cloob VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
    [ "$(sed -nE 's/^## \[([0-9.]+)\].*/\1/p' CHANGELOG.md | head -1)" = "$v" ] || { echo "CHANGELOG.md has no release $v"; return 1; }
    ! git grep -nF "\"$v\"" -- include python src tools
}

step "version" version
step "clang-format" format
step "layers" python3 scripts/lint_layers.py
step "phrases" python3 scripts/lint_phrases.py
step "cppcheck" check
step "clang-tidy" tidy
exit $failed
