#!/bin/sh
# Trains a small model on shop photographs with their product names and asks it for article types it was never told as
# labels. DATA holds fashion_train_00000..00003.tar(.gz), fashion_val_00000.tar(.gz) and fashion_article_types_val.tar(.gz).
#
#     docs/measurements/data/run_fashion.sh DATA [OUT]          OUT: fashion/ by default; METHOD, EPOCHS, SEED, ... by environment
set -eu
data=${1:?usage: docs/measurements/data/run_fashion.sh DATA [OUT]}
out=${2:-fashion}
cloob=${CLOOB:-$(dirname "$0")/../../../build/cloob}
mkdir -p "$out"

for name in fashion_train_00000 fashion_train_00001 fashion_train_00002 fashion_train_00003 fashion_val_00000 \
    fashion_article_types_val; do
    if [ -e "$data/$name.tar" ]; then ln -sf "$(cd "$data" && pwd)/$name.tar" "$out/$name.tar"
    else gunzip -c "$data/$name.tar.gz" >"$out/$name.tar"; fi
done

# Product names read "BRAND Men Black Casual Shoes": the prompts are written the same way, over the folders' own names.
classes=$(tar tf "$out/fashion_article_types_val.tar" | sed -n 's|^\(.*/\)*\([^/]*\)/[^/]*\.[A-Za-z]*$|"\2"|p' | sort -u | paste -sd,)
templates='"{}", "Men {}", "Women {}", "Men'"'"'s {}"'
for who in Men Women; do
    for colour in Black White Blue Brown Red Grey Pink Green; do templates="$templates, \"$who $colour {}\""; done
done
printf '{"fashion": {"classes": [%s], "templates": [%s], "metric": "accuracy"}}\n' "$classes" "$templates" >"$out/prompts.json"

# The images are 60 x 80: squashed, so that hems and soles stay in sight. Ten thousand pairs are soon known by heart, so the
# views vary much: 40 to 100 % of the area, mirrored, brightness, contrast, saturation and hue moved, some grey.
"$cloob" train --train-data "$out/fashion_train_{00000..00003}.tar" --val-data "$out/fashion_val_00000.tar" \
    --model "${MODEL:-$(dirname "$0")/six_blocks.json}" --method "${METHOD:-clip}" --epochs "${EPOCHS:-20}" --batch-size 64 --lr "${LR:-1e-3}" --warmup 100 --wd 0.2 \
    --init-inv-tau "${INV_TAU:-20}" --scale-hopfield "${SCALE:-8}" --hopfield-warmup "${HOPFIELD_WARMUP:-1500}" --image-resize-mode squash --vocab-size 2048 \
    --aug-cfg scale=0.4,1.0 ratio=0.65,0.85 flip_prob=0.5 color_jitter=0.4,0.4,0.4,0.1 color_jitter_prob=0.8 gray_scale_prob=0.1 \
    --seed "${SEED:-0}" --workers 2 --val-frequency 1000 --save-frequency 0 --logs "$out/logs" --name "${NAME:-fashion}" \
    ${RESUME:+--resume latest}
"$cloob" eval zeroshot --checkpoint "$out/logs/${NAME:-fashion}/checkpoints/latest.safetensors" \
    --data "$out/fashion_article_types_val.tar" --prompts "$out/prompts.json" --set fashion --per-class
