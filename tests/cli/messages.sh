#!/bin/bash
# Mistakes of new users: the message names the probable intention, or the missing part. Usage: messages.sh CLOOB
set -u
. "$(dirname "$(realpath "$0")")/fixture.sh"
says() { # CODE PATTERN ARGUMENTS...: the exit code, and the pattern on stderr
    local want=$1 pattern=$2 code
    shift 2
    "$cloob" "$@" > out 2> err
    code=$?
    [ $code = "$want" ] && grep -qE -- "$pattern" err || fail "cloob $*: code $code: $(cat err)"
}

# what other programs call an option, and where data belongs
says 2 'did you mean --lr\?' train --train-data world/train.tsv --learning-rate 1e-3
says 2 'did you mean --lr\?' train --train-data world/train.tsv --learning_rate=1e-3
says 2 'did you mean --wd\?' train --train-data world/train.tsv --weight-decay 0.1
says 2 'did you mean --batch-size\?' train --train-data world/train.tsv --bs 8
says 2 'did you mean --train-data captions.csv\?' train captions.csv
says 2 'did you mean --images photos\?' embed --checkpoint model.safetensors --out e.npy photos
says 2 'did you mean --input e.safetensors\?' eval retrieval e.safetensors
for given in amp f16 fp16 amp_fp16; do says 2 "--precision $given: .*did you mean amp_bf16\?" train --train-data world/train.tsv --precision $given; done
for given in half float16; do
    says 2 "--precision $given: .*did you mean amp_bf16\?" train --train-data world/train.tsv --precision $given
    says 2 "--precision $given: .*did you mean f16\?" embed --checkpoint model.safetensors --images world --out e.npy --precision $given
done
says 2 'did you mean bf16\?' embed --checkpoint model.safetensors --images world --out e.npy --precision bfloat16
for c in 'loss --input e.safetensors' 'bench loss' 'bench step'; do
    # shellcheck disable=SC2086
    says 2 '--precision f16: must be one of fp32\|bf16\|amp_bf16; did you mean amp_bf16\?' $c --precision f16
    # shellcheck disable=SC2086
    "$cloob" help ${c%% --*} | grep -q -- '--precision fp32|bf16|amp_bf16 ' || fail "help ${c%% --*}: --precision"
done
says 1 'nosuchrun: no such file' compare nosuchrun
"$cloob" help train | tr -s '\n ' ' ' | grep -q 'train-data SOURCE .*a CSV or TSV file, a folder of images with a text file each' || fail "help train does not name folders as sources"

# a checkpoint that is something else
echo "Dear reader," > letter.txt
head -c 5000 /dev/zero | tr '\0' '\231' > noise.bin
says 1 'letter.txt: not a model, but a text file; give a .safetensors' embed --checkpoint letter.txt --images world --out e.npy
says 1 'not a model, but a (JPEG|PNG) image' embed --checkpoint "$image" --images world --out e.npy
says 1 'noise.bin: not a safetensors file' embed --checkpoint noise.bin --images world --out e.npy
says 1 'not a safetensors file, but a text file' eval retrieval --input letter.txt

# a folder that has nothing to describe, or has it one level below
mkdir -p foreign empty tables
cp letter.txt foreign
cp world/train.tsv tables
says 1 'foreign: neither a model .* nor a run .* nor images$' info foreign
says 1 'empty: neither a model' info empty
says 1 'did you mean tables/train.tsv\?' info tables
says 1 'did you mean logs/a\?' info logs
says 1 'similar names: RN50, ' info RN51
says 1 'unknown model "nosuch"; use a name such as RN50' info nosuch

# runs that cannot be compared
says 2 'logs/a: left out: it was never validated; train with --val-data or --zeroshot-data' compare logs/a
says 2 'nothing to compare: 1 run was left out; give finished runs with validation results' compare logs/a
[ $bad = 0 ] && echo "messages help"
exit $bad
