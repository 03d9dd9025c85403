#!/bin/sh
# One run of every command that works with a model, on a small world and a model of a few steps: results are there and say
# what they should. commands.sh CLOOB
set -eu
cloob=$1
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-commands-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"

fail() { echo "FAIL $1"; exit 1; }
# must WHAT PATTERN COMMAND...: the command succeeds and its stdout has the pattern
must() { # an empty pattern: nothing to look for
    what=$1 pattern=$2
    shift 2
    "$cloob" "$@" --quiet >out 2>err || { cat err; fail "$what"; }
    [ -z "$pattern" ] || grep -qE -- "$pattern" out || { cat out; fail "$what: no $pattern"; }
    echo "ok   $what"
}
is_png() { [ "$(head -c 4 "$1" | tail -c 3)" = PNG ] || fail "$1 is no PNG"; }

must "synth" '"train"' synth --out world --count 64 --size 32 --val-count 40 --per-class 2 --json
must "synth --format webdataset" '"train"' synth --out shards --count 20 --size 32 --format webdataset --shard-samples 8 --json
must "train" '' train --train-data world/train.tsv --val-data world/val.tsv --model tiny --force-image-size 32 --vocab-size 600 \
    --batch-size 16 --epochs 1 --workers 0 --device cpu --logs logs --name run --zeroshot-frequency 1 \
    --zeroshot-data world/classes/colour --zeroshot-prompts world/prompts.json --zeroshot-set colour
grep -q 'zeroshot' logs/run/checkpoints/results.jsonl || fail "train --zeroshot-data"
"$cloob" train --train-data world/train.tsv --model nosuch --logs logs --name new >out 2>err && fail "an unknown model"
"$cloob" train --train-data world/train.tsv --model tiny --logs logs --name run >out 2>>err && fail "a name that is taken"
[ "$(wc -l <err)" = 2 ] || { cat err; fail "names are checked before a vocabulary is trained"; }
"$cloob" train --resume run --logs logs >out 2>err || fail "a run that is complete"
grep -q 'the run is complete' err || { cat err; fail "a run that is complete"; }
model=$(ls logs/run/checkpoints/*.safetensors | head -1)
image=$(find world/images -name 'val-*.jpg' | sort | head -1)
folder=$(dirname "$image")

must "embed" '' embed --checkpoint "$model" --data world/val.tsv --out e.safetensors --device cpu
must "eval retrieval" '"image_to_text_R@1"' eval retrieval --input e.safetensors --json
must "retrieve as text" 'image to text' retrieve --input e.safetensors
must "analyze" '"ajne' analyze --input e.safetensors --reference e.safetensors --out analysis --json
must "analyze as text" 'alignment' analyze --input e.safetensors
[ -s analysis/analysis.json ] && [ -s analysis/eigenvalues.tsv ] || fail "analyze --out"
must "classify" '"label' classify --checkpoint "$model" --labels 'a red ball,a green house' --device cpu --json "$image"
must "classify --csv" "$(basename "$image")" classify --checkpoint "$model" --labels 'red,green' --csv --device cpu "$folder"
must "classify --sort-into" '' classify --checkpoint "$model" --labels 'red,green' --sort-into sorted --device cpu "$folder"
[ "$(find sorted -type l | wc -l)" -gt 0 ] || fail "classify --sort-into links nothing"
must "search index" '' search index "$folder" --checkpoint "$model" --out photos.index --device cpu
must "search query" '\.jpg' search query "a red ball" --index photos.index --checkpoint "$model" --n 3 --device cpu
must "search query --image" "$(basename "$image")" search query --image "$image" --index photos.index --checkpoint "$model" --n 3 --html found.html --device cpu
grep -q '<img' found.html || fail "search --html"
must "preprocess" '' preprocess "$image" view.png --size 24
must "info --view" '' info "$image" --view view2.png --size 24
cmp -s view.png view2.png || fail "info --view is not what preprocess wrote"
must "info --view of the default size" '"width": *224' info "$image" --view view2.png --json
must "preprocess --train" '' preprocess "$image" train.png --size 24 --train --seed 3
must "preprocess --crop" '' preprocess "$image" crop.png --size 16 --crop 2,3,20,24 --json
is_png view.png && is_png train.png && is_png crop.png
narrow() { awk 'length($0) > 80 { bad = 1 } END { exit bad }' out || { cat out; fail "wider than 80 columns: $what"; }; }
must "retrieve at 80 columns" 'MRR' retrieve --input e.safetensors && narrow
must "analyze at 80 columns" 'Ajne' analyze --input e.safetensors && narrow
must "zeroshot at 80 columns" 'top5' zeroshot --checkpoint "$model" --data world/classes/colour && narrow
must "info of a run" 'tokenizer +stored' info logs/run
must "info of embeddings" '^image +[0-9]+ rows of width' info e.safetensors
must "info of embeddings as JSON" '"image": \[' info e.safetensors --json
must "info" '"parameters"' info "$model" --json
must "info of data" 'samples' info world/train.tsv
must "info of shards" 'samples' info 'shards/train-{00000..00002}.tar'
printf '{"epoch": 1, "x": 0.1}\n{"epoch": 1, "x": 0.2}\n{"epoch": 1, "x": 0.15}\n' >a.jsonl
printf '{"epoch": 1, "x": 0.5}\n{"epoch": 1, "x": 0.6}\n{"epoch": 1, "x": 0.55}\n' >b.jsonl
must "compare" '"p' compare a.jsonl b.jsonl --json
must "compare as text" 'x' compare a.jsonl b.jsonl
mkdir runs && cp -r logs/run runs/a && cp -r logs/run runs/b && sed -i 's/^method: .*/method: clip/' runs/b/params.txt
must "compare of runs" 'Holm' compare runs
column=$(awk '/^metric/ { print index($0, "clip"); exit }' out)
awk -v c="$column" '/^$/ { exit } substr($0, c - 1, 1) != " " || substr($0, c, 1) == " " { bad = 1 } END { exit bad }' out ||
    { cat out; fail "compare: columns are not aligned"; }
metric=$("$cloob" compare runs --json 2> /dev/null | grep -o '"metrics": {"[^"]*"' | cut -d'"' -f4)
must "main results" "| $metric |" compare runs --metrics "$metric" --format markdown
must "bench embed" '"ms"' bench embed --model tiny --batch-size 4 --repeats 1 --device cpu --json
must "bench step" '"ms"' bench step --model tiny --batch-size 4 --repeats 1 --device cpu --json
must "ops of a step" 'objective, optimizer, copies' bench step --model tiny-vit --batch-size 4 --repeats 1 --profile
must "ops of a step as JSON" '"ops": \[{"op": ' bench step --model tiny-vit --batch-size 4 --repeats 1 --profile --json
must "ops of an embedding" "conv2d, [0-9]* rows of [0-9]* to [0-9]*" bench embed --model tiny-rn --batch-size 2 --repeats 1 --profile
must "bench loss" '"ms"' bench loss --n 64 --dim 16 --repeats 1 --device cpu --json
must "bench data" '' bench data --data world/train.tsv --batch-size 8 --batches 2 --json
must "ablate" '' ablate --train-data world/train.tsv --val-data world/val.tsv --model tiny --force-image-size 32 --vocab-size 600 \
    --batch-size 16 --epochs 1 --max-steps 1 --workers 0 --device cpu --methods clip cloob --seeds 2 --logs logs --name two
[ -s logs/two/ablation.md ] || fail "ablate"
must "sweep without --select" '5e-4, cloob' sweep --grid lr=1e-3,5e-4 --grid method=cloob --train-data world/train.tsv --val-data world/val.tsv --model tiny \
    --force-image-size 32 --vocab-size 600 --batch-size 16 --epochs 1 --max-steps 1 --workers 0 --device cpu --logs logs --name rates
must "zeroshot" '"top1"' zeroshot --checkpoint "$model" --data world/classes/colour --prompts world/prompts.json --set colour --device cpu --json
must "report" '' report logs/run --out report.html
grep -q '<html' report.html || fail "report.html"
