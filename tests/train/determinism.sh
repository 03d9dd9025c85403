#!/bin/bash
# The rows of docs/reference/determinism.md that one machine can check: which runs give equal bytes. Usage: determinism.sh CLOOB
. "$(dirname "$0")/../scratch.sh"
train() { # NAME FLAGS...: the hash of weights and state
    name=$1
    shift
    "$cloob" train --dataset-type synthetic --train-num-samples 48 --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --epochs 1 --warmup 2 \
        --device cpu --quiet --logs logs --name "$name" "$@" > /dev/null || fail "train $name"
    head -c 200000 "logs/$name/checkpoints/latest.safetensors" | grep -oa '"digest.train":"[0-9a-f]*"' | head -1
}
a=$(train a --threads 1 --workers 0)
[ -n "$a" ] || fail "no checksum"
[ "$(train again --threads 1 --workers 0)" = "$a" ] || fail "the same run twice"
[ "$(train workers --threads 1 --workers 3)" = "$a" ] || fail "another number of workers"
[ "$(train log --threads 1 --workers 1 --log-every-n-steps 1 --save-every 2steps)" = "$a" ] || fail "other logging and saving"
b=$(train two --threads 2 --workers 1)
[ "$(train two-again --threads 2 --workers 0)" = "$b" ] || fail "the same number of threads twice"
# equal to rounding: the loss of the last step, which a dozen updates of another run would move by far more than this
near() { # NAME: its loss is the loss of run a
    awk -F '\t' 'FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "loss") c = i } FNR > 1 { last[FILENAME] = $c }
        END { for (f in last) { if (n++ && (last[f] - one) ^ 2 > (1e-4 * one) ^ 2) exit 1; one = last[f] } exit n != 2 }' "logs/a/metrics.tsv" "logs/$1/metrics.tsv"
}
near two || fail "another number of threads is not equal to rounding"
CLOOB_CPU_LIMIT=avx2 train older --threads 1 --workers 0 > /dev/null
near older || fail "an older instruction set is not equal to rounding"
[ "$(train seed --threads 1 --workers 0 --seed 5)" != "$a" ] || fail "another seed gives the same run: the comparison is blind"
near seed && fail "another seed is equal to rounding: the comparison is blind"
# what the bytes depend on has a line in params.txt
names() { # RUN KEY...
    run=$1
    shift
    for key in "$@"; do grep -q "^$key: ..*" "logs/$run/params.txt" || fail "params.txt of $run does not name $key"; done
}
names a seed version threads world_size device processor instructions compiler
linked() { ldd "$cloob" 2> /dev/null | grep -q "$1"; }
linked libc.so.6 && names a libc
for pair in libjpeg:jpeg libpng:png libwebp.so:webp libtiff:tiff libheif:heif utf8proc:utf8proc; do linked "${pair%:*}" && names a "${pair#*:}"; done
# embeddings: equal bytes with other numbers of threads and workers, and alone
printf 'a red ball\na blue cup on a table\n' > texts
printf 'a blue cup on a table\n' > last
for k in "1 texts one" "2 texts two" "1 last last"; do
    set -- $k
    "$cloob" embed --checkpoint logs/a/checkpoints/latest.safetensors --texts "$2" --threads "$1" --out "$3.npy" --device cpu --quiet > /dev/null || fail "embed $3"
done
cmp -s one.npy two.npy || fail "embeddings depend on the number of threads"
row=$(($(stat -c %s one.npy) - $(stat -c %s last.npy)))
[ "$(tail -c $row one.npy | md5sum)" = "$(tail -c $row last.npy | md5sum)" ] || fail "an embedding depends on the other rows"
# the same on a GPU, where there is one: the choices of its tuning are part of the run
if "$cloob" train --dataset-type synthetic --train-num-samples 8 --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --max-steps 1 --warmup 1 \
    --device cuda --quiet --logs logs --name gpu > /dev/null 2>&1; then
    names gpu gpu cublaslt cudnn tuning
fi
exit $bad
