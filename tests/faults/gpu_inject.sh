#!/bin/bash
# Walks the n-th failure of the GPU's driver through a training: out of memory, a kernel that cannot be launched, a GPU that is lost.
# Each run must end with its result, or with one line and exit code 1, and leave the checkpoint of the run before it whole.
# Usage: gpu_inject.sh CLOOB GPU_FAULTS_LIBRARY [POINTS]: at most POINTS points for each kind, evenly spread (6). Needs a GPU and Python.
set -u
cloob=$(realpath "$1") faults=$(realpath "$2") points=${3:-6}
root=$(realpath "$(dirname "$0")/../..")
"$cloob" bench loss --n 16 --dim 8 --repeats 1 --device cuda > /dev/null 2>&1 || { echo "skipped: no GPU here"; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-test-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export CLOOB_TUNE_CACHE=$dir GOMP_SPINCOUNT=2000
ulimit -c 0
python3 "$root/bench/colour_pairs.py" world 256 > /dev/null || { echo "skipped: no Python that makes images"; exit 77; }
train() { timeout 100 "$cloob" train --train-data world/train.tsv --model tiny-vit --vocab-size 540 --batch-size 32 --warmup 1 --workers 1 \
    --device cuda --precision amp_bf16 --quiet --logs logs --name "$@"; }
train first --max-steps 4 > /dev/null 2> err || { echo "FAIL: $(tail -1 err)"; exit 1; }
one() { # KIND N: continues a copy of the first run
    rm -rf "logs/$1-$2"; cp -r logs/first "logs/$1-$2"
    CLOOB_GPU_FAULT=$1:$2 CLOOB_GPU_FAULT_COUNT=$dir/count-$1-$2 LD_PRELOAD=$faults \
        train "$1-$2" --resume latest --max-steps 12 --save-every 4steps > "out-$1-$2" 2> "err-$1-$2"
    code=$? lines=$(wc -l < "err-$1-$2")
    whole=yes
    for f in "logs/$1-$2"/checkpoints/*.safetensors; do "$cloob" info "$f" > /dev/null 2>&1 || whole="$f is damaged"; done
    [ -z "$(find "logs/$1-$2" -name '*.tmp*')" ] || whole="left over: $(find "logs/$1-$2" -name '*.tmp*' | head -1)"
    verdict=ok
    [ $code = 0 ] || { [ $code = 1 ] && [ "$lines" = 1 ]; } || verdict=BAD
    [ "$whole" = yes ] || verdict=BAD
    echo "$verdict $1 $2: exit code $code, $lines lines, $(head -c 160 "err-$1-$2" | head -1) $whole"
    rm -rf "logs/$1-$2"
}
bad=0
for kind in memory kernel lost; do
    one $kind 0 > line; calls=$(cat count-$kind-0 2> /dev/null || echo 0)
    grep -q '^ok' line || { cat line; bad=1; }
    [ "$calls" -gt 0 ] || { echo "FAIL: no call of kind $kind was seen"; bad=1; continue; }
    step=$(((calls + points - 1) / points))
    for ((n = 1; n <= calls; n += step)); do one $kind $n & [ $((n / step % 8)) = 7 ] && wait; done > lines; wait
    cat lines | sort | cut -c1-220
    echo "$kind: $calls calls, $(grep -c . lines) points, $(grep -c '^ok.*exit code 1' lines) refused in one line, $(grep -c '^ok.*exit code 0' lines) tolerated, $(grep -c '^BAD' lines) bad"
    grep -q '^BAD' lines && bad=1
done
exit $bad
