#!/bin/bash
# The rows of docs/reference/determinism.md that one machine can check: which runs give equal bytes. Usage: determinism.sh CLOOB
set -u
cloob=$(realpath "$1")
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-determinism-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
bad=0
fail() { echo "FAIL: $*"; bad=1; }
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
DNNL_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem train older --threads 1 --workers 0 > /dev/null
near older || fail "an older instruction set is not equal to rounding"
[ "$(train seed --threads 1 --workers 0 --seed 5)" != "$a" ] || fail "another seed gives the same run: the comparison is blind"
near seed && fail "another seed is equal to rounding: the comparison is blind"
for key in version threads world_size device processor instructions; do grep -q "^$key: " logs/a/params.txt || fail "params.txt does not name $key"; done
exit $bad
