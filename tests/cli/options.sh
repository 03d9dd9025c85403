#!/bin/bash
# Flags have the same meaning in every command, and every flag has an effect. Usage: options.sh CLOOB SOURCE
source=$(realpath "$2")
. "$(dirname "$0")/../scratch.sh"
export OMP_NUM_THREADS=1
train=("$cloob" train --dataset-type synthetic --train-num-samples 16 --vocab-size 540 --batch-size 8 --max-steps 1 --warmup 1
    --workers 0 --threads 1 --device cpu --quiet --logs logs)

# A flag that exists for one command that reads data exists for all of them.
for command in train sweep embed "eval zeroshot" "eval probe" info "bench data"; do
    # shellcheck disable=SC2086
    text=$("$cloob" help $command --all)
    for flag in shuffle-window data-cache one-caption-per-image max-image-pixels csv-img-key split; do
        grep -qE "^ +--$flag( |$)" <<< "$text" || fail "cloob $command has no --$flag"
    done
done
# So do those that read photos one by one; their help lists only what matters there.
every=(--shuffle-window 4 --data-cache none --one-caption-per-image --max-image-pixels 100 --csv-img-key image --split test)
for command in "classify --labels a,b nothing.jpg" "search index nothing"; do
    # shellcheck disable=SC2086
    "$cloob" $command --checkpoint nothing.safetensors "${every[@]}" > out 2> err && fail "$command: there is nothing to read"
    grep -q 'nothing\.' err || fail "cloob $command refuses an option of data sets: $(cat err)"
    # shellcheck disable=SC2086
    "$cloob" help ${command%% *} | grep -q shuffle-window && fail "cloob help ${command%% *} lists options of training"
done

# Training takes them, under both names, and params.txt lists them.
"${train[@]}" --model tiny-rn --force-image-size 32 --name a --shuffle-window 4 --data-cache none --one-caption > out 2> err || fail "train refuses data options: $(cat err)"
for line in 'shuffle_window: 4' 'data_cache: none' 'one_caption_per_image: True'; do
    grep -qx "$line" logs/a/params.txt || fail "params.txt lacks $line"
done
"${train[@]}" --model tiny-rn --force-image-size 32 --name b --one-caption-per-image > out 2> err || fail "train refuses --one-caption-per-image: $(cat err)"
# Weights of joined training sources are not for the validation data.
"${train[@]}" --model tiny-rn --force-image-size 32 --name joined --train-data a::b --train-data-upsampling-factors 1::2 --dataset-resampled \
    --val-data c --val-num-samples 8 > out 2> err || fail "upsampling with validation: $(cat err)"

# Weights for one size of image, trained on at another: the new size is the model's.
"${train[@]}" --model tiny-vit --force-image-size 32 --name small > out 2> err || fail "a small ViT: $(cat err)"
"${train[@]}" --name large --pretrained logs/small/checkpoints/latest.safetensors --force-image-size 48 > out 2> err || fail "another size: $(cat err)"
"$cloob" info --json logs/large/checkpoints/latest.safetensors > out 2> err || fail "info: $(cat err)"
grep -qE '"image_size": ?48' out || fail "--force-image-size is not what the model has: $(cat out)"
"${train[@]}" --name odd --pretrained logs/small/checkpoints/latest.safetensors --force-image-size 49 > out 2> err && fail "a size that no patch divides"

# JSON is JSON whatever a run is called.
"${train[@]}" --model tiny-rn --force-image-size 32 --json --name 'a"b\c' > out 2> err || fail "a name with a quote: $(cat err)"
grep -qF '"logs/a\"b\\c"' out || fail "broken JSON: $(cat out)"

# So is what the other commands print, with awkward words in it.
name='we"ird\\ 	dir'
mkdir "$name" && "$cloob" synth --out "$name/world" --count 16 --size 32 --json --quiet > j1 2> err || fail "synth: $(cat err)"
printf 'a\nb c\n' > "$name/captions.txt"
model="$name/m.safetensors"
cp logs/small/checkpoints/latest.safetensors "$model"
"$cloob" info --json "$name/world/train.tsv" > j2 2> err || fail "info data: $(cat err)"
"$cloob" info --json "$model" > j3 2> err || fail "info model: $(cat err)"
"$cloob" info --json device > j4
"$cloob" embed --json --quiet --checkpoint "$model" --data "$name/world/val.tsv" --out "$name/e.safetensors" > j5 2> err || fail "embed: $(cat err)"
"$cloob" convert --json "$model" "$name/o.safetensors" --to openai > j6 2> err || fail "convert: $(cat err)"
"$cloob" loss --json --input "$name/e.safetensors" > j7 2> err || fail "loss: $(cat err)"
"$cloob" tokenizer train --json --input "$name/captions.txt" --size 520 --out "$name/v.bpe" > j8 2> err || fail "tokenizer: $(cat err)"
"$cloob" tokenizer encode --json --vocab "$name/v.bpe" 'a "b"' 'c' > j9 2> err || fail "encode: $(cat err)"
"$cloob" tokenizer decode --json --vocab "$name/v.bpe" '64 1' '65' > j10 2> err || fail "decode: $(cat err)"
"$cloob" tokenizer decode --vocab "$name/v.bpe" 64 65 > out 2> err || fail "decode: $(cat err)"
[ "$(wc -l < out)" = 1 ] || fail "ids as words of a command line are not one text: $(cat out)"
"$cloob" zeroshot --json --quiet --checkpoint "$model" --data "$name/world/classes/object" "$name/world/classes/colour" > j11 2> err || fail "zeroshot: $(cat err)"
# Limits of images apply to class folders in training, too: one image of 48 px among those of 32.
"$cloob" synth --out wide --count 1 --size 48 --quiet > out 2> err || fail "synth: $(cat err)"
cp -r "$name/world/classes/object" classes
class=$(find classes -mindepth 1 -type d | sort | head -1)
cp "$(find wide/images -type f | sort | head -1)" "$class/large.jpg"
for flag in zeroshot-data imagenet-val; do
    "${train[@]}" --model tiny-rn --force-image-size 32 --name $flag --$flag classes --max-image-pixels 1100 > out 2> err || fail "$flag: $(cat err)"
    grep -q 'images; skipped 1 that cannot be read' logs/$flag/out.log || fail "--$flag ignores --max-image-pixels: $(cat logs/$flag/out.log)"
done
"$cloob" sweep --train-data "$name/world/train.tsv" --vocab-size 540 --batch-size 8 --epochs 1 --warmup 1 --workers 0 --threads 1 --device cpu \
    --quiet --logs logs --model tiny-rn --force-image-size 32 --grid lr=1e-3 --seeds 1 --zeroshot classes --max-image-pixels 1100 --name swept > out 2> err ||
    fail "sweep --zeroshot: $(cat err)"
images=$(find classes -type f | wc -l)
grep -qE "\"n\": ?$((images - 1))\}" logs/swept/*/zeroshot-classes.json || fail "sweep --zeroshot ignores --max-image-pixels: $(cat logs/swept/*/zeroshot-classes.json)"
"$cloob" bench data --json --batches 1 --batch-size 4 --workers 0 --size 32 > j12 2> err || fail "bench data: $(cat err)"
"$cloob" prompts list --json "$name/world/prompts.json" > j13 2> err || fail "prompts: $(cat err)"
"$cloob" bench loss --json --n 16 --dim 8 --repeats 1 > j14 2> err || fail "bench loss: $(cat err)"
"$cloob" bench loss --n 16 --dim 8 --repeats 1 --precision int8 > /dev/null 2> err && fail "the objective has no int8"
grep -q "must be one of fp32|bf16|amp_bf16" err || fail "bench loss --precision int8: $(cat err)"

# --precision auto is one of the others, to the byte, and says which; each limit of the instructions has its own choice.
flags=" $(grep -m1 '^flags' /proc/cpuinfo 2> err) "
has() { case $flags in *" $1 "*) ;; *) return 1 ;; esac; }
for limit in amx avx512 avx_vnni avx2; do
    expected=fp32
    has avx2 && has fma && expected=int8
    case $limit in amx | avx512) has avx512f && has avx512bw && ! has avx512_vnni && ! has avx_vnni && expected=fp32 ;; esac
    [ $limit = amx ] && has amx_bf16 && has avx512_bf16 && expected=bf16
    CLOOB_CPU_LIMIT=$limit "$cloob" embed --checkpoint "$model" --device cpu --precision auto --out auto.npy --texts "$name/captions.txt" > out 2> err || fail "auto: $(cat err)"
    [ "$(grep -c 'precision [a-z0-9]*: ' err)" = 1 ] && grep -q "precision $expected: " err || fail "auto under $limit is not $expected: $(cat err)"
    CLOOB_CPU_LIMIT=$limit "$cloob" embed --quiet --checkpoint "$model" --device cpu --precision $expected --out same.npy --texts "$name/captions.txt" > out 2> err || fail "$expected: $(cat err)"
    cmp auto.npy same.npy || fail "auto under $limit computes something else than $expected"
    CLOOB_CPU_LIMIT=$limit "$cloob" info device --json > out 2> err || fail "info device: $(cat err)"
    grep -qE "\"precision_auto\": ?\"$expected\"" out || fail "info device under $limit: $(cat out)"
done
"$cloob" convert --auto-precision bf16 "$model" "$name/stated.safetensors" > out 2> err || fail "convert: $(cat err)"
"$cloob" embed --checkpoint "$name/stated.safetensors" --device cpu --precision auto --out auto.npy --texts "$name/captions.txt" > out 2> err || fail "auto: $(cat err)"
grep -q "precision bf16: stated by the weights" err || fail "auto ignores the weights' choice: $(cat err)"
"$cloob" embed --quiet --checkpoint "$model" --device cpu --precision bf16 --out same.npy --texts "$name/captions.txt" > out 2> err || fail "bf16: $(cat err)"
cmp auto.npy same.npy || fail "auto computes something else than the bf16 that the weights state"
"$cloob" embed --quiet --checkpoint "$name/stated.safetensors" --device cpu --out auto.npy --texts "$name/captions.txt" > out 2> err || fail "embed: $(cat err)"
"$cloob" embed --quiet --checkpoint "$model" --device cpu --precision fp32 --out same.npy --texts "$name/captions.txt" > out 2> err || fail "fp32: $(cat err)"
cmp auto.npy same.npy || fail "the weights' choice changes the default precision"
"$cloob" convert --auto-precision fp32 --to openai "$model" bad.pt > out 2> err && fail "OpenAI's format has no place for a precision"
"$cloob" convert --auto-precision int4 "$model" "$name/bad.safetensors" > out 2> err && fail "convert takes an unknown precision"
CLOOB_CPU_LIMIT=avx2 "$cloob" bench embed --model tiny-vit --batch-size 2 --repeats 1 --device cpu --precision auto --json > out 2> err || fail "bench embed: $(cat err)"
grep -qE '"precision": ?"(int8|fp32)"' out || fail "bench embed names auto, not what it became: $(cat out)"
"$cloob" embed --quiet --checkpoint "$model" --device ref --precision auto --out same.npy --texts "$name/captions.txt" > out 2> err || fail "auto on ref: $(cat err)"
"$cloob" bench loss --n 16 --dim 8 --repeats 1 --precision auto > out 2> err && fail "the objective has no auto"
"$cloob" bench step --model tiny-vit --batch-size 2 --repeats 1 --precision auto > out 2> err && fail "a training step takes auto"
grep -q "precision auto: must be one of fp32|bf16|amp_bf16" err || fail "bench step --precision auto: $(cat err)"

# --precision f16 is the rounding of the stored matrices alone: the same bytes as with weights in half precision.
"$cloob" convert "$model" half.safetensors --dtype f16 > out 2> err || fail "convert to f16: $(cat err)"
"$cloob" embed --quiet --checkpoint half.safetensors --precision fp32 --out same.npy --texts "$name/captions.txt" > out 2> err || fail "f16 weights: $(cat err)"
for given in f16 fp16; do
    "$cloob" embed --quiet --checkpoint "$model" --precision $given --out auto.npy --texts "$name/captions.txt" > out 2> err || fail "$given: $(cat err)"
    cmp auto.npy same.npy || fail "--precision $given is not half precision"
done
"$cloob" embed --quiet --checkpoint "$model" --out auto.npy --texts "$name/captions.txt" > out 2> err || fail "fp32: $(cat err)"
cmp -s auto.npy same.npy && fail "--precision f16 changes nothing"
if command -v python3 > /dev/null; then
    for i in $(seq 14); do python3 -m json.tool "j$i" > /dev/null 2> err || fail "broken JSON: $(cat "j$i"): $(cat err)"; done
fi

# A learning rate with a floor: 1, then down a cosine of 4 steps from 1e-3 towards 4e-4; a warm-up still begins at 0.
"${train[@]}" --model tiny-rn --force-image-size 32 --name floor --train-num-samples 32 --lr 1e-3 --lr-min 4e-4 --warmup 0 --schedule-steps 4 --max-steps 0 \
    --log-every-n-steps 1 > out 2> err || fail "--lr-min: $(cat err)"
rates=$(grep -oE 'lr [0-9.e-]+' logs/floor/out.log | awk '{ printf "%.4g ", 1e4 * $2 }')
[ "$rates" = "10 9.121 7 4.879 " ] || fail "--lr-min: rates x 1e4 are $rates"

# Help: defaults a person can read, nothing offered that is refused, nothing without use.
tab=$(printf '\t')
for command in $("$cloob" help | awk '/^  / { print $1 }'); do "$cloob" help "$command" --all; done > help
grep -qF '[-1]' <("$cloob" help train --all) && fail "help shows [-1]"
grep -qF "$tab" help && fail "help holds a tab"
grep -q fp16 help && fail "help offers fp16"
for command in "eval retrieval" report tokenizer; do
    # shellcheck disable=SC2086
    "$cloob" help $command | grep -qE -- '--(seed|precision) ' && fail "cloob $command offers --seed or --precision"
done
"$cloob" eval retrieval --input nowhere.safetensors --seed 3 --precision fp32 > out 2> err
grep -q 'unknown option' err && fail "common options are not accepted everywhere: $(cat err)"
"${train[@]}" --model tiny-rn --batch-size 9223372036854775807 > out 2> err
[ $? = 2 ] && grep -q -- '--batch-size' err || fail "a batch of 2^63 - 1: $(cat err)"

# Errors of the library name fields, the command line flags.
"${train[@]}" --analyze --no-save-most-recent > out 2> err
grep -q -- '--analyze needs --val-data' err || fail "a field is no flag: $(cat err)"

# Completion knows commands, flags and choices.
for shell in bash zsh fish; do
    "$cloob" help --completion $shell > complete.$shell || fail "no completion for $shell"
    for word in shuffle-window zeroshot infonce-hopfield; do grep -q "$word" complete.$shell || fail "completion of $shell lacks $word"; done
done
complete_words() # WORD... CURRENT: what bash would offer
{
    # shellcheck disable=SC1091
    bash -c '. ./complete.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cloob; printf "%s\n" "${COMPREPLY[@]}"' - "$@"
}
[ "$(complete_words cloob ev)" = eval ] || fail "bash: commands: $(complete_words cloob ev)"
[ "$(complete_words cloob eval zerosh)" = zeroshot ] || fail "bash: parts: $(complete_words cloob eval zerosh)"
[ -z "$(complete_words cloob ablat)" ] || fail "bash: completes a former name"
[ "$(complete_words cloob train --shuf)" = --shuffle-window ] || fail "bash: flags: $(complete_words cloob train --shuf)"
[ "$(complete_words cloob train --method infol)" = infoloob ] || fail "bash: choices: $(complete_words cloob train --method infol)"
for shell in zsh fish; do
    command -v $shell > /dev/null && { $shell -n complete.$shell || fail "$shell cannot read its completion"; }
done

# The tables on the page of presets are the program's, and fit a terminal.
"$cloob" help --presets > tables
wide=$(awk 'length > 80' tables)
[ -z "$wide" ] || fail "cloob help --presets: wider than 80 columns: $wide"
{ sed -n '/^## /,$p' "$source/docs/reference/presets.md"; echo; } | cmp - tables || fail "docs/reference/presets.md: copy the tables from cloob help --presets"

# The paper's tables, written out a second time: the values of CLOOB on Conceptual Captions and YFCC, and of CLIP.
paper() # PRESET FLAG...: the page's section of a preset, or of the preset it is like, sets these
{
    local preset=$1 name=$1 flag row
    shift
    : > section
    while [ -n "$name" ]; do
        awk -v want="## $name" '/^## / { on = $0 == want } on' tables > part
        sed -n 's/.* | `--\(no-\)\?\([a-z-]*\).*` |$/\2/p' part | while read -r row; do
            grep -qE -- "\`--(no-)?$row[ \`]" section || grep -E -- "\`--(no-)?$row[ \`]" part >> section
        done
        name=$(sed -n 's/.* Like `\(.*\)`, except:$/\1/p' part)
    done
    for flag; do grep -qF "| \`$flag\` |" section || fail "--preset $preset does not set $flag"; done
}
always=('--wd 0.1' '--model RN50')
cloob_rows=("${always[@]}" '--method cloob' '--lr-scheduler cosine-restarts' '--restart-epochs 7' '--init-inv-tau 30' '--no-learnable-inv-tau')
conceptual=('--lr 1e-3' '--global-batch-size 512' '--scale-hopfield 8') yfcc=('--lr 5e-4' '--global-batch-size 1024' '--warmup 10000' '--epochs 28' '--scale-hopfield 14.3')
paper cc "${cloob_rows[@]}" "${conceptual[@]}" '--warmup 20000' '--epochs 31'
paper cc-128 "${cloob_rows[@]}" "${conceptual[@]}" '--warmup 20000' '--epochs 128'
paper yfcc "${cloob_rows[@]}" "${yfcc[@]}"
paper yfcc-rn101 "${cloob_rows[@]:2}" "${yfcc[@]}" '--model RN101'
paper yfcc-rn50x4 "${cloob_rows[@]:2}" "${yfcc[@]}" '--model RN50x4'
clip_rows=('--wd 0.1' '--method clip' '--init-inv-tau 14.3' '--learnable-inv-tau')
restarts=('--lr-scheduler cosine-restarts' '--restart-epochs 7')
paper clip-cc "${clip_rows[@]}" "${restarts[@]}" "${conceptual[@]}" '--warmup 20000' '--epochs 31' '--model RN50'
paper clip-cc-128 "${clip_rows[@]}" "${restarts[@]}" "${conceptual[@]}" '--warmup 20000' '--epochs 128' '--model RN50'
paper clip-yfcc "${clip_rows[@]}" "${restarts[@]}" "${yfcc[@]}" '--model RN50'
paper clip-yfcc-rn101 "${clip_rows[@]}" "${restarts[@]}" "${yfcc[@]}" '--model RN101'
paper clip-yfcc-rn50x4 "${clip_rows[@]}" "${restarts[@]}" "${yfcc[@]}" '--model RN50x4'
paper openclip-cc "${clip_rows[@]}" "${conceptual[@]}" '--lr-scheduler cosine' '--restart-epochs 0' '--warmup 10000' '--epochs 31' '--model RN50'

# The activations on the page of models are those of the names.
for name in RN50 RN101 RN50x4 ViT-B-32 ViT-B-16 ViT-L-14 ViT-H-14; do
    has=$("$cloob" info $name --json | grep -oE '"text_activation": *"[a-z_]+"' | grep -oE '[a-z_]+"$' | tr -d '"')
    grep -qE "^\| $name \|.* x [0-9]+, $has \| [0-9]+ \| [0-9]+ \| [0-9.]+ \|$" "$source/docs/reference/models.md" || fail "docs/reference/models.md: $name has $has"
done

# So are the summaries on the page of commands.
"$cloob" help | sed -n 's/^  \([a-z]*\)  *\(.*\)$/| `cloob \1` | \2 |/p' > summaries
grep '^| `cloob ' "$source/docs/reference/commands.md" | cmp - summaries || fail "docs/reference/commands.md: its summaries are not those of cloob help"
[ $bad = 0 ] && echo "options agree everywhere"
exit $bad
