#!/bin/bash
# The program and the library are hardened as cmake/compiler.cmake says, and no binary of the build folder, nor the library in
# the wheel, searches the current folder for libraries. Usage: hardened.sh CLOOB LIBRARY SOURCE; 77: skipped.
set -u
command -v readelf > /dev/null || { echo "skipped: no readelf"; exit 77; }
bad=0
fail() { echo "FAIL: $*"; bad=1; }
for f in "$1" "$2"; do
    readelf -W -l "$f" | grep -q GNU_RELRO || fail "$f: no RELRO"
    readelf -W -d "$f" | grep -qE 'BIND_NOW|FLAGS.*NOW' || fail "$f: symbols are bound late"
    readelf -W -l "$f" | grep GNU_STACK | grep -q RWE && fail "$f: the stack is executable"
    readelf -W --dyn-syms "$f" | grep -q __stack_chk_fail || fail "$f: no stack protector"
    readelf -W --dyn-syms "$f" | grep -qE '__(memcpy|snprintf|printf|fprintf|vsnprintf|read|memset)_chk' || fail "$f: no FORTIFY_SOURCE"
done
readelf -W -h "$1" | grep -q 'Type:.*DYN' || fail "$1: not position-independent"
case $(uname -m) in # the mark itself is lost when one object of the C library lacks it; landing pads tell
x86_64) if command -v objdump > /dev/null; then
    objdump -d --disassemble=main "$1" | grep -q endbr64 || fail "$1: no CET landing pads"
fi ;;
esac

# An empty or relative element of RUNPATH is the current folder: whoever can write there runs code in the program.
check_runpath()
{
    local element
    readelf -W -d "$1" 2> /dev/null | sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]$/\2/p' | tr ':' '\n' | while IFS= read -r element; do
        case $element in
        /* | '$ORIGIN'*) ;;
        *) echo "FAIL: $1: RUNPATH has the element '$element', which the loader takes from the current folder" ;;
        esac
    done
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
build=$(dirname "$1")
files=0
while IFS= read -r f; do
    [ "$(head -c 4 "$f" | tr -d '\0')" = $'\177ELF' ] || continue
    files=$((files + 1))
    check_runpath "$f"
done > "$work/found" < <(find "$build" -type f \( -perm -100 -o -name '*.so*' \) ! -path '*/CMakeFiles/*')
[ $files -ge 2 ] || fail "$build: no programs to check"
if command -v python3 > /dev/null; then
    (cd "$work" && CLOOB_BUILD=$build python3 "$3/python/builder.py" . > /dev/null && python3 -m zipfile -e ./*.whl wheel) ||
        fail "the wheel could not be made"
    check_runpath "$work/wheel/cloob/libcloob.so" >> "$work/found"
fi
[ -s "$work/found" ] && { cat "$work/found"; bad=1; }

# The same by example: a library in the current folder that is not one, which a program that looked there would stop on.
for lib in $(readelf -W -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'); do : > "$work/$lib"; done
(cd "$work" && "$1" --version > /dev/null 2>&1) || fail "$1 --version loads libraries from the current folder"
exit $bad
