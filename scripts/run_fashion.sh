#!/bin/sh
# Trains a small model on shop photographs with their product names and asks it for article types it was never told as
# labels. DATA holds fashion_train_00000..00003.tar(.gz), fashion_val_00000.tar(.gz) and fashion_article_types_val.tar(.gz).
#
#     scripts/run_fashion.sh DATA [OUT]          OUT: fashion/ by default; METHOD, EPOCHS, SEED by environment
set -eu
data=${1:?usage: scripts/run_fashion.sh DATA [OUT]}
out=${2:-fashion}
cloob=${CLOOB:-$(dirname "$0")/../build/cloob}
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

"$cloob" train --train-data "$out/fashion_train_{00000..00003}.tar" --val-data "$out/fashion_val_00000.tar" \
    --model "${MODEL:-tiny}" --method "${METHOD:-cloob}" --epochs "${EPOCHS:-10}" --batch-size 64 --lr "${LR:-1.5e-3}" --warmup 50 --wd 0.1 \
    --init-inv-tau 15 --hopfield-warmup "${HOPFIELD_WARMUP:-1500}" --aug-cfg scale=0.7,1.0 flip_prob=0.5 --vocab-size 2048 \
    --seed "${SEED:-0}" --workers 2 --val-frequency 5 --save-frequency 0 --logs "$out/logs" --name "${NAME:-fashion}" \
    ${RESUME:+--resume latest}
"$cloob" zeroshot --checkpoint "$out/logs/${NAME:-fashion}/checkpoints/latest.safetensors" \
    --data "$out/fashion_article_types_val.tar" --prompts "$out/prompts.json" --set fashion --per-class
