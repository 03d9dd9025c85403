#!/bin/sh
# Trains a small model on everyday photographs with sentences and measures how well images and sentences find each other.
# DATA holds flickr8k_images.tar(.gz), flickr8k_train.tsv(.gz), flickr8k_val.tsv(.gz) and, for transfer, intel_scenes.tar(.gz).
#
#     docs/measurements/data/run_flickr.sh DATA [OUT]           OUT: flickr/ by default; METHOD, EPOCHS, SEED by environment
set -eu
data=${1:?usage: docs/measurements/data/run_flickr.sh DATA [OUT]}
out=${2:-flickr}
cloob=${CLOOB:-$(dirname "$0")/../../../build/cloob}
mkdir -p "$out"

for name in flickr8k_images.tar flickr8k_train.tsv flickr8k_val.tsv intel_scenes.tar; do
    if [ -e "$data/$name" ]; then ln -sf "$(cd "$data" && pwd)/$name" "$out/$name"
    elif [ -e "$data/$name.gz" ]; then gunzip -c "$data/$name.gz" >"$out/$name"; fi
done
[ -d "$out/images" ] || { mkdir "$out/images"; tar xf "$out/flickr8k_images.tar" -C "$out/images"; }

# One sentence per photograph and epoch: five rows of one image in a batch would be false negatives of each other.
"$cloob" train --train-data "$out/flickr8k_train.tsv" --val-data "$out/flickr8k_val.tsv" --path-data "$out/images" --one-caption \
    --model "${MODEL:-$(dirname "$0")/six_blocks.json}" --method "${METHOD:-cloob}" --epochs "${EPOCHS:-10}" --batch-size 64 --lr 1e-3 --warmup 50 --wd 0.1 \
    --init-inv-tau 15 --hopfield-warmup "${HOPFIELD_WARMUP:-900}" --aug-cfg scale=0.6,1.0 flip_prob=0.5 --vocab-size 2048 \
    --seed "${SEED:-0}" --workers 2 --val-frequency 5 --save-frequency 0 --logs "$out/logs" --name "${NAME:-flickr}" \
    ${RESUME:+--resume latest}
tail -1 "$out/logs/${NAME:-flickr}/checkpoints/results.jsonl"
[ ! -e "$out/intel_scenes.tar" ] || "$cloob" eval zeroshot --checkpoint "$out/logs/${NAME:-flickr}/checkpoints/latest.safetensors" \
    --data "$out/intel_scenes.tar"
