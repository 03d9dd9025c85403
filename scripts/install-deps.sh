#!/bin/sh
# Installs what the build needs from Debian's packages, if anything is missing. Says what it does, and uses
# sudo only when it is not root. Without a package manager or permission the build goes on with what is there.
set -eu

needed="build-essential cmake ninja-build pkg-config"
optional="libdnnl-dev libopenblas-dev liblapacke-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libcairo2-dev
libutf8proc-dev zlib1g-dev
libopenmpi-dev openmpi-bin libjs-chart.js"

command -v dpkg-query >/dev/null 2>&1 || exit 0
missing=""
for package in $needed $optional; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1; then
        as_root="sudo"
    else
        echo "cloob: not root and no sudo; going on without:$missing" >&2
        exit 0
    fi
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "cloob: no apt-get here; going on without:$missing" >&2
    exit 0
fi
echo "cloob: installing with $as_root apt-get:$missing" >&2
$as_root apt-get update -qq || echo "cloob: apt-get update failed; trying with the lists at hand" >&2
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
    echo "cloob: some packages could not be installed; going on with what is there" >&2
