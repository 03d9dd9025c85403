#!/bin/bash
# Results that cannot be written are a failure: exit code 1 and one line on stderr, for every command. Usage: stdout_full.sh CLOOB
set -u
. "$(dirname "$(realpath "$0")")/fixture.sh"
refused() {
    "$cloob" "$@" > /dev/full 2> err
    code=$?
    [ $code = 1 ] || fail "cloob $*: exit code $code"
    [ "$(grep -c 'cannot write to stdout' err)" = 1 ] || fail "cloob $*: $(tail -1 err)"
}
for c in $("$cloob" help | grep -oE '^  [a-z]+ ' ); do refused help "$c"; done
refused --version
refused help
train="--train-data world/train.tsv --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --max-steps 1 --warmup 1 --workers 0 --threads 1 --device cpu --quiet --logs logs"
refused train $train --name b
refused train $train --name c --json
for json in "" --json; do
    refused embed --checkpoint model.safetensors --data world/train.tsv --out x$json.safetensors --quiet $json
    refused classify --checkpoint model.safetensors --labels red,blue $json "$image"
    refused zeroshot --checkpoint model.safetensors --data "$(ls -d world/classes/*/ | head -1)" --quiet $json
    refused retrieve --input e.safetensors $json
    refused analyze --input e.safetensors $json
    refused info model.safetensors $json
    refused info world/train.tsv $json
    refused convert model.safetensors y$json.pt $json
    refused tokenizer train --input world/train.tsv --size 540 --out v$json.txt $json
    refused tokenizer encode --vocab v$json.txt $json "a red ball"
    refused bench loss --n 64 --dim 16 $json
    refused search index world/images --checkpoint model.safetensors --out p$json.index --quiet $json
    refused search query "a red ball" --index p$json.index $json
    refused synth --out other$json --count 4 --size 32 --seed 2 --quiet $json
done
refused doctor
if "$cloob" help serve > /dev/null 2>&1; then # it would wait for requests that nobody can send
    timeout 300 "$cloob" serve --checkpoint model.safetensors --port 0 --device cpu --quiet > /dev/full 2> err
    code=$?
    [ $code = 1 ] && grep -q 'cannot write to stdout' err || fail "cloob serve: exit code $code: $(tail -1 err)"
fi
# The same for files: a limit on their size is an error with a line, and nothing half-written keeps the final name.
limited() {
    out=$1
    shift
    (ulimit -f 1; exec "$cloob" "$@" > printed 2> err)
    code=$?
    [ $code = 1 ] && grep -q "$out.*cannot write\|$out.*cannot reserve" err || fail "ulimit -f, cloob $*: exit code $code: $(tail -1 err)"
    [ ! -e "$out" ] || fail "ulimit -f, cloob $*: left $out"
}
limited big.safetensors convert model.safetensors big.safetensors
limited big.pt convert model.safetensors big.pt
limited big.npy embed --checkpoint model.safetensors --images world/images --out big.npy --quiet
limited big.index search index world/images --checkpoint model.safetensors --out big.index --quiet
limited big.html search query "a red ball" --index p.index --html big.html
limited logs/limited/params.txt train $train --name limited
limited unfinished synth --out world9 --count 2 --size 128 --seed 2 --quiet
exit $bad
