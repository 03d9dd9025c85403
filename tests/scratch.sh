# Sourced first, with $1 = CLOOB: sets `cloob`, and makes a scratch folder the working folder until the script ends.
set -u
cloob=$(realpath "$1") bad=0
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-test-XXXXXX")
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
fail() { echo "FAIL: $*"; bad=1; }
