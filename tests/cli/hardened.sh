#!/bin/bash
# The program and the library are hardened as cmake/compiler.cmake says. Usage: hardened.sh CLOOB LIBRARY; 77: skipped.
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
exit $bad
