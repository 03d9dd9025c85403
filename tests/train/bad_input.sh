#!/bin/bash
# Wrong flags and input: each gives one line that names the mistake, and the right exit code. Usage: bad_input.sh CLOOB
. "$(dirname "$0")/../expect_error.sh"
base=(train --dataset-type synthetic --train-num-samples 16 --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8
    --max-steps 2 --warmup 1 --workers 0 --threads 1 --device cpu --quiet)

# Every flag that takes a number, with none.
for flag in $("$cloob" help train 2>&1 | grep -oE '^ +--[a-z0-9-]+ (N|X|D)( |$)' | awk '{ print $1 }'); do refused 2 "$flag" "$flag" x; done
for flag in batch-size epochs workers accum-freq save-frequency log-every-n-steps warmup wd ema grad-clip-norm init-inv-tau scale-hopfield; do
    refused 2 "--$flag" "--$flag" -1
done
for flag in batch-size epochs accum-freq log-every-n-steps restart-cycles init-inv-tau; do refused 2 "--$flag" "--$flag" 0; done

# Words that are not among the choices.
refused 2 --method --method hopfield
refused 2 --lr-scheduler --lr-scheduler linear
refused 2 --dataset-type --dataset-type lmdb
refused 2 --precision --precision fp64
refused 2 amp_bf16 --precision fp16
refused 2 --report-to --report-to wandb
refused 2 --memory --memory queue
refused 2 --memory --memory queue:0
refused 2 --memory --memory queue:many
refused 2 --memory --memory file:
refused 1 nowhere.safetensors --memory file:nowhere.safetensors
refused 2 preset --preset laion
refused 2 nosuch --device nosuch
refused 2 --save-every --save-every often
refused 2 --save-every --save-every 10weeks
refused 2 --csv-separator --csv-separator ab
refused 2 --image-mean --image-mean 0.5 0.5
refused 2 --image-std --image-mean 0.5,0.5,0.5 --image-std 0,1,1
refused 2 'must be given together' --image-mean 0.5 0.5 0.5
refused 2 nosuch --aug-cfg nosuch=1
refused 2 scale --aug-cfg scale=2,3
for name in a/b . .. '' /tmp ../up $'two\nlines'; do refused 2 --name --name "$name"; done
refused 2 --name --name=-x
mkdir fresh # an empty folder above --logs, so that no earlier run is the reason
refused 2 --name --logs fresh/logs --name ..
[ -z "$(ls -A fresh)" ] || { echo "FAIL: --name .. wrote $(ls -A fresh)"; bad=1; }
refused 2 vocab --vocab-size 100
refused 2 batchsize --batchsize 3
refused 2 --image-decoder --image-decoder hardware
refused 1 --image-decoder --image-decoder gpu
refused 2 --ema --ema 1
refused 2 --beta --beta1 1.5

# Flags that do not go together.
refused 2 --lock-text --lock-image --lock-text
refused 2 --pretrained --resume latest --pretrained x.pt --name x
refused 2 --name --resume latest
refused 2 --epochs-cooldown --lr-scheduler const-cooldown
refused 2 --epochs-cooldown --epochs-cooldown 3
refused 2 --epochs-cooldown --lr-scheduler const-cooldown --epochs-cooldown 3 --epochs 2
refused 2 --restart-cycles --restart-cycles 3
refused 2 --dataset-resampled --train-data-upsampling-factors 1::2
refused 2 --zeroshot-prompts --zeroshot-set birds
refused 2 --val-data --analyze
refused 2 --train-data --dataset-type auto

# Things that are not there, or not what they should be.
refused 1 nowhere.tsv --dataset-type auto --train-data nowhere.tsv
refused 1 nowhere.txt --vocab nowhere.txt
refused 1 nofolder --zeroshot-data nofolder
refused 1 nowhere.pt --pretrained nowhere.pt
refused 1 nowhere.safetensors --resume nowhere.safetensors
refused 1 "no such run" --resume latest --name nobody
refused 2 nosuchmodel --model nosuchmodel
refused 2 "batch" --batch-size 1000

# Half of the paths are wrong: three of them and what helps; with --allow-bad-samples, the number of samples, not of reads.
"$cloob" synth --out world --count 80 --val-count 16 --per-class 2 --size 32 --quiet > /dev/null || { echo "FAIL: synth"; bad=1; }
awk -F'\t' -v OFS='\t' 'NR > 1 && NR % 2 { $1 = "gone/" $1 } { print }' world/train.tsv > world/half.tsv
for workers in 0 4; do
    for source in "--train-data world/half.tsv" "--train-data world/train.tsv --val-data world/half.tsv"; do
        refused 1 "gone/images" --dataset-type csv $source --train-num-samples 80 --workers $workers --epochs 3 --max-steps 0 --logs logs --name "half$tried"
        grep -qE 'more than 5 % of the first 80 samples.*(gone/images.*){3}--path-data.*--allow-bad-samples' line || { echo "FAIL: half of the paths: $(cat line)"; bad=1; }
    done
done
timeout 100 "$cloob" "${base[@]}" --dataset-type csv --train-data world/half.tsv --train-num-samples 80 --epochs 3 --max-steps 0 --allow-bad-samples --logs logs --name half > out 2> err &&
    grep -q 'done: 30 steps.* 40 bad samples' logs/half/out.log || { echo "FAIL: --allow-bad-samples: $(cat err; tail -1 logs/half/out.log)"; bad=1; }
refused 1 'no column "nope"; the header has: filepath, title' --dataset-type csv --train-data world/train.tsv --csv-caption-key nope
tr '\t' ',' < world/train.tsv > world/commas.csv
refused 1 'no column "nope"; the header has: filepath, title (see --csv-caption-key' --dataset-type csv --train-data world/commas.csv --csv-caption-key nope
refused 1 'no column "nope"; the header has: filepath, title (see --csv-img-key' --dataset-type csv --train-data world/commas.csv --csv-img-key nope

# Runs that are there.
"$cloob" "${base[@]}" --logs logs --name first > /dev/null 2>&1 || { echo "FAIL: a good run"; bad=1; }
refused 2 "a run of this name exists" --logs logs --name first
refused 2 "the checkpoint holds tiny-rn" --logs logs --name first --resume latest --model tiny-vit
refused 2 "the checkpoint holds tiny-rn" --logs logs --name first --resume latest --force-image-size 64
head -c 100000 logs/first/checkpoints/latest.safetensors > cut.safetensors
refused 1 "cut short" --logs logs --name second --resume cut.safetensors
head -c 5 cut.safetensors > five.safetensors
refused 1 five.safetensors --logs logs --name second --resume five.safetensors
refused 1 "cut short" --logs logs --name second --pretrained cut.safetensors
echo text > text.safetensors
refused 1 text.safetensors --logs logs --name second --resume text.safetensors
mkdir -p logs/broken/checkpoints && cp cut.safetensors logs/broken/checkpoints/latest.safetensors
refused 1 "no valid checkpoint" --logs logs --name broken --resume latest
touch file
refused 1 file --logs file/logs --name second
refused 1 "cannot make the folder" --logs /proc/logs --name second
if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod a-w locked
    refused 1 locked --logs locked --name second
fi
(ulimit -f 64; refused 1 "cannot write" --logs logs --name full; exit $bad) || bad=1

# A run's settings that are a command: nothing that a file says is run, also not behind :: or out of braces.
"$cloob" synth --out shards --count 24 --size 32 --seed 1 --format webdataset --quiet > /dev/null || { echo "FAIL: synth"; bad=1; }
piped=(train --dataset-type webdataset --train-data "pipe:cat shards/train-*.tar" --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8
    --epochs 2 --warmup 1 --workers 0 --threads 1 --device cpu --quiet --logs logs --name piped)
timeout 100 "$cloob" "${piped[@]}" --max-steps 1 > out 2> err || { echo "FAIL: pipe: on the command line: $(cat err)"; bad=1; }
resumed() { # KEY VALUE: says that KEY is needed again, and leaves no file "ran"
    sed -i "s|^  \"$1\": .*|  \"$1\": \"$2\",|" logs/piped/settings.json
    sed -i "s|^$1: .*|$1: $2|" logs/piped/params.txt
    timeout 100 "$cloob" train --resume piped --logs logs --max-steps 2 > out 2> err
    code=$?
    tried=$((tried + 1))
    [ $code = 2 ] && grep -q -- "--${1//_/-} .*command.* again" err && [ ! -e ran ] || { echo "FAIL: resume with $1 $2: code $code, $(cat err; ls ran 2> /dev/null)"; bad=1; }
}
for value in "pipe:touch ran; cat shards/train-*.tar" "shards/train-00000.tar::pipe:touch ran" "{p,q}ipe:touch ran" "{pipe,x}:touch ran"; do
    resumed train_data "$value"
done
timeout 100 "$cloob" train --resume piped --logs logs --max-steps 2 --train-data "pipe:cat shards/train-*.tar" > out 2> err || { echo "FAIL: resume with --train-data again: $(cat err)"; bad=1; }
for key in zeroshot_data imagenet_val imagenet_v2 val_data; do
    sed -i -E "s#^  \"train_data\": .*#  \"train_data\": \"shards/train-00000.tar\",#; s#^  \"(zeroshot_data|imagenet_val|imagenet_v2|val_data)\": .*#  \"\1\": null,#" logs/piped/settings.json
    resumed $key "pipe:touch ran; cat shards/train-*.tar"
done
timeout 100 "$cloob" report logs/piped --out page.html > out 2> err
grep -q 'is a command' err && [ ! -e ran ] || { echo "FAIL: report ran a command of params.txt: $(cat err; ls ran 2> /dev/null)"; bad=1; }

# A run's folder from elsewhere, with links to files that are not the run's: nothing is written through them.
linked() { # FILE TARGET: FILE of the run is a link to it
    cp -r logs/first logs/linked && rm -f "logs/linked/$1" && mkdir -p "$(dirname "logs/linked/$1")" && ln -s "$2" "logs/linked/$1"
    cp logs/first/settings.json precious # what is read before it is written has to be readable
    cp precious kept
    refused 1 "$1: a link out of the run's folder" --logs logs --name linked --resume latest --epochs 4 --max-steps 0
    cmp -s precious kept || { echo "FAIL: resuming wrote through $1"; bad=1; }
    rm -rf logs/linked
}
for file in .lock out.log metrics.tsv params.txt settings.json provenance.jsonl layers.tsv checkpoints/results.jsonl checkpoints/epoch_2.safetensors analysis/epoch_2/eigenvalues.tsv; do
    linked $file "$PWD/precious"
done
linked out.log ../../nowhere
cp -r logs/first logs/linked && mv logs/linked/checkpoints elsewhere && ln -s "$PWD/elsewhere" logs/linked/checkpoints && ln -s out.log logs/linked/log
timeout 100 "$cloob" "${base[@]}" --logs logs --name linked --resume latest --epochs 4 --max-steps 0 > out 2> err || { echo "FAIL: links to folders and within one: $(cat err)"; bad=1; }

# Memory: refused before the first step, with the largest batch that fits; that one trains.
export CLOOB_MEMORY_LIMIT=100M
refused 1 "the largest batch that fits is" --logs logs --name large --batch-size 4000 --train-num-samples 4000
most=$(grep -oE 'fits is [0-9]+' line | grep -oE '[0-9]+')
CLOOB_MEMORY_LIMIT=1M refused 1 "even the smallest batch" --logs logs --name large
CLOOB_MEMORY_LIMIT=much refused 2 CLOOB_MEMORY_LIMIT --logs logs --name large
[ "${most:-0}" -gt 8 ] || { echo "FAIL: no batch that fits: $(cat line)"; bad=1; }
refused 1 "the largest batch that fits is $most;" --logs logs --name large --batch-size $((most + 1)) --train-num-samples 4000
timeout 300 "$cloob" "${base[@]}" --logs logs --name large --batch-size "$most" --train-num-samples 4000 > out 2> err || { echo "FAIL: $most: $(cat err)"; bad=1; }
unset CLOOB_MEMORY_LIMIT
echo "$tried mistakes tried"
exit $bad
