#!/bin/bash
# A warning with a remedy for runs that are likely to fail, and none for others. Usage: warnings.sh CLOOB
. "$(dirname "$0")/../scratch.sh"
export OMP_NUM_THREADS=1
few=(--workers 0 --threads 1 --device cpu --model tiny-rn --force-image-size 32)
train() { "$cloob" train --name "$1" "${few[@]}" "${@:2}" > out 2> err || fail "$1: $(cat err)"; }
says() { [ "$(grep -c "$1" err)" = 1 ] || fail "it should say once '$1': $(cat err)"; }
silent() { ! grep -q "$1" err || fail "it should not say '$1': $(cat err)"; }
"$cloob" synth --out world --count 200 --val-count 200 --per-class 2 --size 32 --quiet > out 2> err || fail "synth: $(cat err)"
head -65 world/train.tsv > world/own.tsv
data=(--train-data world/own.tsv --batch-size 16 --vocab-size 540)

# Validation at chance: a rate that changes nothing leaves every validation there. It is said after the second one, once, and at the end of
# a run that has only one; a run that recalls its own training pairs is not told so.
train chance "${data[@]}" --val-data world/val.tsv --lr 1e-12 --warmup 1 --epochs 4
says 'validation is at chance (R@10 0.0.*; guessing gives 0.050)'
says 'hopfield-warmup'
train one "${data[@]}" --val-data world/val.tsv --lr 1e-12 --warmup 1 --epochs 1
says 'validation is at chance'
train first "${data[@]}" --val-data world/val.tsv --lr 1e-12 --warmup 1 --epochs 4 --max-steps 4 --val-frequency 9
says 'validation is at chance'
train learns "${data[@]}" --val-data world/own.tsv --method clip --lr 3e-3 --warmup 4 --epochs 40 --val-frequency 40 --save-frequency 0 --aug-scale-min 1
silent 'validation is at chance'

# A loss on the plateau: at this temperature it hardly depends on the embeddings.
train plateau "${data[@]}" --batch-size 4 --method infoloob --init-inv-tau 0.05 --lr 1e-12 --warmup 1 --epochs 32 --max-steps 400 --save-frequency 0
grep -q 'still at its initial value' err || fail "a loss on the plateau is not mentioned: $(cat err)"
train short "${data[@]}" --batch-size 4 --method infoloob --init-inv-tau 0.05 --lr 1e-12 --warmup 1 --epochs 32 --max-steps 45 --save-frequency 0
silent 'still at its initial value'

# A vocabulary much smaller than asked for; one that is nearly as large is what was asked for.
train words "${data[@]}" --vocab-size 8192 --max-steps 1 --warmup 1
says 'support a vocabulary of [0-9]* ids, not 8192'
ids=$(sed -n 's/.*support a vocabulary of \([0-9]*\) ids.*/\1/p' err)
train nearly "${data[@]}" --vocab-size $((ids + 20)) --max-steps 1 --warmup 1
silent 'support a vocabulary'

# A warm-up longer than the run.
train long "${data[@]}" --schedule-steps 2 --warmup 100
says 'the warm-up of 100 steps is longer than the run of 2'
train fits "${data[@]}" --schedule-steps 2 --warmup 1
silent 'warm-up'
# A last restart cycle that is cut short.
train cut "${data[@]}" --lr-scheduler cosine-restarts --restart-epochs 2 --epochs 5 --warmup 2 --max-steps 1
says 'the last restart cycle ends after 2 of its 8 steps, at a learning rate of .*; --restart-cycles 3'
train even "${data[@]}" --lr-scheduler cosine-restarts --restart-epochs 2 --epochs 5 --warmup 4 --max-steps 1
silent 'last restart cycle'

# out.log has every line of the console, those before the run's folder existed included, and of a quiet run those that were not shown.
sed -i 's/images\/train-0000001\./images\/gone./' world/own.tsv
for quiet in "" --quiet; do
    train "log$quiet" "${data[@]}" --vocab-size 8192 --epochs 1 --allow-bad-samples $quiet
    sed 's/^warning: //' err | grep -v '%' | while read -r line; do
        line=$(sed -E 's/--[a-z-]+/@/g' <<< "$line")
        sed -E 's/`[a-z_]+`/@/g' "logs/log$quiet/out.log" | grep -qF -- "$line" || echo "$line"
    done > missing
    [ -s missing ] && fail "out.log of train $quiet lacks: $(cat missing)"
    grep -q 'WARNING | bad sample: .*gone' "logs/log$quiet/out.log" || fail "out.log of train $quiet: no bad sample"
    grep -q 'INFO | done: ' "logs/log$quiet/out.log" || fail "out.log of train $quiet: no end"
done
grep -q 'bad sample' err || fail "a quiet run hides warnings"
grep -aq 'train/grad_norm' logs/log/tensorboard/* || fail "no gradient norm for TensorBoard"
[ $bad = 0 ] && echo "warnings appear where they should, and nowhere else"
exit $bad
