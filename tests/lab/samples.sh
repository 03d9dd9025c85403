#!/bin/sh
# cloob report asks the run's model about its validation images. Usage: samples.sh CLOOB
set -eu
cloob=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*" >&2; exit 1; }
has() { grep -q -- "$2" "$1" || fail "$1 has no $2"; }

"$cloob" synth --out "$dir/world" --count 64 --val-count 40 --per-class 1 --size 32 --seed 1 --quiet >/dev/null
"$cloob" train --train-data "$dir/world/train.tsv" --val-data "$dir/world/val.tsv" --model tiny --batch-size 32 \
    --epochs 1 --warmup 1 --vocab-size 600 --logs "$dir/logs" --name first --workers 1 --quiet >/dev/null

"$cloob" report "$dir/logs/first" --out "$dir/page.html" --quiet >/dev/null
samples=$dir/logs/first/examples-validation.json
has "$samples" 'data:image/jpeg;base64,'
has "$samples" '"truth": "'
has "$samples" '"top": \[{"label": '
has "$samples" '"rank": '
[ "$(grep -o '"truth"' "$samples" | wc -l)" = 12 ] || fail "not twelve examples"
has "$dir/page.html" 'src="data:image/jpeg;base64,'
has "$dir/page.html" ', rank '

# Repeated, it writes the same file; examples newer than the weights stay as they are.
cp "$samples" "$dir/before.json"
rm "$samples"
"$cloob" report "$dir/logs/first" --out "$dir/page.html" --quiet >/dev/null
cmp -s "$samples" "$dir/before.json" || fail "examples differ from one report to the next"
echo '{"examples": []}' >"$samples"
"$cloob" report "$dir/logs/first" --out "$dir/page.html" --quiet >/dev/null
has "$samples" '"examples": \[\]'

# Without data the page is made all the same.
rm -r "$dir/world" "$samples"
"$cloob" report "$dir/logs/first" --out "$dir/page.html" >/dev/null 2>"$dir/said" || fail "a run without its data makes no page"
has "$dir/said" 'val.tsv'
echo "ok"
