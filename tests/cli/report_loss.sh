#!/bin/bash
# --report-loss open_clip: the number that open_clip's ClipLoss would print, in `loss` and `train`; the weights stay the same. Usage: report_loss.sh CLOOB
. "$(dirname "$0")/../scratch.sh"
value() { sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$1" | head -1; }
"$cloob" synth --out world --count 24 --val-count 8 --per-class 1 --size 32 --quiet > /dev/null 2> err || fail "synth: $(cat err)"
same=(--train-data world/train.tsv --model tiny --force-image-size 32 --vocab-size 540 --batch-size 8 --max-steps 2 --log-every-n-steps 1 --workers 0 --threads 1 --device cpu --method clip --init-inv-tau 20)
for kind in ours open_clip; do
    "$cloob" train "${same[@]}" --report-loss $kind --name $kind > out 2> err || fail "train: $(cat err)"
done
first() { grep -o 'loss [0-9.]*' "logs/$1/out.log" | head -1 | cut -d' ' -f2; }
awk -v a="$(first ours)" -v b="$(first open_clip)" 'BEGIN { exit !(a > 0 && b / a > 9.99 && b / a < 10.01) }' || fail "train: ours $(first ours), open_clip's $(first open_clip); at inv_tau 20 it is ten times ours"
model=logs/ours/checkpoints/latest.safetensors
for kind in ours open_clip; do "$cloob" embed --checkpoint logs/$kind/checkpoints/latest.safetensors --data world/val.tsv --out $kind.safetensors --threads 1 --quiet > /dev/null 2> err || fail "embed: $(cat err)"; done
cmp -s ours.safetensors open_clip.safetensors || fail "the report changed the weights"
"$cloob" loss --input ours.safetensors --method clip --init-inv-tau 20 --json > a.json 2> err || fail "loss: $(cat err)"
"$cloob" loss --input ours.safetensors --method clip --init-inv-tau 20 --report-loss open_clip --json > b.json 2> err || fail "loss: $(cat err)"
awk -v a="$(value a.json)" -v b="$(value b.json)" 'BEGIN { exit !(a > 0 && b / a > 9.9999 && b / a < 10.0001) }' || fail "loss: $(cat a.json b.json)"
"$cloob" loss --input ours.safetensors --method cloob --report-loss open_clip > out 2> err && fail "open_clip has no cloob"
grep -q 'open_clip has clip and siglip' err || fail "a method that open_clip does not have: $(cat err)"
"$cloob" train "${same[@]}" --method cloob --report-loss open_clip --name refused > out 2> err
[ $? = 2 ] || fail "train prints its own value as open_clip's: $(cat err)"
grep -q -e '--report-loss open_clip requires --method clip or siglip' err || fail "train, a method that open_clip does not have: $(cat err)"
[ $bad = 0 ] && echo "losses are reported on open_clip's scale"
exit $bad
