#!/bin/sh
# Predictions and confusion matrix agree with the printed accuracy, folders of a subset map onto the prompts'
# classes, embeddings name their rows. usage: predictions.sh CLOOB
. "$(dirname "$0")/fixture.sh"
"$cloob" zeroshot --checkpoint model.safetensors --data world/classes/object --prompts world/prompts.json --set object \
    --predictions p.csv --confusion c.csv --json --quiet > z.json || fail "zeroshot"
number() { grep -o "\"$1\": [0-9.e-]*" z.json | head -1 | cut -d' ' -f2; }
top1=$(number top1) n=$(number n)
head -1 p.csv | grep -q '^image,label,predicted,p,correct,rank$' || fail "heading of the predictions"
awk -F, -v n="$n" -v top1="$top1" 'NR > 1 { right += $5; if (($2 == $3) != $5) wrong = 1; if (!($4 > 0 && $4 <= 1)) wrong = 1 }
    END { exit !(NR - 1 == n && !wrong && (right / n - top1) ^ 2 < 1e-12) }' p.csv || fail "predictions do not make top1 $top1 of $n"
awk -F, -v n="$n" -v top1="$top1" 'NR > 1 { for (k = 2; k <= NF; k++) sum += $k; right += $NR }
    END { exit !(sum == n && (right / n - top1) ^ 2 < 1e-12) }' c.csv || fail "the confusion does not make top1 $top1 of $n"
"$cloob" zeroshot --checkpoint model.safetensors --data world/classes/object --prompts world/prompts.json --set object \
    --predictions p.jsonl --json --quiet > /dev/null || fail "zeroshot to lines"
[ "$(wc -l < p.jsonl)" = "$n" ] && grep -q '"correct": \(true\|false\), "rank": [0-9]*}$' p.jsonl || fail "lines of predictions"
# The rank of the correct class is 1 exactly where the prediction is correct.
awk -F, 'NR > 1 && ($NF == 1) != ($(NF - 1) == 1) || (NR > 1 && $NF < 1) { bad = 1 } END { exit bad || NR < 3 }' p.csv || fail "ranks of the correct class"

# A set that is called like a published one is compared with its counts; --quiet and other names are not.
ln -s object world/classes/GTS-RB
"$cloob" zeroshot --checkpoint model.safetensors --data world/classes/GTS-RB --prompts world/prompts.json --set object > /dev/null 2> e.txt || fail "zeroshot of gtsrb"
grep -q "classes; the published set GTSRB has 43" e.txt && grep -q "^warning: .*GTS-RB: $n images; the test split of GTSRB has 12630" e.txt || fail "counts of gtsrb: $(cat e.txt)"
"$cloob" zeroshot --checkpoint model.safetensors --data world/classes/object --prompts world/prompts.json --set object > /dev/null 2> e.txt || fail "zeroshot of object"
grep -q published e.txt && fail "counts of an unknown set: $(cat e.txt)"
rm world/classes/GTS-RB

# An image in a folder with the name of a label has a rank.
ls world/classes/object > labels.txt
"$cloob" classify --checkpoint model.safetensors --labels-file labels.txt --top 100 --json world/classes/object --quiet > k.json || fail "classify"
python3 - k.json <<'P' || fail "ranks of classify"
import json, os, sys
for one in json.load(open(sys.argv[1])):
    truth = os.path.basename(os.path.dirname(one["image"]))
    assert one["truth"] == truth and one["top"][one["rank"] - 1]["label"] == truth, one
P

# Some of the classes, under names of their own.
set -- $(ls world/classes/object | head -5)
mkdir subset && cp -r "world/classes/object/$1" subset/n01 && cp -r "world/classes/object/$2" subset/n02 && cp -r "world/classes/object/$3" subset/n03
{ echo "# folder, class"; printf 'n03\t%s\nn01\t%s\nn02\t%s\nn99\t%s\n' "$3" "$1" "$2" "$1"; } > map.tsv
subset() { "$cloob" zeroshot --checkpoint model.safetensors --data subset --prompts world/prompts.json --set object --classes-map "$@" --quiet; }
subset map.tsv --confusion s.csv --json > s.json || fail "a subset"
head -1 s.csv | awk -F, '{ exit NF != 4 }' || fail "a subset is scored among its classes"
grep -q '"top5": 1,' s.json || fail "three classes are within the best five"
printf 'n01\t%s|%s\nn02\t%s\nn03\t%s\n' "$1" "$3" "$2" "$3" > overlap.tsv
subset overlap.tsv > /dev/null 2> e.txt && fail "an overlap was taken"
grep -q 'share only some' e.txt || fail "an overlap: $(cat e.txt)"
printf 'n01\t%s\nn02\tunicorn\nn03\t%s\n' "$1" "$3" > unknown.tsv
subset unknown.tsv > /dev/null 2> e.txt && fail "an unknown class was taken"
grep -q 'line 2: "unicorn" is not among' e.txt || fail "an unknown class: $(cat e.txt)"
printf 'n01\t%s\nn02\t%s\n' "$1" "$2" > missing.tsv
subset missing.tsv > /dev/null 2> e.txt && fail "a folder without a class was taken"
grep -q '"n03"' e.txt || fail "a folder without a class: $(cat e.txt)"

# A map decides, whatever the folders are called: A|B where either is right, and two folders of the same classes.
printf 'n01\t%s|%s\nn02\t%s\nn03\t%s\n' "$1" "$4" "$2" "$3" > either.tsv
subset either.tsv --json > s.json 2> e.txt || fail "A|B: $(cat e.txt)"
grep -q "\"n\": $(find subset -type f | wc -l)," s.json || fail "A|B: $(cat s.json)"
printf 'n01\t%s|%s\nn02\t%s\nn03\t%s|%s\n' "$1" "$4" "$2" "$1" "$4" > twins.tsv
subset twins.tsv --confusion s.csv --json > s.json 2> e.txt || fail "two folders of one class: $(cat e.txt)"
head -1 s.csv | awk -F, '{ exit NF != 3 }' || fail "two folders of one class: $(cat s.csv)"
printf 'n01\t%s\nn02\t%s\nn03\t%s\n' "$1" "$2" "$1" > one.tsv
subset one.tsv > /dev/null 2> e.txt || fail "two folders of one class: $(cat e.txt)"
mkdir renamed && cp -r subset/n01 "renamed/$2" && cp -r subset/n02 renamed/other # the name of another class
printf '%s\t%s\nother\t%s\n' "$2" "$1" "$2" > renamed.tsv
"$cloob" zeroshot --checkpoint model.safetensors --data renamed --prompts world/prompts.json --set object --classes-map renamed.tsv --quiet \
    > /dev/null 2> e.txt || fail "a folder with the name of another class: $(cat e.txt)"

# A probe matches the classes of two splits by name: every test image is among the training images here, so its neighbour is itself.
mkdir -p split/train split/test
for c in "$1" "$2" "$3" "$4"; do cp -r "world/classes/object/$c" "split/train/$c"; done
for c in "$1" "$3" "$4"; do cp -r "world/classes/object/$c" "split/test/$c"; done
for part in train test; do "$cloob" embed --checkpoint model.safetensors --data split/$part --raw --features pre --out $part.safetensors --quiet > /dev/null || fail embed; done
for from in "--checkpoint model.safetensors --data split" "--train train.safetensors --test test.safetensors"; do
    "$cloob" probe $from --knn 1 --json --quiet > p.json 2> e.txt || fail "probe: $(cat e.txt)"
    grep -q '"test_acc": 1,' p.json || fail "classes were matched by number: $(cat p.json)"
    "$cloob" probe $from --lambda 0.001 --json --quiet > p.json 2> e.txt || fail "probe: $(cat e.txt)"
    awk -v train="$(grep -o '"train_acc": [0-9.e-]*' p.json | cut -d' ' -f2)" -v test="$(grep -o '"test_acc": [0-9.e-]*' p.json | cut -d' ' -f2)" \
        'BEGIN { exit !(test > train - 0.2) }' || fail "classes were matched by number: $(cat p.json)"
done
# Several splits: a result for each and their mean; the second one tests on the training rows.
splits() { "$cloob" probe --train train.safetensors train.safetensors --lambda 100 --quiet "$@" 2> e.txt; }
splits --test test.safetensors train.safetensors --json > p.json || fail "two splits: $(cat e.txt)"
python3 - p.json <<'P' || fail "two splits: $(cat p.json)"
import json, statistics, sys
r = json.load(open(sys.argv[1]))
of = [s["test_acc"] for s in r["splits"]]
assert len(of) == 2 and [s["test_rows"] for s in r["splits"]] != [r["splits"][0]["test_rows"]] * 2
assert abs(r["test_acc"] - statistics.mean(of)) < 1e-9 and abs(r["test_acc_deviation"] - statistics.stdev(of)) < 1e-9
assert abs(r["test_mean_per_class"] - statistics.mean(s["test_mean_per_class"] for s in r["splits"])) < 1e-9
P
"$cloob" probe --checkpoint model.safetensors --data split split --lambda 100 --quiet > p.txt && grep -q '^average of 2 splits: test [0-9.]* +- 0.0000 ' p.txt || fail "--data twice: $(cat p.txt)"
splits --test test.safetensors > p.txt && fail "two --train with one --test"
grep -q "same number of files" e.txt || fail "two --train with one --test: $(cat e.txt)"
splits --test test.safetensors test.safetensors --knn 1 > p.txt && fail "--knn of two splits"
cp -r "world/classes/object/$5" "split/test/$5" # a class without training rows: wrong in both numbers, and named
"$cloob" probe --checkpoint model.safetensors --data split --knn 1 --json --quiet > p.json 2> e.txt || fail "probe: $(cat e.txt)"
grep -q '"test_mean_per_class": 0.75,' p.json && grep -q "1 of its 4 classes are not among those of the training rows: \"$5\"" e.txt ||
    fail "a class without training rows: $(cat p.json e.txt)"
rm -r split/test && mkdir -p "split/test/unicorn" "split/test/dragon" && cp "world/classes/object/$1"/* split/test/unicorn && cp "world/classes/object/$2"/* split/test/dragon
"$cloob" probe --checkpoint model.safetensors --data split --knn 1 --quiet > p.json 2> e.txt && fail "splits without a common class: $(cat p.json)"
grep -q 'none of its 2 classes' e.txt || fail "splits without a common class: $(cat e.txt)"

# Every row of a file of embeddings is named.
"$cloob" embed --checkpoint model.safetensors --data subset --out subset.npy --quiet > /dev/null 2> e.txt && fail ".npy with labels was written"
"$cloob" embed --checkpoint model.safetensors --data subset --out subset.safetensors --quiet > /dev/null || fail "embed"
head -c 20000 subset.safetensors | grep -aq '"names":' && head -c 20000 subset.safetensors | grep -aq 'subset/n02/' || fail "names"
head -c 20000 e.safetensors | grep -aq '"captions":' || fail "captions"
exit $bad
