#!/bin/sh
# Installs what is missing of Debian's packages: install-deps.sh [test] [lint] [coverage] [package] [page] [aarch64].
#
#     (nothing)    what the build needs, and every optional part
#     test         also what the tests need
#     lint         what `make lint` needs
#     coverage     what `make coverage` needs
#     package      what `make deb` and `make tarball` need
#     page         what `make screenshots` and tests/serve/page_check.py need
#     aarch64      what `make aarch64` needs
#
# Prints what it does, and uses sudo only when it is not root. Without a package manager or permission the build continues
# with what is installed.
set -eu

build="build-essential cmake ninja-build pkg-config"
parts="libgomp1 libjpeg62-turbo-dev libpng-dev libwebp-dev libgif-dev libheif-dev libtiff-dev
libcairo2-dev libutf8proc-dev zlib1g-dev libopenmpi-dev openmpi-bin libmicrohttpd-dev libcurl4-openssl-dev"
wanted="$build $parts"
for group in "$@"; do
    case $group in
    test) wanted="$wanted python3 python3-numpy patchelf libcurl3-gnutls ca-certificates" ;;
    lint) wanted="$wanted git python3 clang-format clang-tidy cppcheck" ;;
    coverage) wanted="$wanted python3 python3-numpy gcovr" ;;
    package) wanted="$wanted git dpkg-dev debhelper dh-python fakeroot python3-all lintian patchelf xz-utils libcurl3-gnutls ca-certificates" ;;
    page) wanted="$wanted python3 python3-selenium chromium chromium-driver" ;;
    aarch64) wanted="$wanted gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" ;;
    *) echo "usage: install-deps.sh [test] [lint] [coverage] [package] [page] [aarch64]" >&2; exit 2 ;;
    esac
done

command -v dpkg-query >/dev/null 2>&1 || exit 0
missing=""
for package in $wanted; do
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
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null && exit 0
# One package that this release does not have must not cost the others.
for package in $missing; do
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
        echo "cloob: $package could not be installed; going on without it" >&2
done
