#!/bin/bash
# Under any memory limit a command ends in finite time, with its result or with one line. Usage: low_memory.sh CLOOB
set -u
. "$(dirname "$(realpath "$0")")/fixture.sh"
ulimit -c 0
limited() {
    kb=$1
    shift
    ( ulimit -v "$kb"; timeout 300 "$cloob" "$@" > out 2> err )
    code=$?
    case $code in
    0) ;;
    1 | 127) [ "$(grep -c . err)" = 1 ] || fail "ulimit -v $kb: cloob $1: $(grep -c . err) lines: $(tail -2 err)" ;; # 127: the loader's own line
    *) fail "ulimit -v $kb: cloob $1: exit code $code: $(tail -1 err)" ;;
    esac
    echo "$kb $1 $code"
}
train="--train-data world/train.tsv --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --max-steps 1 --warmup 1 --device cpu --quiet --logs logs"
least=$(($(stat -Lc %s "$cloob") / 1024 + 16000)) # below its own size a program is killed before it begins; with GPU code that is 22 MB
for kb in $least 100000 150000 200000 220000 240000 260000 280000 310000 350000 400000 500000; do
    limited $kb --version
    limited $kb classify --quiet --checkpoint model.safetensors --labels red,blue "$image"
    limited $kb train $train --name m$kb --workers 1
    limited $kb retrieve --quiet --input e.safetensors
    limited $kb analyze --quiet --input e.safetensors
    limited $kb convert --quiet model.safetensors x.safetensors
    limited $kb search index world/images --checkpoint model.safetensors --out p.index --quiet
done
exit $bad
