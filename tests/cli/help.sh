#!/bin/bash
# Every command and every benchmark has help on stdout, with an example. Usage: help.sh CLOOB
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
    for width in 66 80; do
        wide=$(COLUMNS=$width "$cloob" help "$@" | awk -v w=$width 'length($0) > w')
        [ -z "$wide" ] || fail "help $* is wider than $width columns: $wide"
        COLUMNS=$width "$cloob" help "$@" | awk '!NF { exit bad } gsub(/\[/, "") != gsub(/\]/, "") { bad = 1 }' ||
            fail "help $*: a bracket of the usage is broken at $width columns"
    done
    # A command that continues after a backslash is the one that was meant: the shell reads it as a single line.
    COLUMNS=80 "$cloob" help "$@" | awk 'more && !/^      / { bad = 1 } { more = /\\$/ } END { exit bad }' || fail "help $*: a broken example"
}

commands=$("$cloob" help | awk '/^  / { print $1 }')
for c in $commands; do explains "$c"; done
for group in bench eval; do
    for b in $("$cloob" help $group | awk -v g=$group '$1 == g && /^  / { print $2 }'); do explains $group "$b"; done
done
[ "$(wc -w <<< "$commands")" -ge 17 ] || fail "commands are missing: $commands"

# The longest lists of options: help shows twenty of them and says how to see all; --match finds options by name and description.
for c in train serve sweep; do
    # shellcheck disable=SC2086
    n=$("$cloob" help $c | grep -c '^  --') all=$("$cloob" help $c --all | grep -c '^  --')
    [ "$n" = 20 ] && [ "$all" -gt 30 ] || fail "help $c shows $n options, --all $all"
    # shellcheck disable=SC2086
    "$cloob" help $c | tr '\n' ' ' | grep -q "cloob help $c --all" || fail "help $c does not name --all"
    # shellcheck disable=SC2086
    [ "$("$cloob" help $c --all)" = "$("$cloob" $c --help --all)" ] || fail "help $c --all and $c --help --all differ"
done
"$cloob" help train --match FIT_memory | grep -q '^  --fit-memory' || fail "--match by name"
"$cloob" help train --match 'activations in' | grep -q '^  --grad-checkpointing' || fail "--match by description"
"$cloob" help train --match fit-memory | grep -q -- '--train-data' && fail "--match shows what does not match"
"$cloob" help eval --match lambda | grep -q '^cloob eval probe:' || fail "--match in the parts of a command"
"$cloob" help train --match nosuchword > /dev/null 2> "$err"; [ $? = 1 ] && grep -q nosuchword "$err" || fail "--match without a match"
"$cloob" help train --match > /dev/null 2> "$err"; [ $? = 2 ] || fail "--match without a word"
for c in $commands; do "$cloob" help "$c" --match json | grep -q '^  --json' || fail "help $c --match json"; done

# Former names: the same help on stdout, the new name on stderr, absent from the list of commands.
former() # NAME WORD...: a name and the words that replace it
{
    local name=$1
    shift
    [ "$("$cloob" "$name" --help 2> "$err")" = "$("$cloob" help "$@")" ] || fail "$name --help is not help $*"
    [ "$(wc -l < "$err")" = 1 ] && grep -q "^cloob: $name is now: cloob $1" "$err" || fail "$name --help: $(cat "$err")"
    [ "$("$cloob" help "$name" --all 2> /dev/null)" = "$("$cloob" help "$@" --all)" ] || fail "help $name --all"
    "$cloob" "$name" --nosuch --quiet > /dev/null 2> "$err"; [ $? = 2 ] && ! grep -q 'is now' "$err" || fail "$name --quiet: $(cat "$err")"
    grep -qw "$name" <<< "$commands" && fail "help lists $name"
}
former zeroshot eval zeroshot
former retrieve eval retrieval
former probe eval probe
former analyze eval analysis
former benchmark eval suite
former ablate sweep --by method
former average convert
former preprocess info
"$cloob" average a b c > /dev/null 2> "$err"; [ $? = 2 ] && grep -q -- '--out M is required' "$err" || fail "average without --out: $(cat "$err")"
"$cloob" eval nosuch > /dev/null 2> "$err"; [ $? = 2 ] && grep -q zeroshot "$err" || fail "eval nosuch: $(cat "$err")"
for c in embed "eval zeroshot" "eval suite" classify "search index" "bench step" "bench embed" "bench data" train info; do
    for flag in batch-size batch; do
        # shellcheck disable=SC2086
        "$cloob" $c --$flag 0 > /dev/null 2> "$err"; [ $? = 2 ] && grep -q -- '--batch-size 0: must be' "$err" || fail "$c --$flag: $(cat "$err")"
    done
done

"$cloob" > /dev/null 2>&1; [ $? = 2 ] || fail "no command is no wrong usage"
"$cloob" help nosuch > /dev/null 2> "$err"; [ $? = 2 ] || fail "help nosuch is no wrong usage"
grep -q nosuch "$err" || fail "help nosuch does not name it"
"$cloob" --version | grep -q "^cloob [0-9]" || fail "--version"
# Words that people try first.
"$cloob" version | grep -q '^cloob [0-9]' || fail "cloob version"
"$cloob" -V | grep -q '^cloob [0-9]' || fail "cloob -V"
"$cloob" version --json | grep -q '^{"version": *"[0-9]' || fail "cloob version --json"
for c in version help; do
    "$cloob" help $c | grep -q "^usage: cloob $c" || fail "help $c"
done
"$cloob" trian 2>&1 | grep -q 'did you mean train' || fail "a mistyped command has no suggestion"
"$cloob" eval zeroshto 2>&1 | grep -q 'did you mean zeroshot' || fail "a mistyped subcommand has no suggestion"
"$cloob" bench nonsense 2>&1 | grep -q 'choose from step, embed' || fail "an unknown subcommand has no choices"
"$cloob" train --global-batch 4 2>&1 | grep -q 'did you mean --global-batch-size' || fail "the beginning of a flag has no suggestion"
"$cloob" train --batch_sise=4 2>&1 | grep -q 'did you mean --batch-size' || fail "a mistyped flag with = has no suggestion"
"$cloob" train --x 2>&1 | grep -q 'did you mean' && fail "a flag of one letter has a suggestion"

# A device that does not exist is wrong usage everywhere, also where nothing is computed.
for c in doctor "info RN50" "tokenizer encode --vocab none a" train; do
    # shellcheck disable=SC2086
    "$cloob" $c --device bogus > /dev/null 2> "$err"; [ $? = 2 ] && grep -q -- '--device bogus' "$err" || fail "$c --device bogus: $(cat "$err")"
done
"$cloob" doctor --device cuda:999 > /dev/null 2> "$err"; [ $? = 1 ] || fail "doctor of a missing device"
[ "$(wc -l < "$err")" = 1 ] && grep -q 'self-test' "$err" || fail "doctor says on stderr: $(cat "$err")"
printf 'GGUF\3\0\0\0' > "$err.gguf"; "$cloob" info "$err.gguf" > /dev/null 2> "$err"; [ $? = 1 ] && grep -q 'files of GGUF are not supported' "$err" || fail "info of a GGUF file: $(cat "$err")"; rm -f "$err.gguf"
"$cloob" info RN51 > /dev/null 2> "$err"; [ $? = 1 ] && grep -q 'RN50' "$err" || fail "info RN51: $(cat "$err")"
"$cloob" info ViT-B-32 | grep -v '^config' | awk 'length($0) > 80 { bad = 1 } END { exit bad }' || fail "info MODEL is wider than 80 columns"

"$cloob" doctor > /dev/null 2> "$err" && ! tr '\r' '\n' < "$err" | grep -qv 'checks/s$' || fail "doctor says on stderr: $(cat "$err")"
"$cloob" doctor | sed -n '/^self-test/,$p' | awk 'length($0) > 80 { bad = 1 } END { exit bad }' || fail "doctor's self-test is wider than 80 columns"
facts() { sed -e '/^self-test/,$d' -e 's/[0-9.]* GiB free//' | grep .; } # free memory changes
diff <("$cloob" info device | facts) <("$cloob" doctor --quiet | facts) || fail "cloob info device lists other facts than cloob doctor"
"$cloob" info device --json | grep -q '"parts": {.*"cache"\|"cache".*"parts": {' || fail "cloob info device --json has no facts of the build"
"$cloob" doctor --json --quiet | grep -q '"ok": true' || fail "cloob doctor"
"$cloob" info device --json | grep -q '"libraries": {' || fail "cloob info device --json names no libraries"
"$cloob" info device | awk '/^libraries loaded/ { on = 1; next } on && NF { n++; if ($2 != "yes" && $0 !~ / no +install /) bad = 1 } END { exit bad || !n }' ||
    fail "cloob info device: a library is neither there nor has a remedy"
exit $bad
