#!/bin/bash
# cloob convert --average, and its former name cloob average: the ends of the interpolation are the models themselves, the middle is their mean. Usage: average.sh CLOOB
. "$(dirname "$0")/../scratch.sh"

"$cloob" synth --out world --count 16 --val-count 4 --per-class 4 --size 32 --seed 1 --quiet > /dev/null || exit 77
for s in 0 1; do
    "$cloob" train --train-data world/train.tsv --model tiny --force-image-size 32 --batch-size 8 --max-steps 2 --warmup 1 --vocab-size 600 \
        --seed $s --name m$s --logs . --quiet > m$s.txt || fail "train $s"
done
a=$(cat m0.txt) b=$(cat m1.txt)
row() { "$cloob" embed --checkpoint "$1" --images world/images/val-0000000.jpg --out "$2" --raw --quiet > /dev/null && tail -c 64 "$2" | od -An -tf4 | head -1; }
"$cloob" average "$a" "$b" --alpha 0 --out zero.safetensors > /dev/null || fail "alpha 0"
"$cloob" average "$a" "$b" --alpha 1 --out one.safetensors > /dev/null || fail "alpha 1"
"$cloob" average "$a" "$b" --out mean.safetensors > /dev/null || fail "mean"
[ "$(row "$a" a.npy)" = "$(row zero.safetensors z.npy)" ] || fail "alpha 0 is not the first model"
[ "$(row "$b" b.npy)" = "$(row one.safetensors o.npy)" ] || fail "alpha 1 is not the second model"
cmp -s zero.safetensors one.safetensors && fail "both ends are one file"
"$cloob" convert --average "$a" "$b" --alpha 1 new.safetensors > out 2> err && [ ! -s err ] && cmp -s one.safetensors new.safetensors || fail "convert --average: $(cat err)"
"$cloob" convert --average "$a" "$b" mean2.safetensors --json | grep -q '"models": *2' && cmp -s mean.safetensors mean2.safetensors || fail "convert --average without --alpha"
"$cloob" convert --average "$a" "$b" x.safetensors --to hf 2>&1 | grep -q -- '--to does not apply' || fail "convert --average --to"
"$cloob" convert "$a" x.safetensors --alpha 0.5 2>&1 | grep -q -- 'need --average' || fail "convert --alpha"
[ ! -e x.safetensors ] || fail "a refused average was written"
"$cloob" average "$a" "$a" --alpha 0.3 --out same.safetensors > /dev/null
[ "$(row "$a" a.npy)" = "$(row same.safetensors s.npy)" ] || fail "a model with itself is another model"
"$cloob" average "$a" --out x.safetensors > /dev/null 2>&1 && fail "one model is no average"
"$cloob" average "$a" "$b" --alpha 2 --out x.safetensors > /dev/null 2>&1 && fail "alpha 2"
exit $bad
