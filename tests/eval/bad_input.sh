#!/bin/bash
# Invalid input of evaluations: refused in one line that names it, or counted; never a silently wrong number.
# Usage: bad_input.sh CLOOB
. "$(dirname "$0")/../expect_error.sh"

# counted WORD... -- ARGUMENT...: ends well, and its JSON holds every WORD.
counted()
{
    local words=() word
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    tried=$((tried + 1))
    if ! timeout 300 "$cloob" "$@" --json --threads 1 --quiet > out 2> err; then
        echo "FAIL: $* is refused: $(cat err)"
        bad=1
        return
    fi
    for word in "${words[@]}"; do
        grep -qF -- "$word" out || { echo "FAIL: $* does not say $word: $(cat out)"; bad=1; }
    done
}

# ---- files of features: x (4, 2) and y (4), or image and text ----------------------------------------

one='\x00\x00\x80\x3f' two='\x00\x00\x00\x40' zero='\x00\x00\x00\x00' nan='\x00\x00\xc0\x7f' half='\x00\x00\x00\x3f'

# tensors FILE HEADER DATA: a safetensors file
tensors()
{
    local n=${#2}
    { printf "\\x$(printf %02x $((n % 256)))\\x$(printf %02x $((n / 256)))\\0\\0\\0\\0\\0\\0"; printf %s "$2"; printf "$3"; } > "$1"
}
# split FILE X Y: Y of int32, low bytes
split()
{
    local y= b
    for b in $3; do y+="\\x$b\\x00\\x00\\x00"; done
    tensors "$1" '{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},"y":{"dtype":"I32","shape":[4],"data_offsets":[32,48]}}' "$2$y"
}
good="$one$zero$zero$one$two$one$one$two"
split fine "$good" "00 01 00 01"
split single "$good" "03 03 03 03"
split gaps "$good" "00 05 00 05"
split unknown "$good" "00 01 07 09"
split nan "$one$zero$zero$one$two$nan$one$two" "00 01 00 01"
tensors negative '{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},"y":{"dtype":"I32","shape":[4],"data_offsets":[32,48]}}' \
    "$good\\x00\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\xf9\\xff\\xff\\xff\\x01\\x00\\x00\\x00"
tensors fraction '{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},"y":{"dtype":"F32","shape":[4],"data_offsets":[32,48]}}' "$good$zero$one$half$one"
tensors short '{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},"y":{"dtype":"I32","shape":[3],"data_offsets":[32,44]}}' "$good$zero$zero$zero"
tensors wide '{"x":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"y":{"dtype":"I32","shape":[2],"data_offsets":[32,40]}}' "$good$zero$zero"
tensors unlabelled '{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]}}' "$good"
tensors none '{"x":{"dtype":"F32","shape":[0,2],"data_offsets":[0,0]},"y":{"dtype":"I32","shape":[0],"data_offsets":[0,0]}}' ""
pair='{"image":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"text":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]}}'
tensors pairs "$pair" "$good"
tensors pairs_nan "$pair" "$one$zero$zero$one$two$nan$one$two"
tensors pairs_zero "$pair" "$one$zero$zero$zero$two$one$one$two"
tensors unpaired '{"image":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},"text":{"dtype":"F32","shape":[1,2],"data_offsets":[24,32]}}' "$good"

counted '"classes": 2' '"unknown_labels": 0' -- probe --train fine --test fine --lambda 1
refused 1 "two classes" probe --train single --test fine --lambda 1
refused 1 "two classes" probe --train single --test fine
counted '"class_gaps": 4' '"classes": 2' -- probe --train gaps --test gaps --lambda 1
counted '"unknown_labels": 2' '"test_acc": ' -- probe --train fine --test unknown --lambda 1
refused 1 "row 2 " probe --train negative --test fine --lambda 1
refused 1 "row 2 is 0.5" probe --train fraction --test fine --lambda 1
refused 1 "row 2, column 1" probe --train nan --test fine --lambda 1
refused 1 "row 2, column 1" probe --train fine --test nan --lambda 1
refused 1 "row 2, column 1" probe --train fine --val nan --test fine
refused 1 short: probe --train short --test fine --lambda 1
refused 1 dimensions probe --train fine --test wide --lambda 1
refused 1 "has no tensor y" probe --train unlabelled --test fine --lambda 1
refused 1 none: probe --train none --test fine --lambda 1
refused 1 nowhere probe --train nowhere --test fine --lambda 1
refused 2 --lambda probe --train fine --test fine --lambda -1
refused 2 --lambda probe --train fine --test fine --lambda much
refused 2 nosuch probe --train fine --test fine --lambda 1 --device nosuch
counted '"num_samples": 2' '"queries": 1' -- retrieve --input pairs --queries 1
counted '"queries": 2' '"rows_scaled": 2' -- retrieve --input pairs --queries 7
refused 2 --queries retrieve --input pairs --queries -1
refused 1 "row 0, column 1" retrieve --input pairs_nan
refused 1 "row 1 is all zeros" retrieve --input pairs_zero
refused 1 "belongs to row i" retrieve --input unpaired
refused 1 "row 0, column 1" analyze --input pairs_nan
refused 1 "row 1 is all zeros" analyze --input pairs_zero

# ---- a model and class folders: some images can be read, some cannot --------------------------------

"$cloob" train --dataset-type synthetic --train-num-samples 16 --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 \
    --max-steps 1 --warmup 1 --workers 0 --threads 1 --device cpu --quiet --logs logs --name m > /dev/null 2>&1 || { echo "FAIL: no model"; exit 1; }
m=logs/m/checkpoints/epoch_1.safetensors
base64 -d > red.png <<< iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP8z4AdMDEMKQkAzUEBD7t4NqoAAAAASUVORK5CYII=
base64 -d > blue.png <<< iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFUlEQVR42mNkYPjPgA0wMeAAg1MCAMtDAQ9w2TiCAAAAAElFTkSuQmCC
mkdir -p d/red d/blue d/none one/red junk/a junk/b empty/a empty/b many/red many/blue
cp red.png d/red/0.png && cp red.png d/red/1.png && cp blue.png d/blue/0.png && cp red.png one/red/0.png
head -c 30 blue.png > d/blue/1.png && echo junk > d/red/2.png && echo x > junk/a/0.png && echo y > junk/b/0.png
for i in 0 1 2 3 4 5; do cp red.png many/red/$i.png; cp blue.png many/blue/$i.png; done
head -c 30 blue.png > many/blue/6.png
prompts() { printf '{"a": {"classes": [%s], "templates": ["%s"]}}' "$1" "$2" > p.json; }

counted '"n": 3' '"bad": 2' '"empty_classes": 1' '{"name": "none", "n": 0, "top1": null' -- zeroshot --checkpoint $m --data d
refused 2 "two classes, not 1" zeroshot --checkpoint $m --data one
refused 1 "none of the 2 samples" zeroshot --checkpoint $m --data junk
refused 1 empty zeroshot --checkpoint $m --data empty
refused 1 nowhere zeroshot --checkpoint $m --data nowhere
prompts '"red", "blue"' "a square" && refused 1 "no {}" zeroshot --checkpoint $m --data d --prompts p.json
prompts '' "a {}" && refused 1 "no classes" zeroshot --checkpoint $m --data d --prompts p.json
prompts '"red", "blue", ""' "a {}" && refused 1 "empty name" zeroshot --checkpoint $m --data d --prompts p.json
prompts '"cat", "dog", "cow", "owl"' "a {}" && refused 2 "3 classes" zeroshot --checkpoint $m --data d --prompts p.json
rmdir d/none
prompts '"red", "blue", "green"' "a {}" && counted '"empty_classes": 1' '{"name": "green", "n": 0' -- zeroshot --checkpoint $m --data d --prompts p.json
prompts '"red"' "a {}" && refused 2 "1 classes" zeroshot --checkpoint $m --data d --prompts p.json
refused 2 "too few" probe --checkpoint $m --data d --lambda 1
refused 1 "none of the 2 samples" probe --checkpoint $m --data junk --lambda 1
counted '"trained_rows": 6' '"test_rows": 6' -- probe --checkpoint $m --data many --lambda 1

echo "$tried tried"
exit $bad
