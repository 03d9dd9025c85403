#!/bin/bash
# Help that helps: every command and every benchmark explains itself on stdout, with an example. Usage: help.sh CLOOB
set -u
cloob=$1 bad=0
err=$(mktemp)
trap 'rm -f "$err"' EXIT
fail() { echo "FAIL: $*"; bad=1; }

# explains WORD...: `help WORD...` and `WORD... --help` say the same, well, with `cloob WORD...` in an example.
explains()
{
    local text
    text=$("$cloob" help "$@" 2> "$err") || fail "help $* ends with $?"
    [ -s "$err" ] && fail "help $* writes on stderr: $(cat "$err")"
    [ "$text" = "$("$cloob" "$@" --help)" ] || fail "help $* and $* --help differ"
    grep -q "^  cloob $*" <<< "$text" || fail "help $* has no example"
    grep -q -- "--json" <<< "$text" || fail "help $* does not name --json"
}

commands=$("$cloob" help | awk '/^  / { print $1 }')
for c in $commands; do explains "$c"; done
for b in $("$cloob" help bench | awk '/^  bench / { print $2 }'); do explains bench "$b"; done
[ "$(wc -w <<< "$commands")" -ge 18 ] || fail "commands are missing: $commands"

"$cloob" > /dev/null 2>&1; [ $? = 2 ] || fail "no command is no wrong usage"
"$cloob" help nosuch > /dev/null 2> "$err"; [ $? = 2 ] || fail "help nosuch is no wrong usage"
grep -q nosuch "$err" || fail "help nosuch does not name it"
"$cloob" --version | grep -q "^cloob [0-9]" || fail "--version"
# Words that people try first.
"$cloob" version | grep -q '^cloob [0-9]' || fail "cloob version"
"$cloob" -V | grep -q '^cloob [0-9]' || fail "cloob -V"
"$cloob" trian 2>&1 | grep -q 'did you mean train' || fail "a mistyped command has no suggestion"
"$cloob" doctor --json --quiet | grep -q '"ok": true' || fail "cloob doctor"
exit $bad
