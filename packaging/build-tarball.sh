#!/bin/bash
# A relocatable tree with the libraries inside: build-tarball.sh [BUILD_DIR] [OUT]. Unpack it anywhere and run bin/cloob; nothing
# is written outside. Needs glibc of the machine it was built on or later. MPI, cairo and libheif are taken from the
# system where they are installed, and so is libcurl.so.4, which gets security updates there; docs/packaging.md says why.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$source/build}" && pwd)
mkdir -p "${2:-$source/dist}"
out=$(cd "${2:-$source/dist}" && pwd)
version=$(sed -n 's/^project(cloob VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct)} LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=cloob-$version-linux-$(uname -m)
tree=$work/$name
cmake --install "$build" --prefix "$tree" --strip >/dev/null
lib=$(dirname "$(find "$tree" -name libcloob.so.0)")
bundled="libgomp.so.1 libtiff.so.6 libmicrohttpd.so.12 libcurl-gnutls.so.4" # loaded on first use
system='^(ld-linux.*|lib(c|m|dl|rt|pthread|mpi|nss.*|resolv)\.so\..*|libcloob.*)$'

declare -A taken=()
known=$(ldconfig -p)
add() { # a library by its SONAME, and what it needs
    [[ $1 =~ $system || -n ${taken[$1]:-} ]] && return
    local from
    from=$(awk -v n="$1" '$1 == n { print $NF; exit }' <<<"$known")
    [ -n "$from" ] || { echo "build-tarball: $1 is not installed; left out" >&2; return; }
    taken[$1]=$from
    cp -L "$from" "$lib/$1"
    chmod 644 "$lib/$1"
    strip --strip-unneeded "$lib/$1"
    patchelf --set-rpath '$ORIGIN' "$lib/$1"
    local package
    package=$(dpkg -S "$(realpath "$from")" 2>/dev/null || dpkg -S "$from" 2>/dev/null || true)
    package=${package%%:*}
    [ -z "$package" ] || { mkdir -p "$tree/licenses" && cp "/usr/share/doc/$package/copyright" "$tree/licenses/$package"; }
    needs "$lib/$1"
}
needs() { for n in $(readelf -W -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'); do add "$n"; done; }

needs "$tree/bin/cloob"
needs "$lib/libcloob.so.0"
for n in $bundled; do add "$n"; done
cat /usr/share/ca-certificates/mozilla/*.crt >"$lib/ca-certificates.crt" # not /etc/ssl/certs, which may have this machine's own
cp /usr/share/doc/ca-certificates/copyright "$tree/licenses/ca-certificates"
cp "$source/LICENSE" "$tree/licenses/cloob"
cp -r "$source/examples" "$tree/examples"
python3 "$source/packaging/sbom.py" "$build" "$tree/bin/cloob" "$lib"/*.so.* >"$tree/cloob.spdx.json"
find "$tree" -exec chmod u=rwX,go=rX {} +
tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" | xz -T1 -6 >"$out/$name.tar.xz"
echo "$out/$name.tar.xz: $(stat -c %s "$out/$name.tar.xz") bytes, $(du -sb "$tree" | cut -f1) unpacked, ${#taken[@]} libraries inside"
