#!/bin/bash
# Input that could give a wrong result silently, or a misleading message. Usage: silent_errors.sh CLOOB
set -u
. "$(dirname "$(realpath "$0")")/fixture.sh"
train="--model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --warmup 1 --workers 0 --threads 1 --device cpu --quiet --logs logs"
refused() { # CODE PATTERN ARGUMENTS...
    want=$1 pattern=$2
    shift 2
    timeout 300 "$cloob" "$@" > out 2> err
    code=$?
    [ $code = "$want" ] && [ "$(grep -c . err)" = 1 ] && grep -q "$pattern" err || fail "cloob $*: code $code: $(tail -1 err)"
}

# an extreme learning rate is reported as divergence
refused 1 'training diverged at step .*learning rate' train $train --train-data world/train.tsv --name diverged --max-steps 20 --lr 1e30

# images with NaN have no embedding
{
    header='{"images":{"dtype":"F32","shape":[1,3,32,32],"data_offsets":[0,12288]}}'
    printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    head -c 12288 /dev/zero | tr '\0' '\377'
} > nan.safetensors
refused 1 'NaN' embed --checkpoint model.safetensors --tensors nan.safetensors --out x.safetensors --quiet

# weights with NaN give no embedding, in images and texts, and no index that later blames another model
if command -v python3 > /dev/null; then
    "$cloob" convert model.safetensors weights --to open_clip --quiet > out 2> err || fail "convert: $(cat err)"
    for tower in visual text_projection; do
        cp -r weights nan
        python3 - nan/open_clip_model.safetensors $tower <<'P'
import json, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = int.from_bytes(data[:8], "little")
for name, t in json.loads(data[8:8 + n]).items():
    if name.startswith(sys.argv[2]):
        begin, end = t["data_offsets"]
        data[8 + n + begin:8 + n + end] = b"\xff" * (end - begin)
open(sys.argv[1], "wb").write(data)
P
        echo "a fish" > texts.txt
        if [ $tower = visual ]; then
            refused 1 'the embedding of image 0 is not finite: the weights are damaged' search index world/images --checkpoint nan --out nan.index --quiet
            [ -e nan.index ] && fail "an index of NaN was written"
            refused 1 'the embedding of image 0 is not finite' embed --checkpoint nan --images "$image" --out x.npy --quiet
        else refused 1 'the embedding of text 0 is not finite' embed --checkpoint nan --texts texts.txt --out x.npy --quiet; fi
        rm -r nan
    done
fi

# an empty file is called empty
: > empty.jpg
: > empty.tsv
refused 1 'empty.jpg: the image file is empty' info empty.jpg --view seen.png --size 32
refused 1 'empty.tsv: the file is empty' train $train --train-data empty.tsv --name empty

# an empty crop is no image
refused 2 'empty' info "$image" --view seen.png --size 32 --crop 1,1,0,0
[ ! -e seen.png ] || fail "an empty crop was written"

# classes that do not match are reported before any prompt is embedded: without a tokenizer nothing could be
"$cloob" convert --quiet model.safetensors bare.pt --to openai > /dev/null || fail "convert"
"$cloob" info model.safetensors | sed -n 's/^config *{/{/p' > config.json
classes=$(ls -d world/classes/*/ | head -1)
printf '{"s":{"classes":["nothing","else"],"templates":["a {}."]}}' > p.json
refused 2 'classes' zeroshot --checkpoint bare.pt --config config.json --data "$classes" --prompts p.json --set s --quiet

# commands with secrets are for their owner alone
"$cloob" synth --out shards --count 24 --size 32 --seed 1 --format webdataset --quiet > /dev/null || fail synth
umask 022
"$cloob" train $train --train-data "pipe:cat shards/train-*.tar" --dataset-type webdataset --train-num-samples 16 --name secret --max-steps 1 > out 2> err || fail "pipe: $(tail -1 err)"
[ "$(stat -c %a logs/secret/params.txt)" = 600 ] || fail "params.txt with a command has mode $(stat -c %a logs/secret/params.txt)"
[ "$(stat -c %a logs/a/params.txt)" = 644 ] || fail "params.txt has mode $(stat -c %a logs/a/params.txt)"

# numbers near 2^63
for flag in "--epochs 9223372036854775807" "--accum-freq 9223372036854775807" "--batch-size 9223372036854775807" \
    "--train-num-samples 9223372036854775807" "--epochs-cooldown 9223372036854775807" "--warmup 9223372036854775807" "--memory queue:9223372036854775807" \
    "--memory queue:4611686018427387904" "--memory queue:99999999999999999999"; do
    refused 2 . train $train --train-data world/train.tsv --name large --max-steps 1 $flag
done
refused 2 'too large for any memory' train $train --train-data world/train.tsv --name large --max-steps 1 --batch-size 10000000 --accum-freq 1000000 --force-image-size 16384
[ ! -e logs/large ] || fail "a refused run left its folder"

# a list of data sets that is something else: a few names and a count, and no reading without end
yes 'Dear reader,' | head -100 > letter
timeout 300 "$cloob" benchmark --checkpoint model.safetensors --datasets letter --out b --quiet > out 2> err
code=$?
[ $code = 1 ] || [ $code = 2 ] || fail "a letter as a list: code $code"
[ "$(grep -c '^warning:' err)" = 6 ] && [ "$(grep -vc '^warning:' err)" = 1 ] || fail "a letter as a list: $(tail -2 err)"
truncate -s 1T hole
refused 1 'neither a folder nor a list' benchmark --checkpoint model.safetensors --datasets hole --out b --quiet
refused 1 'neither a folder nor a list' benchmark --checkpoint model.safetensors --datasets /dev/zero --out b --quiet

# holes of a terabyte are no text
refused 1 'larger than' prompts import hole --out p2.json
mv hole hole.tsv
refused 1 'bytes' info hole.tsv

# a folder that cannot be made is reported once, not for every image
touch taken
refused 1 'taken' classify --checkpoint model.safetensors --labels a,b --sort-into taken world/images --quiet

# a pipe without a writer, as any input
mkfifo nobody.jpg
for c in "classify --checkpoint model.safetensors --labels a,b nobody.jpg" "info nobody.jpg" "info nobody.jpg --view x.png --size 32" "embed --checkpoint model.safetensors --texts nobody.jpg --out x.safetensors"; do
    timeout 300 "$cloob" $c > out 2> err
    code=$?
    [ $code = 1 ] || [ $code = 2 ] || fail "cloob $c: code $code"
done
exit $bad
