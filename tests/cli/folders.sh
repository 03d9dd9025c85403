#!/bin/bash
# Folders for transformers and open_clip carry the model's tokenizer and preprocessing; averages need one tokenizer; CLIP's merges are
# found where Python keeps them. Usage: folders.sh CLOOB
. "$(dirname "$0")/../scratch.sh"
export HOME=$dir/home
unset VIRTUAL_ENV CONDA_PREFIX HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE XDG_CACHE_HOME
mkdir -p home

"$cloob" synth --out world --count 16 --val-count 4 --per-class 4 --size 32 --seed 1 --quiet > /dev/null || exit 77
train() { "$cloob" train --train-data world/train.tsv --model tiny-vit --batch-size 8 --max-steps 1 --warmup 1 --name "$1" --logs . --quiet "${@:2}"; }
model=$(train m --vocab-size 600) || fail "train"
printf 'a red circle\nTwo  blue squares!\n' > texts
rows() { "$cloob" embed --checkpoint "$1" --texts texts --images world/images/val-0000000.jpg --out "$2" --device cpu --quiet > /dev/null; }

# texts and images embedded from an exported folder are those of the model
rows "$model" native.safetensors || fail "embed native"
for to in open_clip hf; do
    "$cloob" convert "$model" "$to" --to $to > out 2> err || fail "convert --to $to: $(cat err)"
    for f in vocab.json merges.txt tokenizer_config.json; do [ -s "$to/$f" ] || fail "$to: no $f"; done
    rows "$to" "$to.safetensors" || fail "embed $to"
done
grep -q '"hf_tokenizer_name"' open_clip/open_clip_config.json || fail "open_clip_config.json does not name the tokenizer"
grep -q CLIPImageProcessor hf/preprocessor_config.json || fail "no preprocessor_config.json"
cmp -s native.safetensors open_clip.safetensors || fail "open_clip's folder embeds otherwise"
cmp -s native.safetensors hf.safetensors || fail "Hugging Face's folder embeds otherwise"

# a folder is read back with what it says of images: another crop is refused by name
sed -i 's/"resample":3/"resample":9/; s/"resample": 3/"resample": 9/' hf/preprocessor_config.json
rows hf x.safetensors 2> err && fail "resample 9 was accepted"
"$cloob" embed --checkpoint hf --texts texts --out x.safetensors 2>&1 | grep -q 'preprocessor_config.json: "resample"' || fail "resample is not named"

# the tokenizers of an average must agree
awk -F'\t' 'BEGIN { OFS = FS } NR > 1 { gsub(/e/, "x", $2); gsub(/o/, "zz", $2) } { print }' world/train.tsv > world/other.tsv
other=$("$cloob" train --train-data world/other.tsv --model tiny-vit --batch-size 8 --max-steps 1 --warmup 1 --name o --logs . --quiet --vocab-size 600) || fail "train other"
"$cloob" convert --average "$model" "$other" both.safetensors > out 2> err && fail "two tokenizers were averaged"
grep -q "tokenizer" err || fail "average: $(cat err)"
[ ! -e both.safetensors ] || fail "a refused average was written"

# a bare file: what is missing is reported
"$cloob" convert "$model" bare.pt > /dev/null || fail "convert to .pt"
"$cloob" convert bare.pt again.safetensors --config open_clip/open_clip_config.json > out 2> err || fail "convert bare: $(cat err)"
grep -q "texts will not work" err && grep -q -- "--vocab" err || fail "no warning: $(cat err)"

# CLIP's merges (here: as many made-up ones) are found in the cache
mkdir -p home/.cache/clip
python3 - home/.cache/clip/bpe_simple_vocab_16e6.txt.gz << 'P' || exit 77
import gzip, itertools, sys
chars = [chr(b) for b in range(256) if 33 <= b < 127 or (161 <= b and b != 173)] + [chr(256 + i) for i in range(68)]
pairs = itertools.islice(((a, b) for a in chars for b in chars), 48894)
with gzip.open(sys.argv[1], "wt", encoding="utf-8") as f:
    f.write('"bpe_simple_vocab_16e6.txt#version: 0.2\n' + "\n".join(" ".join(p) for p in pairs) + "\n")
P
clip=$(train c --vocab home/.cache/clip/bpe_simple_vocab_16e6.txt.gz) || fail "train with merges"
"$cloob" convert "$clip" clip_bare.pt > /dev/null
"$cloob" convert clip_bare.pt with.safetensors --config "$dir/open_clip/open_clip_config.json" > /dev/null 2>&1 # another vocabulary: refused
"$cloob" convert "$clip" clip_dir --to open_clip > /dev/null 2>&1
"$cloob" convert clip_bare.pt with.safetensors --config clip_dir/open_clip_config.json > out 2> err || fail "convert clip: $(cat err)"
grep -q "will not work" err && fail "merges in ~/.cache/clip were not found"

# ... and by the presets of the paper, unless a size is asked for
preset() { "$cloob" train --preset cc --dataset-type synthetic --train-num-samples 16 --model tiny-vit --batch-size 8 --global-batch-size 0 --epochs 1 \
    --max-steps 1 --logs presets --threads 1 "$@" > out 2> err || fail "train --preset cc $*: $(cat err)"; }
preset --name found
grep -q "using CLIP's vocabulary from .*/.cache/clip/bpe_simple_vocab" err || fail "a preset of the paper did not find the merges: $(cat err)"
grep -q 'vocab: .*bpe_simple_vocab_16e6.txt.gz' presets/found/params.txt || fail "params.txt does not name the merges"
preset --name own --vocab-size 540
grep -q "a vocabulary of up to 540 tokens is trained" err || fail "--vocab-size under a preset: $(cat err)"
HOME=$dir/nowhere rows with.safetensors with_rows.safetensors || fail "the merges are not stored"
exit $bad
