#!/bin/sh
# The main job, end to end, on a CPU: makes a synthetic image-text world, trains a small CLOOB on it, evaluates it zero-shot
# on combinations it has never seen, writes a report that shows images first, and ends with an image it classifies and what to try
# next. Everything it makes is under demo/.
set -eu
cd "$(dirname "$0")/.."
cloob=${CLOOB:-build/cloob}
out=${DEMO_DIR:-demo}
count=${DEMO_PAIRS:-256000}
epochs=${DEMO_EPOCHS:-1}
seed=${DEMO_SEED:-0}
started=$(date +%s)

say() { printf '\n== %s\n' "$*" >&2; }

rm -rf "$out"
say "1/4  drawing a world of $count images with captions (cloob synth)"
"$cloob" synth --out "$out/world" --count "$count" --val-count 1000 --per-class 100 --size 64 --seed 7 --format webdataset
last=$(ls "$out/world" | sed -n 's/^train-\([0-9]*\)\.tar$/\1/p' | sort | tail -1)

# Every image is seen once, so as it is: no crops. One in ten comes without its colours, or they would speak for the object: a
# green ball, which training never shows, would be a tree. Without retrieval for the first three tenths of the steps, until objects
# begin to be told apart; docs/measurements/results.md has what other settings gave.
say "2/4  training a small CLOOB on them, epochs: $epochs (cloob train)"
"$cloob" train --train-data "$out/world/train-{00000..$last}.tar" --val-data "$out/world/val-00000.tar" --analyze --model tiny \
    --batch-size 64 --epochs "$epochs" --warmup 150 --lr 1.5e-3 --wd 0.1 --init-inv-tau 15 \
    --hopfield-warmup $((count / 64 * epochs * 3 / 10)) --aug-scale-min 1 --aug-cfg gray_scale_prob=0.1 --vocab-size 1024 \
    --seed "$seed" --logs "$out/logs" --name demo --workers 2 --save-frequency 3 --log-every-n-steps 50 >"$out/checkpoint.txt"
checkpoint=$(cat "$out/checkpoint.txt")

say "3/4  zero-shot on held-out combinations, factor by factor (cloob zeroshot)"
for folder in "$out"/world/classes/*; do
    factor=$(basename "$folder")
    "$cloob" zeroshot --checkpoint "$checkpoint" --data "$folder" --prompts "$out/world/prompts.json" --set "$factor" \
        --quiet --json >"$out/zeroshot-$factor.json"
    top1=$(sed 's/^{"top1": *\([0-9.eE+-]*\).*/\1/' "$out/zeroshot-$factor.json" | head -1)
    printf '   %-12s %5.1f %% top-1 of %d classes\n' "$factor" "$(echo "$top1" | awk '{print 100 * $1}')" "$(ls "$folder" | wc -l)"
done

say "4/4  the report, with images and what the model says of them (cloob report)"
"$cloob" report "$out/logs/demo" --out "$out/report.html" --search "a blue fish in the snow" --search "two red balls" \
    --search "a house at night" --search "a green tree on the beach" --search "a yellow star in the desert"

image=$(ls "$out"/world/classes/object/fish/* | head -1)
labels=$(ls "$out/world/classes/object" | paste -sd, -)
say "one image that training never showed: $image (cloob classify)"
"$cloob" classify --checkpoint "$checkpoint" --labels "$labels" --top 3 --quiet "$image"

say "done in $(($(date +%s) - started)) s: open $out/report.html"
cat >&2 <<END
   Try next:
     $cloob classify --checkpoint $checkpoint --labels "day,night,fog,dusk" $out/world/classes/light
     $cloob search index $out/world/classes --checkpoint $checkpoint
     $cloob search query "a red ball on the beach" --index $out/world/classes --html $out/sheet.html
     $cloob serve --checkpoint $checkpoint --index $out/world/classes --logs $out/logs
   and open http://127.0.0.1:8080 for the last one: search, classify, compare and a map of the images.
END
