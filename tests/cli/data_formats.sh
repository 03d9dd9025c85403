#!/bin/bash
# Data and weights in common forms: usual column names, texts next to images, a run's folder as a checkpoint,
# broken files, weights that moved. Usage: data_formats.sh CLOOB
set -u
. "$(dirname "$0")/fixture.sh"
count() { "$cloob" info --json "$1" 2> err | grep -oE '"(samples|count)": ?[0-9]+' | grep -oE '[0-9]+' | head -1; }

# Columns by their usual names, whatever the separator; URLs are refused with a reason.
mkdir -p csv && cp -r world/images csv/images
rows() { awk -F'\t' -v OFS="$1" 'NR > 1 { gsub(/,|;/, " ", $2); print $1, $2 }' world/train.tsv; }
for header in filepath,title image,caption path,text file_name,sentence filename,caption; do
    { echo "$header"; rows ,; } > "csv/list.csv"
    "$cloob" info csv/list.csv > out 2> err || fail "columns $header: $(cat err)"
done
{ echo 'caption;image'; rows ';' | awk -F';' -v OFS=';' '{ print $2, $1 }'; } > csv/list.csv
"$cloob" info csv/list.csv > out 2> err || fail "caption;image: $(cat err)"
printf 'url,caption\nhttp://example.org/a.jpg,a dog\n' > csv/list.csv
"$cloob" info csv/list.csv > out 2> err && fail "URLs were taken for files"
grep -q 'images are URLs' err || fail "URLs: $(cat err)"
printf 'photo,words\na.jpg,a dog\n' > csv/list.csv
"$cloob" info csv/list.csv > out 2> err && fail "unknown columns were taken"
grep -q -- '--csv-img-key' err || fail "unknown columns: $(cat err)"

# image.jpg next to image.txt: pairs. An image without a text is left out and counted.
mkdir pairs && n=0
while IFS=$'\t' read -r path title; do
    [ "$path" = filepath ] && continue
    cp "world/$path" "pairs/$n.${path##*.}" && printf '%s\n' "$title" > "pairs/$n.txt" && n=$((n + 1))
done < world/train.tsv
rm pairs/3.txt
"$cloob" train --train-data pairs --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --max-steps 1 --workers 0 \
    --threads 1 --device cpu --logs logs --name pairs > out 2> err || fail "a folder of images and texts: $(cat err)"
grep -q "^$((n - 1)) pairs" err || fail "a folder of $n images and texts: $(cat err)"
grep -q '1 damaged or incomplete' err || fail "the image without a text is not counted: $(cat err)"

# A run's folder stands for its newest checkpoint.
"$cloob" embed --checkpoint logs/a --images "$image" --out e.npy --quiet > out 2> err || fail "--checkpoint RUN: $(cat err)"
"$cloob" train --pretrained logs/a --train-data world/train.tsv --batch-size 8 --max-steps 1 --workers 0 --threads 1 --name warm --quiet > out 2> err || fail "--pretrained RUN: $(cat err)"

# One unreadable file among named ones is left out, and names are written next to a .npy.
echo junk > broken.jpg
"$cloob" embed --checkpoint model.safetensors --images "$image" broken.jpg --out some.npy > out 2> err || fail "one broken file ends embed: $(cat err)"
grep -q '1 could not be read' out || fail "the broken file is not counted: $(cat out)"
grep -q broken.jpg err || fail "the broken file is not named: $(cat err)"
[ "$(wc -l < some.npy.txt)" = 1 ] || fail "names next to some.npy"
"$cloob" embed --checkpoint model.safetensors --images broken.jpg --out none.npy > out 2> err && fail "nothing was readable"

# Weights that moved: the message says what to pass.
cp logs/a/checkpoints/latest.safetensors here.safetensors
"$cloob" search index world/images --checkpoint here.safetensors --out index --quiet > out 2> err || fail "search index: $(cat err)"
mv here.safetensors there.safetensors
"$cloob" search query "a fish" --index index > out 2> err && fail "weights that are gone"
grep -q -- '--checkpoint' err || fail "moved weights: $(cat err)"
"$cloob" search query "a fish" --index index --checkpoint there.safetensors > out 2> err || fail "the new place: $(cat err)"
[ $bad = 0 ] && echo "data and weights as people have them"
exit $bad
