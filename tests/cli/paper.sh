#!/bin/bash
# cloob compare --paper: published tables next to our results, from each kind of file that names a data set. Usage: paper.sh CLOOB
script=$(realpath "$0")
. "$(dirname "$0")/../scratch.sh"
has() { grep -qE -- "$1" out || fail "no $1 in: $(cat out)"; }
paper() { "$cloob" compare --paper "$@" > out 2> err; }

# nothing given: every table, Table 1 with its spreads
paper || fail "tables alone: $(cat err)"
has '^ImageNet +accuracy +20.33 \+- 0.28 +23.97 \+- 0.15 +21.30 \+- 0.42 +25.67 \+- 0.22$'
has '^Birdsnap +accuracy +47.40 +56.20$'
has '^Stanford Cars +accuracy +0.90 +1.29$'
grep -q ours out && fail "a column of results without results"

# a suite's folder: names as export programs write them, the set's own metric, zero-shot and probe apart
mkdir suite
put() { # FILE DATASET TASK METRICS
    echo "{\"dataset\": \"$2\", \"model\": \"RN50\", \"pretrained\": \"x\", \"task\": \"$3\", \"metrics\": {$4}}" > "suite/$1.json"
}
put a wds_vtab-flowers_test zeroshot_classification '"acc1": 0.9, "mean_per_class_recall": 0.125'
put b sets/wds_cars_test zeroshot_classification '"acc1": 0.01'
put c gtsrb linear_probe '"lp_acc1": 0.75, "lp_mean_per_class_recall": 0.5'
put d wds_unheard-of_test zeroshot_classification '"acc1": 0.3'
paper suite || fail "suite: $(cat err)"
has '^Flowers102 +mean_per_class +12.50 +12.56 '
has '^Stanford Cars +accuracy +1.00 +0.91 '
has '^GTSRB +accuracy +75.00 +66.80 +78.90$'
grep -q '^ImageNet ' out && fail "rows without a result"
[ "$(grep -c '^GTSRB' out)" = 1 ] || fail "a probe in tables of zero-shot accuracy"

# five seeds are one mean: training runs, lines of a file, and eval zeroshot --json
for seed in 1 2 3; do
    mkdir -p run$seed/checkpoints
    printf '{"epoch": 1, "imagenet-zeroshot-val-top1": 0.9}\n{"epoch": 2, "imagenet-zeroshot-val-top1": 0.2%s, "imagenetv2-zeroshot-val-top1": 0.25}\n' $seed > run$seed/checkpoints/results.jsonl
done
paper run1 run2 run3 || fail "runs: $(cat err)"
has '^ImageNet +accuracy +22.00 \+- 1.00 \(3\) +20.33 '
has '^ImageNet V2 +accuracy +25.00 \+- 0.00 \(3\) +20.24 '
echo '{"top1": 0.5, "mean_per_class": 0.4, "n": 4, "data": "sets/Birdsnap/test"}' > one.json
echo '{"top1": 0.5, "sets": [{"data": "UCF101/test.tar", "top1": 0.3}, {"data": "other", "top1": 0.1}]}' > two.json
paper one.json two.json --json || fail "zeroshot: $(cat err)"
python3 - out <<'END' || fail "JSON: $(cat out)"
import json, sys
tables = {t["table"]: {r["dataset"]: r for r in t["rows"]} for t in json.load(open(sys.argv[1]))}
cc = tables["zeroshot-cc"]
assert set(cc) == {"birdsnap", "ucf101"}, cc
assert cc["birdsnap"]["ours"] == {"n": 1, "mean": 50, "deviation": None}
assert cc["ucf101"]["ours"]["mean"] == 30
assert [(c["column"], c["preset"], c["mean"]) for c in cc["ucf101"]["paper"]] == [
    ("CLIP", "clip-cc", 20.98), ("CLOOB", "cc", 22.26), ("CLIP*", "clip-cc-128", 21.63), ("CLOOB*", "cc-128", 23.03)]
assert "probe-yfcc-openai" not in tables
END
paper suite --format markdown && has '^\| GTSRB \| accuracy \| 75.00 \| 66.80 \| 78.90 \|$'

# every preset that a column names exists
paper --json && for p in $(grep -o '"preset": "[^"]*"' out | sort -u | cut -d'"' -f4); do
    "$cloob" help --presets | grep -q "^## $p\$\|^$p\b" || fail "no preset $p"
done

# the page of benchmarks has every data set with its counts
root=$(dirname "$script")/../..
grep '^SET(' "$root/tools/lab/compare/data_sets.def" | tr -d '"' > sets
[ "$(wc -l < sets)" -ge 20 ] || fail "data_sets.def has $(wc -l < sets) rows"
while IFS=, read -r _ _ title classes train test metric _ paper; do
    number() { awk -v n="$1" 'BEGIN { n += 0; if (n == 0) { print "-"; exit } s = ""; while (n >= 1000) { s = sprintf(",%03d", n % 1000) s; n = int(n / 1000) } print n s }'; }
    yes=; [ "$paper" = " true)" ] && yes='yes '
    row="|$title | $(number "$classes") | $(number "$train") | $(number "$test") |${metric//_/ } | $yes|"
    grep -qF -- "$row" "$root/docs/reference/benchmarks.md" || fail "benchmarks.md has no row $row"
done < sets

# what has nothing to compare says so
paper none.json && fail "a file that is not there"
echo '{"data": "mine", "top1": 1}' > mine.json
paper mine.json && fail "an unknown data set"
grep -q 'mine.json: has no result on a published data set' err || fail "an unknown data set: $(cat err)"
echo '{"data": "mnist", "top1": 1}' > mnist.json
paper mnist.json && fail "a data set of no table"
grep -q 'no published table' err || fail "a data set of no table: $(cat err)"
paper suite --by method
[ $? = 2 ] || fail "--by with --paper"
exit $bad
