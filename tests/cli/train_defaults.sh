#!/bin/bash
# Training with almost no flags: the chosen settings, their lines in the log, and resuming. Usage: train_defaults.sh CLOOB
. "$(dirname "$0")/../scratch.sh"
export OMP_NUM_THREADS=1
has() { grep -qxF "$2" "logs/$1/params.txt" || fail "$1: params.txt lacks '$2': $(grep "^${2%%:*}:" "logs/$1/params.txt")"; }
few=(--vocab-size 540 --workers 0 --threads 1 --device cpu)
"$cloob" synth --out world --count 80 --val-count 16 --per-class 2 --size 32 --quiet > out 2> err || fail "synth: $(cat err)"

# Nothing but the data: a small model at the size of the images, a warm-up that fits, a line for each choice.
"$cloob" train --train-data world/train.tsv "${few[@]}" --schedule-steps 2 --name plain > out 2> err || fail "train: $(cat err)"
has plain 'model: tiny'
has plain 'force_image_size: 32'
has plain 'warmup: 1'
has plain 'epochs: 32'
has plain 'init_inv_tau: 15'
for flag in model warmup lr hopfield-warmup init-inv-tau; do
    case $flag in hopfield-warmup) continue ;; esac # 2 steps: none
    grep -q -- "^--$flag " err || fail "the log does not say which --$flag was chosen: $(cat err)"
done
grep -q 'vocabulary of' err || fail "a small vocabulary is not mentioned"

# open_clip's defaults and the paper's values stay where a model is named or they are given.
"$cloob" train --train-data world/train.tsv "${few[@]}" --model tiny --force-image-size 32 --max-steps 1 --batch-size 8 --name named > out 2> err || fail "named: $(cat err)"
has named 'init_inv_tau: 30'
has named 'hopfield_warmup: 0'
has named 'lr: 0.0005'
"$cloob" train --train-data world/train.tsv "${few[@]}" --preset cc --global-batch-size 8 --model tiny --force-image-size 32 --schedule-steps 2 --name paper > out 2> err || fail "paper: $(cat err)"
has paper 'warmup: 20000'
has paper 'hopfield_warmup: 0'
grep -q 'warning: the warm-up of 20000 steps is longer than the run of 2' err || fail "a warm-up longer than the run is not mentioned: $(cat err)"
"$cloob" train --dataset-type synthetic --train-num-samples 6 "${few[@]}" --model tiny-rn --force-image-size 32 --max-steps 1 --name six > out 2> err || fail "six pairs: $(cat err)"
has six 'batch_size: 6'

# --resume NAME needs nothing else, and ends with the same bytes; flags win.
same=(--train-data world/train.tsv "${few[@]}" --model tiny-rn --force-image-size 32 --batch-size 8 --epochs 2 --lr 1e-3 --aug-cfg 'scale=(0.5, 1.0)' gray_scale_prob=0.1 --quiet)
"$cloob" train "${same[@]}" --name whole > out 2> err || fail "whole: $(cat err)"
"$cloob" train "${same[@]}" --save-every 3steps --name half > out 2> err || fail "half: $(cat err)"
cp logs/half/params.txt params
rm -f logs/half/checkpoints/epoch_*.safetensors logs/half/checkpoints/latest.safetensors # what a kill would have left
[ -e logs/half/checkpoints/recent.safetensors ] || fail "no checkpoint inside an epoch: $(ls logs/half/checkpoints)"
"$cloob" train --resume half --threads 1 > out 2> err || fail "--resume NAME: $(cat err)"
digest() { "$cloob" embed --checkpoint "logs/$1/checkpoints/epoch_2.safetensors" --data world/val.tsv --out "$1.safetensors" --threads 1 --quiet > /dev/null 2> err || fail "embed: $(cat err)"; cksum < "$1.safetensors"; }
[ "$(digest whole)" = "$(digest half)" ] || fail "a resumed run is another run"
for key in lr warmup epochs batch_size aug_cfg vocab_size train_data; do
    [ "$(grep "^$key:" params)" = "$(grep "^$key:" logs/half/params.txt)" ] || fail "--resume changed $key: $(grep "^$key:" logs/half/params.txt)"
done
"$cloob" train --resume half --epochs 3 --threads 1 > out 2> err || fail "--resume NAME --epochs 3: $(cat err)"
[ -e logs/half/checkpoints/epoch_3.safetensors ] || fail "--epochs does not win over the run's"
"$cloob" train --resume logs/half/ --epochs 4 --threads 1 > out 2> err || fail "--resume FOLDER: $(cat err)"
[ -e logs/half/checkpoints/epoch_4.safetensors ] || fail "--resume FOLDER did not go on"
# --max-steps stops a run and is forgotten: the same line with more, or without it, continues to the same bytes.
"$cloob" train "${same[@]}" --max-steps 4 --name stops > out 2> err || fail "--max-steps: $(cat err)"
"$cloob" train --resume stops --max-steps 8 --threads 1 > out 2> err || fail "--resume NAME --max-steps 8: $(cat err)"
grep -q 'stopped by --max-steps after 8 of 20 steps.*--resume stops' err || fail "--resume NAME --max-steps 8: $(cat err)"
grep -q max_steps logs/stops/params.txt && fail "--max-steps is stored: $(grep max_steps logs/stops/params.txt)"
"$cloob" train --resume stops --max-steps 8 --threads 1 > out 2> err || fail "--resume NAME --max-steps 8 again: $(cat err)"
grep -q 'at step 8 of 20 already; a larger --max-steps' err || fail "--resume NAME --max-steps 8 again: $(cat err)"
"$cloob" train --resume stops --threads 1 > out 2> err || fail "--resume of a stopped run: $(cat err)"
[ "$(digest whole)" = "$(digest stops)" ] || fail "--max-steps changes the learning rates"
"$cloob" train --resume nowhere > out 2> err && fail "a run that is not there was resumed"
grep -q 'no such run to resume' err || fail "no such run: $(cat err)"

# A run that failed before its first checkpoint does not block its name; one that has a checkpoint does.
mkdir -p logs/early/checkpoints && echo x > logs/early/out.log && echo 'model: RN50' > logs/early/params.txt
"$cloob" train "${same[@]}" --max-steps 1 --name early > out 2> err || fail "the name of a failed run is blocked: $(cat err)"
grep -q '^x$' logs/early/out.log && fail "the failed run's log is still there"
"$cloob" train "${same[@]}" --max-steps 1 --name early > out 2> err && fail "a run was overwritten"
grep -q 'a run of this name exists' err || fail "the name is taken: $(cat err)"

# Recipes.
"$cloob" train --preset finetune --train-data world/train.tsv > out 2> err && fail "finetune without weights"
grep -q -- '--pretrained' err || fail "finetune: $(cat err)"
"$cloob" train --preset finetune --pretrained logs/early/checkpoints/latest.safetensors --train-data world/train.tsv --max-steps 2 --threads 1 --workers 0 --name tuned > out 2> err || fail "finetune: $(cat err)"
has tuned 'lr: 0.0003' # as much as any model takes
has tuned 'epochs: 100' # a handful of pairs
has tuned 'aug_scale_min: 0.6'
has tuned 'hopfield_warmup: 1000' # a short run does without retrieval
grep -q 'lr.*parameters; smaller models take more' logs/tuned/out.log || fail "finetune does not say why: $(cat logs/tuned/out.log)"
"$cloob" train --preset finetune --pretrained logs/early/checkpoints/latest.safetensors --train-data world/train.tsv --max-steps 1 --threads 1 --workers 0 --lr 2e-5 --epochs 4 --hopfield-warmup 7 --aug-scale-min 0.8 --name typed > out 2> err || fail "finetune with flags: $(cat err)"
has typed 'lr: 2e-05'
has typed 'epochs: 4'
has typed 'hopfield_warmup: 7'
has typed 'aug_scale_min: 0.8'
"$cloob" train --finetune "${same[@]}" --max-steps 1 --name aimless > out 2> err && fail "--finetune without weights"
grep -q 'needs --pretrained weights' err || fail "--finetune without weights: $(cat err)"
"$cloob" train --resume tuned --max-steps 3 --threads 1 > out 2> err || fail "resume of a fine-tuned run: $(cat err)"
"$cloob" train --preset small --train-data world/train.tsv "${few[@]}" --force-image-size 32 --max-steps 1 --name small > out 2> err || fail "small: $(cat err)"
has small 'model: tiny'
"$cloob" train --preset finetune --pretrained logs/small/checkpoints/latest.safetensors --train-data world/train.tsv --max-steps 1 --threads 1 --workers 0 --name larger > out 2> err || fail "finetune of tiny: $(cat err)"
has larger 'lr: 0.0002' # 2 M parameters
# Weights bring their method, temperature and beta, in one line; flags win. Published CLIP weights say it by their logit_scale, which is learned.
tune=(--train-data world/train.tsv --max-steps 1 --threads 1 --workers 0 --device cpu)
"$cloob" train "${same[@]}" --max-steps 1 --method clip --init-inv-tau 20 --learnable-inv-tau --name clip > out 2> err || fail "clip: $(cat err)"
"$cloob" train --preset finetune --pretrained logs/clip "${tune[@]}" --name clip-on > out 2> err || fail "finetune of CLIP: $(cat err)"
has clip-on 'method: clip'
has clip-on 'learnable_inv_tau: True'
grep -qE '^init_inv_tau: (20|19\.9|20\.0)' logs/clip-on/params.txt || fail "the temperature of the weights: $(grep init_inv_tau logs/clip-on/params.txt)"
[ "$(grep -cE '^--method clip, --init-inv-tau (20|19|20\.0)[0-9.]* \(learned on\): as in logs/clip' err)" = 1 ] || fail "what the weights brought is not told: $(cat err)"
"$cloob" train --pretrained logs/clip "${tune[@]}" --batch-size 8 --init-inv-tau 7 --name clip-7 > out 2> err || fail "--init-inv-tau: $(cat err)"
has clip-7 'method: clip'
has clip-7 'init_inv_tau: 7'
has clip-7 'learnable_inv_tau: False'
"$cloob" train --pretrained logs/clip "${tune[@]}" --batch-size 8 --method cloob --name cloob-on > out 2> err || fail "--method: $(cat err)"
has cloob-on 'method: cloob'
has cloob-on 'init_inv_tau: 30'
has cloob-on 'scale_hopfield: 8'
grep -q 'method cloob; the weights of logs/clip are of clip' err || fail "another method than the weights' is not told: $(cat err)"
"$cloob" train --resume latest --name clip --train-data world/train.tsv --epochs 2 --batch-size 8 --max-steps 2 --threads 1 --workers 0 --learnable-inv-tau --quiet > out 2> err || fail "resume of clip: $(cat err)"
has clip 'method: clip'
"$cloob" train "${same[@]}" --max-steps 1 --method infonce-hopfield --scale-hopfield 5 --init-inv-tau 11 --name beta > out 2> err || fail "beta: $(cat err)"
"$cloob" train --pretrained logs/beta "${tune[@]}" --batch-size 8 --name beta-on > out 2> err || fail "finetune with beta: $(cat err)"
has beta-on 'method: infonce-hopfield'
has beta-on 'init_inv_tau: 11'
has beta-on 'scale_hopfield: 5'
has beta-on 'learnable_inv_tau: False'
"$cloob" convert logs/clip openai.pt --to openai --quiet > out 2> err || fail "convert: $(cat err)"
"$cloob" info logs/clip/checkpoints/latest.safetensors | sed -n 's/^config *{/{/p' > config.json
"$cloob" convert openai.pt openai.safetensors --config config.json --quiet > out 2> err || fail "convert back: $(cat err)"
"$cloob" convert logs/clip folder --to open_clip --quiet > out 2> err || fail "convert: $(cat err)" # its tokenizer
"$cloob" train --preset finetune --pretrained openai.safetensors --vocab folder "${tune[@]}" --name published > out 2> err || fail "published weights: $(cat err)"
has published 'method: clip'
has published 'learnable_inv_tau: True'
grep -q -- '--method clip, --init-inv-tau .* as in openai.safetensors' err || fail "published weights: $(cat err)"
[ $bad = 0 ] && echo "the first run works"
exit $bad
