#!/bin/bash
# Accuracy and latency of bf16 and int8 on the CPU of a GPU machine: trains RN50 and ViT-B-32 on Flickr8k on the GPU, then
# compares precisions on the CPU with precision_accuracy.py and times `cloob bench embed` with 1, 2, 4 and 8 threads.
#
#     bench/gpu_accuracy.sh DATA      DATA has flickr8k_128_images.tar, flickr8k_{train,val}.tsv.gz and intel_scenes.tar.gz
#
# Uses the program in BUILD (default build-gpu), built by bench/gpu.sh if it is missing. In the environment: MODELS, EPOCHS, IMAGES
# (training photos to embed), DEVICE (to train on), LIMITS (of CLOOB_CPU_LIMIT), THREADS, OUT (logs).
set -u
data=$(cd "$1" && pwd) || exit 2
cd "$(dirname "$0")/.."
build=${BUILD:-build-gpu} epochs=${EPOCHS:-24}
[ -x "$build/cloob" ] || TARGETS=cloob bench/gpu.sh build || exit 1
cloob=$PWD/$build/cloob
out=${OUT:-$build/logs}
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-accuracy-XXXXXX")
trap 'rm -rf "$dir"' EXIT
mkdir -p "$out"
for part in train val; do gunzip -c "$data/flickr8k_$part.tsv.gz" > "$dir/$part.tsv"; done
gunzip -c "$data/intel_scenes.tar.gz" > "$dir/scenes.tar"
images=(--path-data "$data/flickr8k_128_images.tar")

grep -m1 "model name" /proc/cpuinfo
for model in ${MODELS:-RN50 ViT-B-32}; do
    begin=$SECONDS
    "$cloob" train --train-data "$dir/train.tsv" "${images[@]}" --model "$model" --force-image-size 128 --one-caption-per-image \
        --method clip --batch-size 128 --epochs "$epochs" --lr 5e-4 --warmup 100 --aug-cfg scale=0.6,1.0 flip_prob=0.5 --precision amp_bf16 --device "${DEVICE:-cuda}" --workers "$(nproc)" --logs "$dir" --name "$model" --quiet \
        > "$out/train_$model.log" 2>&1 || { tail -3 "$out/train_$model.log"; exit 1; }
    echo; echo "$model: $epochs epochs in $((SECONDS - begin)) s"
    for pairs in "val 0" "train ${IMAGES:-2000}"; do
        echo; echo "$model, photos: ${pairs/ 0/, all}"
        # shellcheck disable=SC2086 # a name and a number
        set -- $pairs
        more=()
        [ "$1" = val ] && more=(--all-captions --zeroshot "$dir/scenes.tar")
        python3 bench/precision_accuracy.py --cloob "$cloob" --checkpoint "$dir/$model/checkpoints/latest.safetensors" --data "$dir/$1.tsv" \
            --images "$2" "${images[@]}" "${more[@]}" --limits "${LIMITS:-all,avx512}" || exit 1
    done
    rm -r "${dir:?}/$model"
done

for model in ${MODELS:-RN50 ViT-B-32}; do
    echo; echo "$model, batch 1, ms with ${THREADS:-1 2 4 8} threads"
    for precision in fp32 bf16 int8; do
        row=
        for threads in ${THREADS:-1 2 4 8}; do
            ms=$("$cloob" bench embed --model "$model" --batch-size 1 --device cpu --precision $precision --threads "$threads" --repeats 30 --json |
                sed -E 's/.*"ms": ([0-9.]+).*/\1/')
            row+=" $(printf %.1f "$ms") |"
        done
        echo "| $precision |$row"
    done
done
