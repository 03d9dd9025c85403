#!/bin/bash
# Builds the Debian packages, the tarball and the wheel twice, each in a folder of its own name; hashes must be equal:
# reproducible.sh [WORK].
# Everything is compiled four times; with ccache a wrong hit could hide a difference between compilations, not one between packages.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${1:-$PWD/build-reproducible}
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} # of tarball and wheel; the packages have their changelog's
hashes() { (cd "$1" && sha256sum ./*.deb ./*.tar.xz ./*.whl); }
for run in one two; do
    CLOOB_DEB_WORK=$work/deb-$run packaging/build-deb.sh "$work/$run" >/dev/null
    make -s installed BUILD="$work/tree-$run" CMAKE_FLAGS=-DCLOOB_WITH_CUDA=OFF >/dev/null
    packaging/build-tarball.sh "$work/tree-$run" "$work/$run" >/dev/null
    CLOOB_BUILD=$work/tree-$run python3 python/builder.py "$work/$run" >/dev/null
done
hashes "$work/one"
[ "$(hashes "$work/one")" = "$(hashes "$work/two")" ] || { echo "FAIL: the second build differs:"; hashes "$work/two"; exit 1; }
echo "two builds, equal hashes"
