# A small world and a trained model for tests of the program: sourced with $1 = CLOOB. Afterwards: that of scratch.sh,
# and in the working folder world/, model.safetensors, e.safetensors (embeddings of the world), image.jpg or image.png.
. "$(dirname "$(realpath "$0")")/../scratch.sh"
export OMP_NUM_THREADS=1
"$cloob" synth --out world --count 24 --size 32 --seed 1 --quiet > /dev/null || { echo "skipped: cannot draw images here"; exit 77; }
"$cloob" train --train-data world/train.tsv --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --max-steps 1 --warmup 1 \
    --workers 0 --threads 1 --device cpu --quiet --logs logs --name a > /dev/null || exit 1
ln -s logs/a/checkpoints/latest.safetensors model.safetensors
"$cloob" embed --checkpoint model.safetensors --data world/train.tsv --out e.safetensors --quiet > /dev/null || exit 1
image=$(find world/images -type f | sort | head -1)
merges='l o
lo w
'
printf '#version: 0.2\n%s' "$merges" > merges.txt
