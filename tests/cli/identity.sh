#!/bin/sh
# Nothing loses its identity: predictions and confusion add up to the accuracy that is told, folders of a subset map onto the prompts'
# classes, embeddings name their rows. usage: identity.sh CLOOB
. "$(dirname "$0")/fixture.sh"
"$cloob" zeroshot --checkpoint model.safetensors --data world/classes/object --prompts world/prompts.json --set object \
    --predictions p.csv --confusion c.csv --json --quiet > z.json || fail "zeroshot"
number() { grep -o "\"$1\": [0-9.e-]*" z.json | head -1 | cut -d' ' -f2; }
top1=$(number top1) n=$(number n)
head -1 p.csv | grep -q '^image,label,predicted,p,correct$' || fail "heading of the predictions"
awk -F, -v n="$n" -v top1="$top1" 'NR > 1 { right += $5; if (($2 == $3) != $5) wrong = 1; if (!($4 > 0 && $4 <= 1)) wrong = 1 }
    END { exit !(NR - 1 == n && !wrong && (right / n - top1) ^ 2 < 1e-12) }' p.csv || fail "predictions do not make top1 $top1 of $n"
awk -F, -v n="$n" -v top1="$top1" 'NR > 1 { for (k = 2; k <= NF; k++) sum += $k; right += $NR }
    END { exit !(sum == n && (right / n - top1) ^ 2 < 1e-12) }' c.csv || fail "the confusion does not make top1 $top1 of $n"
"$cloob" zeroshot --checkpoint model.safetensors --data world/classes/object --prompts world/prompts.json --set object \
    --predictions p.jsonl --json --quiet > /dev/null || fail "zeroshot to lines"
[ "$(wc -l < p.jsonl)" = "$n" ] && grep -q '"correct": \(true\|false\)}$' p.jsonl || fail "lines of predictions"

# Some of the classes, under names of their own.
set -- $(ls world/classes/object | head -3)
mkdir subset && cp -r "world/classes/object/$1" subset/n01 && cp -r "world/classes/object/$2" subset/n02 && cp -r "world/classes/object/$3" subset/n03
{ echo "# folder, class"; printf 'n03\t%s\nn01\t%s\nn02\t%s\nn99\t%s\n' "$3" "$1" "$2" "$1"; } > map.tsv
subset() { "$cloob" zeroshot --checkpoint model.safetensors --data subset --prompts world/prompts.json --set object --classes-map "$@" --quiet; }
subset map.tsv --confusion s.csv --json > s.json || fail "a subset"
head -1 s.csv | awk -F, '{ exit NF != 4 }' || fail "a subset is scored among its classes"
grep -q '"top5": 1,' s.json || fail "three classes are within the best five"
printf 'n01\t%s|%s\nn02\t%s\nn03\t%s\n' "$1" "$3" "$2" "$3" > overlap.tsv
subset overlap.tsv > /dev/null 2> e.txt && fail "an overlap was taken"
grep -q 'share a part' e.txt || fail "an overlap: $(cat e.txt)"
printf 'n01\t%s\nn02\tunicorn\nn03\t%s\n' "$1" "$3" > unknown.tsv
subset unknown.tsv > /dev/null 2> e.txt && fail "an unknown class was taken"
grep -q 'line 2: "unicorn" is not among' e.txt || fail "an unknown class: $(cat e.txt)"
printf 'n01\t%s\nn02\t%s\n' "$1" "$2" > missing.tsv
subset missing.tsv > /dev/null 2> e.txt && fail "a folder without a class was taken"
grep -q '"n03"' e.txt || fail "a folder without a class: $(cat e.txt)"

# Every row of a file of embeddings is named.
"$cloob" embed --checkpoint model.safetensors --data subset --out subset.npy --quiet > /dev/null 2> e.txt && fail ".npy with labels was written"
"$cloob" embed --checkpoint model.safetensors --data subset --out subset.safetensors --quiet > /dev/null || fail "embed"
head -c 20000 subset.safetensors | grep -aq '"names":' && head -c 20000 subset.safetensors | grep -aq 'subset/n02/' || fail "names"
head -c 20000 e.safetensors | grep -aq '"captions":' || fail "captions"
exit $bad
