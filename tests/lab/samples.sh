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

"$cloob" report "$dir/logs/first" --out "$dir/page.html" --search "a blue <fish>" --export "$dir/figures" --quiet >/dev/null
samples=$dir/logs/first/samples.json
has "$samples" '"factor": "colour"'
has "$samples" '"never_seen": true'
has "$samples" '"text": "a blue <fish>"'
has "$samples" 'data:image/jpeg;base64,'
has "$samples" '"name": "background", "n": 20'
has "$dir/page.html" 'What the model says'
has "$dir/page.html" 'a blue &lt;fish&gt;'
[ -s "$dir/figures/accuracy-by-factor.tex" ] || fail "no table"

# The same question gives the same file; without one, samples newer than the weights stay as they are.
cp "$samples" "$dir/before.json"
"$cloob" report "$dir/logs/first" --out "$dir/page.html" --search "a blue <fish>" --quiet >/dev/null
cmp -s "$samples" "$dir/before.json" || fail "samples differ from one report to the next"
echo '{"images": []}' >"$samples"
"$cloob" report "$dir/logs/first" --out "$dir/page.html" --quiet >/dev/null
has "$samples" '"images": \[\]'

# Without ground truth the gallery shows captions; without data the page is made all the same.
rm "$dir/world/factors.tsv" "$samples"
"$cloob" report "$dir/logs/first" --out "$dir/page.html" --quiet >/dev/null
has "$samples" '"captions": \['
has "$dir/page.html" 'own caption'
rm -r "$dir/world" "$samples"
"$cloob" report "$dir/logs/first" --out "$dir/page.html" >/dev/null 2>"$dir/said" || fail "a run without its data makes no page"
has "$dir/said" 'val.tsv'
echo "ok"
