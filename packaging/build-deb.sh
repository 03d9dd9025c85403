#!/bin/sh
# Builds the Debian packages of the committed tree: build-deb.sh [OUT]; OUT is dist by default. The tree is compiled in a folder
# whose name and time stamps do not depend on the machine, so that two builds give the same bytes (packaging/reproducible.sh).
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$source/dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=${CLOOB_DEB_WORK:-$source/build-deb}
tree=$work/cloob
rm -rf "$work"
mkdir -p "$tree"
(cd "$source" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$tree"
cp -r "$source/packaging/debian" "$tree/debian"
cd "$tree"
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -S Timestamp)
export SOURCE_DATE_EPOCH DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-nocheck parallel=$(nproc)} noautodbgsym"
dpkg-buildpackage -b -us -uc -d >"$work/log" 2>&1 || { tail -40 "$work/log"; exit 1; }
cp "$work"/*.deb "$out/"
rm -rf "$work"
(cd "$out" && ls -l ./*.deb)
