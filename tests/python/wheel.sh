#!/bin/sh
# The wheel of a build folder works without the system's copies of what it needs: wheel.sh BUILD SOURCE. 77: skipped.
#
# Unpacks it, checks that two builds of it are equal, that every library outside glibc and libstdc++ comes from inside, and that the
# program and the package run. Slow for a reason: 100 MB are compressed twice.
build=$1 source=$2
for python in ${CLOOB_PYTHON:-python3 /usr/bin/python3}; do
    "$python" -c 'import sys; assert sys.version_info >= (3, 9); import numpy' 2>/dev/null && break
    python=
done
[ -n "$python" ] || { echo "skipped: no Python 3.9 with numpy"; exit 77; }
for tool in patchelf objdump ldd dpkg; do
    command -v $tool >/dev/null || { echo "skipped: no $tool (make deps installs it)"; exit 77; }
done
fail() { echo "FAIL: $*"; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
unset CLOOB_LIBRARY PYTHONPATH LD_LIBRARY_PATH

for n in 1 2; do
    CLOOB_BUILD=$build SOURCE_DATE_EPOCH=1700000000 "$python" "$source/python/builder.py" "$work/$n" >/dev/null || fail "no wheel"
done
cmp "$work"/1/*.whl "$work"/2/*.whl || fail "two builds of the wheel differ"
# The limit holds without CUDA kernels, which are 7 MB in the library and in the program (8.0, 9.0 and PTX).
readelf -SW "$build/libcloob.so" | grep -q nv_fatbin || [ "$(stat -c %s "$work"/1/*.whl)" -lt 45000000 ] || fail "the wheel has 45 MB or more"

"$python" -m zipfile -e "$work"/1/*.whl "$work/site" || fail "not a zip file"
chmod +x "$work/site/cloob/bin/cloob"
outside=$(ldd "$work/site/cloob/bin/cloob" "$work/site/cloob/libcloob.so" "$work"/site/cloob/libs/*.so* | awk '/=> \//{ print $3 }' | sort -u |
    grep -v "^$work" | grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libgcc_s|libstdc\+\+)\.so\.[0-9]+$')
[ -z "$outside" ] || fail "from the system:" $outside
"$work/site/cloob/bin/cloob" --version | grep -q "^cloob " || fail "the program does not start"
LD_DEBUG=libs "$work/site/cloob/bin/cloob" bench loss --n 256 --dim 64 --device cpu 2>&1 | grep "calling init" | grep -E 'libgomp' |
    grep -v "$work" && fail "a library that is opened on first use comes from the system"
cd "$work" && PYTHONPATH=$work/site "$python" -c '
import numpy, sys
import cloob
assert cloob.library_path().startswith(sys.argv[1]), cloob.library_path()
cloob.objective(numpy.eye(64), numpy.eye(64), device="cpu")
' "$work/site" || fail "the package does not work"
info=$(echo "$work"/site/cloob-*.dist-info)
[ -s "$work/site/cloob/libs/libcurl-gnutls.so.4" ] && grep -q "BEGIN CERTIFICATE" "$work/site/cloob/libs/ca-certificates.crt" ||
    fail "nothing to download models with"
[ -s "$info/sboms/cloob.cdx.json" ] && [ -s "$info/licenses/LICENSE" ] || fail "no licence or list of parts"
for library in "$work"/site/cloob/libs/*; do
    [ -f "$library" ] || fail "no libraries inside"
done
"$python" - "$info" <<'END' || fail "the list of parts is incomplete"
import json, pathlib, sys
info = pathlib.Path(sys.argv[1])
parts = json.loads((info / "sboms/cloob.cdx.json").read_text())["components"]
assert len(parts) > 10 and all((info / "licenses" / p["name"] / "copyright").exists() for p in parts)
END
echo "passed"
