#!/bin/bash
# cloob benchmark on folders in CLIP_benchmark's layout: equal to cloob zeroshot on the same images, and resumable. Usage: benchmark.sh CLOOB
. "$(dirname "$0")/../scratch.sh"

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


b() { "$cloob" benchmark --device cpu "$@"; }
value() { grep -o "\"$2\": *[0-9.e-]*" "$1" | head -1 | grep -o '[0-9.e-]*$'; }

b --checkpoint "$model" --datasets objects pairs --out out --json --quiet > out.json || fail "benchmark: exit code $?"
objects=$(ls out/objects_*_zeroshot_classification.json) pairs=$(ls out/pairs_*_zeroshot_retrieval.json)
top1=$("$cloob" zeroshot --checkpoint "$model" --data world/classes/object --json --quiet | grep -o '"top1": *[0-9.e-]*' | head -1 | grep -o '[0-9.e-]*$')
awk -v a="$top1" -v b="$(value "$objects" acc1)" 'BEGIN { exit !(a - b < 1e-9 && b - a < 1e-9) }' || fail "acc1 $(cat "$objects"), zeroshot says $top1"
grep -q '"n": 6' "$pairs" && grep -q 'image_retrieval_recall@5' "$pairs" || fail "retrieval: $(cat "$pairs")"
[ "$(wc -l < out.json)" = 2 ] && grep -q '"main_metric": *"acc1"' out.json || fail "a line of JSON each: $(cat out.json)"
head -1 out/benchmark.csv | grep -q 'dataset,model,pretrained,task,language,model_fullname$' || fail "columns: $(head -1 out/benchmark.csv)"
[ "$(wc -l < out/benchmark.csv)" = 3 ] || fail "rows of the CSV"

# stopped and gone on with: finished results are taken, results of other weights are not
b --checkpoint "$model" --datasets objects --out out 2> err.txt > again.txt || fail "again"
grep -q "read from" err.txt && grep -q objects again.txt || fail "a finished data set was not reused: $(cat err.txt)"
cp "$model" copy.safetensors
b --checkpoint copy.safetensors --datasets objects --out out --quiet > /dev/null || fail "a copy"
touch -d '2001-01-01' copy.safetensors
b --checkpoint copy.safetensors --datasets objects --out out --quiet 2> err.txt > /dev/null || fail "a copy again"
grep -q "weights have changed" err.txt || fail "changed weights were not noticed: $(cat err.txt)"

# a folder whose name is a command: from a list, or inside a folder of data sets
mkdir -p "pipe:touch ran;" evil
cp -r objects/* "pipe:touch ran;"
cp -r objects evil/x && cp -r objects "evil/x::pipe:touch ran;"
echo "pipe:touch ran;" > evil.txt
for sets in evil.txt evil; do
    b --checkpoint "$model" --datasets $sets --out evil.out --quiet > /dev/null 2> err.txt && fail "a data set called pipe: was read"
    grep -q 'is a command' err.txt && [ ! -e ran ] || fail "$sets ran a command: $(cat err.txt; ls ran 2> /dev/null)"
done
rm -r "pipe:touch ran;" evil

# several models, a folder of data sets, a list with a set that is not there; one table
mkdir all && mv objects pairs all/
printf '\357\273\277objects\r\n# sets\nwds/vtab/pets\n' > all/list.txt # as a Windows editor saves it
b --checkpoint "$model" copy.safetensors --datasets all --out two --quiet > two.txt || fail "two models"
[ "$(grep -c '^objects' two.txt)" = 3 ] && grep -q 'copy.safetensors' two.txt || fail "a row for each, and the table: $(cat two.txt)"
b --checkpoint "$model" --datasets all/list.txt --out two --quiet 2> err.txt > /dev/null || fail "a list"
grep -q '^warning: wds/vtab/pets: no such data set' err.txt || fail "a set of the list that is not there: $(cat err.txt)"

# several labels per image: targets that say what classes say rank like them
cp -r all/objects several && echo multilabel > several/dataset_type.txt
rm members/* several/test/*
tar xf all/objects/test/0.tar -C members && tar xf all/objects/test/1.tar -C members
classes=$(wc -l < several/classnames.txt)
for f in members/*.cls; do
    { printf '\x93NUMPY\x01\x00\x76\x00'; printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': ($classes,), }"
      for ((k = 0; k < classes; k++)); do printf "\\x0$((k == $(cat "$f")))"; done; } > "${f%.cls}.npy"
done
(cd members && tar cf ../several/test/0.tar *.jpg *.npy --sort=name 2> /dev/null; ls | sed 's/\..*//' | sort -u | while read -r k; do echo $k.jpg $k.npy; done | xargs tar cf ../several/test/0.tar)
b --checkpoint "$model" --datasets several --out out --quiet --json > several.json 2> err.txt || fail "several labels: $(cat err.txt)"
map=$(value several.json mean_average_precision)
awk -v m="$map" 'BEGIN { exit !(m > 0.02 && m <= 1) }' || fail "mean average precision: $(cat several.json)"
echo 3 > several/test/nshards.txt
b --checkpoint "$model" --datasets several --out other --quiet > /dev/null 2> err.txt && fail "a shard that is missing"
grep -q '1.tar: nshards.txt lists 3 shards' err.txt || fail "$(cat err.txt)"
echo 1 > several/test/nshards.txt; echo sounds > several/dataset_type.txt
b --checkpoint "$model" --datasets several --out other --quiet > /dev/null 2> err.txt && fail "an unknown type"
grep -q 'dataset_type.txt: "sounds"' err.txt || fail "$(cat err.txt)"

# DataComp: sets are known by name, the metrics of WILDS need metadata, and what is not there is named
cp -r several wds_wilds-fmow_test && rm wds_wilds-fmow_test/dataset_type.txt
(cd members && ls | sed 's/\..*//' | sort -u | while read -r k; do echo $k.jpg $k.cls; done | xargs tar cf ../wds_wilds-fmow_test/test/0.tar)
b --checkpoint "$model" --datasets wds_wilds-fmow_test --out dc --quiet > /dev/null 2> err.txt && fail "WILDS without metadata"
grep -q 'npy' err.txt || fail "metadata is not asked for: $(cat err.txt)"
i=0
for f in members/*.cls; do
    { printf '\x93NUMPY\x01\x00\x76\x00'; printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }"
      printf "\\x0$((i % 2))\\x0$((i % 3))\\x00"; } > "${f%.cls}.npy"
    i=$((i + 1))
done
(cd members && ls | sed 's/\..*//' | sort -u | while read -r k; do echo $k.jpg $k.cls $k.npy; done | xargs tar cf ../wds_wilds-fmow_test/test/0.tar)
b --checkpoint "$model" --datasets wds_wilds-fmow_test --out dc --quiet --datacomp > dc.txt 2> err.txt || fail "fmow: $(cat err.txt)"
for key in '"key": "wilds/fmow", "dataset": "FMoW"' acc_worst_year acc_worst_region 'acc_region:1' 'count_year:2' main_metric; do
    grep -qF -- "$key" dc/eval_results.jsonl || fail "eval_results.jsonl lacks $key: $(cat dc/eval_results.jsonl)"
done
[ "$(grep -c 'not there' dc.txt)" = 37 ] || fail "sets of DataComp that are not there: $(grep -c 'not there' dc.txt)"

is() { awk -v a="$(value "$1" "$2")" -v b="$3" 'BEGIN { exit !((a - b) ^ 2 < 1e-12) }' || fail "$2 is $(value "$1" "$2"), not $3: $(cat "$1")"; }

# WinoGAViL: whatever a model chooses, one of five rows with one association each is right, and of all pairs of five the mean is 0.3
w=wds_misc-winogavil_test
mkdir -p $w/test $w/images
ls -d world/classes/object/*/* | head -10 | { i=0; while read -r f; do cp "$f" "$w/images/c$i.${f##*.}"; i=$((i + 1)); done; }
list() { echo -n '['; s=; for i in "$@"; do echo -n "$s\"\"c$i\"\""; s=', '; done; echo -n ']'; }
{ echo 'ID,cue,associations,candidates'
  for i in 0 1 2 3 4; do echo "$i,Owl,\"$(list $i)\",\"$(list 0 1 2 3 4)\""; done
  echo "5,stone,\"$(list 0 1 2 3 4)\",\"$(list 4 3 2 1 0)\""
  for i in 0 1 2 3 4 5; do for k in 0 1 2 3 4 5; do [ $i -lt $k ] && echo "6,sea,\"$(list $i $k)\",\"$(list 0 1 2 3 4 5)\""; done; done
  for i in 0 1 2 3 4 5 6 7 8 9; do echo "7,sea,\"$(list $i)\",\"$(list 0 1 2 3 4 5 6 7 8 9)\""; done; } > $w/test/winogavil.csv
b --checkpoint "$model" --datasets $w --out wino --quiet --json > wino.json 2> err.txt || fail "WinoGAViL: $(cat err.txt)"
is wino.json jaccard_score_5 0.3333333333333333 # (1 + 1) of 6
is wino.json jaccard_score_6 0.24444444444444444 # one pair of 15 is right, 8 share an image with it
is wino.json jaccard_score_10 0.1
is wino.json jaccard_score_10-12 0.1
grep -q '"main_metric": *"jaccard_score_10-12"' wino.json || fail "its main metric: $(cat wino.json)"
echo '8,sea,"[""c0""]","[""c0"", ""elsewhere""]"' >> $w/test/winogavil.csv
b --checkpoint "$model" --datasets $w --out wino --again --quiet > /dev/null 2> err.txt && fail "an image that is not there"
grep -q 'line 33: no readable image of "elsewhere"' err.txt || fail "$(cat err.txt)"

# linear probes
mv all/objects/test all/objects/train && cp -r all/objects/train all/objects/test
b --checkpoint "$model" --datasets all/objects --task linear_probe --out probe --quiet --json > probe.json 2> err.txt || fail "probe: $(cat err.txt)"
awk -v m="$(value probe.json lp_acc1)" 'BEGIN { exit !(m > 0.05 && m <= 1) }' || fail "a probe: $(cat probe.json)"
b --checkpoint "$model" --datasets all/objects --task linear_probe --shots 2 --out probe --quiet --json > probe.json 2> err.txt || fail "shots: $(cat err.txt)"
grep -q '"fewshot_k": *2' probe.json && ls probe/*_2shot.json > /dev/null || fail "shots: $(cat probe.json)"
b --checkpoint "$model" --datasets all/objects --task linear_probe --shots 50 --out probe --quiet > /dev/null 2> err.txt && fail "more shots than images"
grep -q 'rows, --shots asks for 50' err.txt || fail "$(cat err.txt)"

# what is broken
rm members/*
echo 99 > members/bad.cls; cp world/images/val-0000000.jpg members/bad.jpg
(cd members && tar cf ../all/objects/test/0.tar bad.jpg bad.cls)
b --checkpoint "$model" --datasets all/objects --out other --quiet --json > bad.json 2> err.txt
grep -q '"bad": *1' bad.json || grep -q "class 99" err.txt || fail "a class that is not there: $(cat err.txt bad.json)"
b --checkpoint "$model" --datasets nowhere --out other --quiet > /dev/null 2>&1 && fail "a data set that is not there"
mkdir empty
b --checkpoint "$model" --datasets empty --out other --quiet > /dev/null 2> err.txt && fail "an empty folder"
grep -q 'test/0.tar' err.txt && [ "$(wc -l < err.txt)" = 1 ] || fail "one clear line: $(cat err.txt)"
exit $bad
