#!/bin/bash
# Fine-tuning of a SigLIP 2 NaFlex folder: its own tokenizer and preprocessing are used, images of all shapes share a batch, crops keep the proportions.
# Usage: naflex.sh CLOOB REF
ref=$(realpath "$2")
. "$(dirname "$0")/../scratch.sh"
cp -r "$ref/naflex" model
# fewer tokens than the model's 40, which is allowed
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a wide tall row of colours grey with holes ink one > model/vocab.txt
echo '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}' > model/tokenizer_config.json
{
    printf 'filepath\ttitle\n'
    printf '%s\t%s\n' wide.jpg 'a wide one' tall.jpg 'a tall one' row.jpg 'a row' rgb.png 'colours' rgba.png 'colours with holes' \
        gray4.png 'grey' cmyk.jpg 'ink' rgb_444.jpg 'a row of colours'
} > pairs.tsv
flags=(--train-data pairs.tsv --path-data "$ref/images" --batch-size 8 --warmup 1 --lr 0.02 --workers 1 --threads 1 --logs . --device cpu --quiet)
train() { "$cloob" train --pretrained model "${flags[@]}" "$@" 2> err; }
loss() { sed -n 's/.* loss \([-0-9.]*\).*/\1/p' "$1/out.log" | tail -1; }

tuned=$(train --name long --epochs 60) || fail "train: $(cat err)"
train --name short --epochs 60 --max-steps 1 --log-every-n-steps 1 > /dev/null || fail "one step: $(cat err)"
grep -q 'vocabulary of 16' long/out.log || fail "the folder's tokenizer was not used: $(grep vocabulary long/out.log)"
awk -v first="$(loss short)" -v last="$(loss long)" 'BEGIN { exit !(last > 0 && last < 0.6 * first) }' || fail "loss $(loss short) became $(loss long)"
other=$(train --name workers --epochs 60 --workers 3) || fail "three workers: $(cat err)"
for m in "$tuned" "$other"; do
    "$cloob" embed --checkpoint "$m" --images "$ref/images/wide.jpg" "$ref/images/tall.jpg" --out "$m.rows" --quiet --device cpu > /dev/null 2> err || fail "embed: $(cat err)"
done
cmp -s "$tuned.rows" "$other.rows" || fail "the number of workers changes the weights"

# the result is a NaFlex model that transformers can be given
"$cloob" convert "$tuned" back --to hf > /dev/null 2> err || fail "convert: $(cat err)"
grep -q '"max_num_patches": *40' back/preprocessor_config.json || fail "preprocessor_config.json: $(cat back/preprocessor_config.json)"
cmp -s model/model.safetensors back/model.safetensors && fail "nothing was learned"

# what has no meaning is refused by name
train --name drop --max-steps 1 --force-patch-dropout 0.5 > /dev/null && fail "patch dropout was accepted"
grep -q NaFlex err || fail "patch dropout: $(cat err)"
train --name mode --max-steps 1 --image-resize-mode squash > /dev/null && fail "another resize mode was accepted"

# weights without a tokenizer do not get one that is made of the captions
rm model/vocab.txt model/tokenizer_config.json
train --name none --max-steps 1 > /dev/null && fail "a tokenizer was made up"
grep -q 'holds no tokenizer; give it with --vocab FILE' err || fail "no tokenizer: $(cat err)"
exit $bad
