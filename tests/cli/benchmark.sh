#!/bin/bash
# cloob benchmark on folders in CLIP_benchmark's layout: equal to cloob zeroshot on the same images, and resumable. Usage: benchmark.sh CLOOB
set -u
cloob=$(realpath "$1") bad=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
fail() { echo "FAIL: $*"; bad=1; }

"$cloob" synth --out world --count 16 --val-count 6 --per-class 4 --size 32 --seed 1 --quiet > /dev/null || exit 77
"$cloob" train --train-data world/train.tsv --model tiny --force-image-size 32 --batch-size 8 --max-steps 2 --warmup 1 --vocab-size 600 --name m --logs . --quiet > m.txt 2> /dev/null || fail train
model=$(cat m.txt)

# objects: class folders as shards with class numbers; pairs: two captions an image
mkdir -p objects/test pairs/test members
n=0 k=0
for class in $(ls world/classes/object); do
    echo "$class" >> objects/classnames.txt
    for f in world/classes/object/"$class"/*; do
        cp "$f" "members/s$(printf %04d $k).jpg"
        echo -n $n > "members/s$(printf %04d $k).cls"
        k=$((k + 1))
    done
    n=$((n + 1))
done
echo 'a photo of a {c}.' > objects/zeroshot_classification_templates.txt
(cd members && tar cf ../objects/test/0.tar s000* && tar cf ../objects/test/1.tar $(ls | grep -v '^s000'))
rm members/*
k=0
tail -n +2 world/val.tsv | while IFS=$'\t' read -r path title; do
    cp "world/$path" "members/s$k.jpg"
    printf '%s\nsomething else\n' "$title" > "members/s$k.txt"
    k=$((k + 1))
done
(cd members && tar cf ../pairs/test/0.tar *)

"$cloob" benchmark --checkpoint "$model" --datasets objects pairs --out out --json --quiet > out.json || fail "benchmark: exit code $?"
top1=$("$cloob" zeroshot --checkpoint "$model" --data world/classes/object --json --quiet | grep -o '"top1": *[0-9.e-]*' | head -1 | grep -o '[0-9.e-]*$')
acc1=$(grep -o '"acc1": *[0-9.e-]*' out/objects.json | grep -o '[0-9.e-]*$')
awk -v a="$top1" -v b="$acc1" 'BEGIN { exit !(a - b < 1e-9 && b - a < 1e-9) }' || fail "acc1 $acc1, zeroshot says $top1"
grep -q '"n": 6' out/pairs.json && grep -q 'image_retrieval_recall@5' out/pairs.json || fail "retrieval: $(cat out/pairs.json)"
"$cloob" benchmark --checkpoint "$model" --datasets objects --out out --quiet 2> err.txt || fail "again"
grep -q "taken from" err.txt || fail "a finished data set was not taken"
echo 99 > members/bad.cls; cp world/images/val-0000000.jpg members/bad.jpg
(cd members && tar cf ../objects/test/0.tar bad.jpg bad.cls)
"$cloob" benchmark --checkpoint "$model" --datasets objects --out other --quiet > /dev/null 2> err.txt
grep -q '"n": 38\|"n": 39' other/objects.json 2> /dev/null || grep -q "class 99" err.txt || fail "a class that is not there: $(cat err.txt other/objects.json)"
"$cloob" benchmark --checkpoint "$model" --datasets nowhere --out other --quiet > /dev/null 2>&1 && fail "a data set that is not there"
exit $bad
