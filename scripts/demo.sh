#!/bin/sh
# The main job, end to end, on a CPU: makes a synthetic image-text world, trains a small CLOOB on it, evaluates it zero-shot
# on combinations it has never seen, writes a report that shows images first, and ends with an image it classifies and what to try
# next. A first glance at the speed of the machine decides how many pairs there are. Everything it makes is under demo/.
set -eu
cd "$(dirname "$0")/.."
cloob=${CLOOB:-build/cloob}
out=${DEMO_DIR:-demo}
seconds=${DEMO_SECONDS:-360} # of training, at the speed of its first steps; DEMO_PAIRS=N sets the pairs instead
epochs=${DEMO_EPOCHS:-1}
seed=${DEMO_SEED:-0}
started=$(date +%s)

say() { printf '\n== %s\n' "$*" >&2; }

# Every image is seen once, so as it is: no crops. One in ten comes without its colours, or they would speak for the object: a
# green ball, which training never shows, would be a tree. docs/measurements/results.md has what other settings gave.
train() { # SHARDS ARGUMENTS...
    shards=$1
    shift
    "$cloob" train --train-data "$shards" --model tiny --batch-size 64 --lr 1.5e-3 --wd 0.1 --init-inv-tau 15 --aug-scale-min 1 \
        --aug-cfg gray_scale_prob=0.1 --vocab-size 1024 --seed "$seed" --workers 2 "$@"
}

# Pairs a second here, by 60 steps with retrieval. The whole is rounded to shards of 1,000, at most 256 of them.
pairs_for() { # SECONDS
    "$cloob" synth --out "$out/glance" --count 1000 --size 64 --seed 7 --format webdataset --quiet >/dev/null
    train "$out/glance/train-00000.tar" --warmup 1 --hopfield-warmup 0 --epochs 10 --schedule-steps 60 --log-every-n-steps 20 --report-to none \
        --logs "$out/glance" --name glance --quiet >/dev/null
    awk -v s="$1" '/pairs\/s/ { for (i = 2; i <= NF; i++) if ($i ~ /^pairs\/s/) r = $(i - 1) }
        END { n = int(s * r / 1000); print 1000 * (n > 256 ? 256 : n < 16 ? 16 : n) }' "$out/glance/glance/out.log"
}

rm -rf "$out"
mkdir -p "$out"
count=${DEMO_PAIRS:-$(pairs_for "$seconds")}
say "1/4  drawing a world of $count images with captions (cloob synth)"
"$cloob" synth --out "$out/world" --count "$count" --val-count 1000 --per-class 100 --size 64 --seed 7 --format webdataset
last=$(ls "$out/world" | sed -n 's/^train-\([0-9]*\)\.tar$/\1/p' | sort | tail -1)

# Without retrieval for the first three tenths of the steps, until objects begin to be told apart.
say "2/4  training a small CLOOB on them, epochs: $epochs (cloob train)"
train "$out/world/train-{00000..$last}.tar" --val-data "$out/world/val-00000.tar" --analyze --epochs "$epochs" --warmup 150 \
    --hopfield-warmup $((count / 64 * epochs * 3 / 10)) --logs "$out/logs" --name demo --save-frequency 3 --log-every-n-steps 50 >"$out/checkpoint.txt"
checkpoint=$(cat "$out/checkpoint.txt")

say "3/4  zero-shot on held-out combinations, factor by factor (cloob eval zeroshot)"
for folder in "$out"/world/classes/*; do
    factor=$(basename "$folder")
    "$cloob" eval zeroshot --checkpoint "$checkpoint" --data "$folder" --prompts "$out/world/prompts.json" --set "$factor" \
        --quiet --json >"$out/zeroshot-$factor.json"
    top1=$(sed 's/^{"top1": *\([0-9.eE+-]*\).*/\1/' "$out/zeroshot-$factor.json" | head -1)
    printf '   %-12s %5.1f %% top-1 of %d classes\n' "$factor" "$(echo "$top1" | awk '{print 100 * $1}')" "$(ls "$folder" | wc -l)"
done

say "4/4  the report, with images and what the model says of them (cloob report)"
"$cloob" report "$out/logs/demo" --out "$out/report.html"

# Of the first test image of every object the one that the model is surest of.
labels=$(ls "$out/world/classes/object" | paste -sd, -)
image=$(for folder in "$out"/world/classes/object/*/; do set -- "$folder"*; echo "$1"; done |
    xargs "$cloob" classify --checkpoint "$checkpoint" --labels "$labels" --csv --quiet | sed 1d | sort -t, -k3,3gr | sed -n 's/,.*//;1p')
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
