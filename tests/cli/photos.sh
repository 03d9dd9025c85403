#!/bin/bash
# Photos through the program: rotated by EXIF, larger than the limit, unreadable; a model without a tokenizer.
# Usage: photos.sh CLOOB
set -u
. "$(dirname "$0")/fixture.sh"
mkdir photos
cp "$image" photos/plain.jpg
head -c 2 photos/plain.jpg | od -An -tx1 | grep -q 'ff d8' || { echo "skipped: the drawn images are no JPEGs here"; exit 77; }

# The same JPEG with orientation 6 (a quarter turn) in an EXIF block behind its start marker.
{
    printf '\xff\xd8\xff\xe1\x00\x1eExif\x00\x00II\x2a\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00'
    tail -c +3 photos/plain.jpg
} > photos/turned.jpg
rows() { "$cloob" embed --checkpoint model.safetensors --images photos/plain.jpg photos/turned.jpg --out "$1" --quiet "${@:2}" > /dev/null 2> err || fail "embed: $(cat err)"; }
half() { tail -c +129 "$1" | { if [ "$2" = 1 ]; then head -c "$3"; else tail -c "$3"; fi; } | cksum; }

# A view for training and evaluation ignores the orientation, as torchvision's loaders do; --exif-orientation applies it.
rows ignored.npy
rows applied.npy --exif-orientation
bytes=$((($(wc -c < ignored.npy) - 128) / 2))
[ "$(half ignored.npy 1 $bytes)" = "$(half ignored.npy 2 $bytes)" ] || fail "embed applied the orientation without being asked"
[ "$(half applied.npy 1 $bytes)" = "$(half applied.npy 2 $bytes)" ] && fail "--exif-orientation changes nothing"

# search and classify always apply it.
"$cloob" classify --checkpoint model.safetensors --labels "fish,tree,house" photos/plain.jpg --csv --quiet 2> err | cut -d, -f3 > plain || fail "classify: $(cat err)"
"$cloob" classify --checkpoint model.safetensors --labels "fish,tree,house" photos/turned.jpg --csv --quiet 2> err | cut -d, -f3 > turned || fail "classify: $(cat err)"
cmp -s plain turned && fail "classify ignores the orientation"
echo junk > photos/broken.jpg
"$cloob" search index photos --checkpoint model.safetensors > out 2> err || fail "search index: $(cat err)"
grep -q 'broken.jpg' err || fail "search index does not name the file that it left out: $(cat out err)"
"$cloob" search query --image photos/turned.jpg --index photos --json --n 2 --quiet > found 2> err || fail "search: $(cat err)"
[ "$(grep -oE '"(score|cosine)": ?[0-9.]+' found | sort -u | wc -l)" = 2 ] || fail "search ignores the orientation: $(cat found)"

# A model that did not make the index is refused for images as for words: a narrower one was read past its end.
"$cloob" train --train-data world/train.tsv --model tiny --force-image-size 32 --vocab-size 540 --batch-size 8 --max-steps 1 --warmup 1 \
    --workers 0 --threads 1 --device cpu --quiet --logs logs --name other > /dev/null || exit 1
other=logs/other/checkpoints/latest.safetensors
"$cloob" search index photos --checkpoint $other --out other.index --quiet > out 2> err || fail "search index: $(cat err)"
for pair in "photos $other" "other.index model.safetensors"; do
    set -- $pair
    "$cloob" search query --image photos/plain.jpg --index "$1" --checkpoint "$2" > out 2> err && fail "--image with another model: $(cat out)"
    grep -q 'made with another model' err || fail "--image with another model: $(cat err)"
done

# A folder may be moved with its index; an index elsewhere says that the folder is gone, and is corrected by indexing again.
mv photos albums
"$cloob" search query --image albums/plain.jpg --index albums --json --quiet > found 2> err || fail "query after a move: $(cat err)"
[ -s err ] && fail "query after a move: $(cat err)"
grep -q "\"$PWD/albums/plain.jpg\"" found || fail "query after a move lists $(cat found)"
"$cloob" search index albums --checkpoint model.safetensors --json --quiet > out 2> err || fail "search index after a move: $(cat err)"
grep -q '"kept": *2, *"embedded": *0' out || fail "search index after a move: $(cat out)"
"$cloob" search query --image albums/plain.jpg --index other.index --quiet > out 2> err || fail "query of an index elsewhere: $(cat err)"
grep -q 'photos no longer exists.*search index NEW_FOLDER --out other.index' err || fail "dead paths without a warning: $(cat err)"
"$cloob" search index albums --checkpoint $other --out other.index --json --quiet > out 2> err || fail "search index after a move: $(cat err)"
grep -q '"kept": *2, *"embedded": *0' out || fail "an index elsewhere after a move: $(cat out)"
"$cloob" search query --image albums/plain.jpg --index other.index --quiet > out 2> err || fail "query: $(cat err)"
{ [ -s err ] || ! grep -q "$PWD/albums/plain.jpg" out; } && fail "an index elsewhere after a move: $(cat out err)"
mv albums/turned.jpg away.jpg
"$cloob" search query --image albums/plain.jpg --index albums --quiet > out 2> err || fail "query: $(cat err)"
grep -q '1 of these 2 images no longer exist' err || fail "a dead path without a warning: $(cat err)"
mv away.jpg albums/turned.jpg
mv albums photos

# Ctrl-C and SIGTERM save what was embedded; the same command continues, and the index is that of an uninterrupted run.
# The images are large, so that indexing takes longer than the second until progress is printed.
"$cloob" synth --out drawn --count 1 --size 512 --seed 1 --quiet > /dev/null || fail "synth"
large=$(find drawn/images -name 'train*' | head -1)
mkdir many
for i in $(seq 1 2000); do ln "$large" many/$i.jpg; done
for signal in INT TERM; do
    : > err # no progress of an earlier command
    "$cloob" search index many --checkpoint $other --threads 1 --out $signal.index > out 2> err &
    pid=$!
    for t in $(seq 1 100); do grep -q 'images' err && break; sleep 0.1; done # the first line of progress
    kill -$signal $pid
    wait $pid
    code=$?
    [ $code = 130 ] || fail "search index after SIG$signal: exit code $code, $(cat err)"
    saved=$(grep -oE '[0-9]+ of 2000 images are saved' err | cut -d' ' -f1)
    [ "${saved:-0}" -gt 0 ] || { fail "SIG$signal: $(cat err)"; continue; }
    "$cloob" search index many --checkpoint $other --threads 1 --out $signal.index --json --quiet > out 2> err || fail "continue: $(cat err)"
    grep -q "\"kept\": *$saved, *\"embedded\": *$((2000 - saved))," out || fail "saved $saved, then $(cat out)"
    [ -f whole.index ] || "$cloob" search index many --checkpoint $other --threads 1 --out whole.index --quiet > out 2> err || fail "index: $(cat err)"
    cmp $signal.index whole.index || fail "SIG$signal: another index than without it"
done

# A photo above the limit is read smaller: the limit is lowered here instead of drawing 25 million pixels.
"$cloob" classify --checkpoint model.safetensors --labels "fish,tree" photos/plain.jpg --max-image-pixels 400 --quiet > out 2> err || fail "a photo above the limit: $(cat err)"
"$cloob" embed --checkpoint model.safetensors --images photos/plain.jpg --max-image-pixels 400 --out no.npy --quiet > out 2> err && fail "an image above the limit was embedded"
grep -q -- '--max-image-pixels' err || fail "the message names no option that embed has: $(cat err)"

# Phones take photos of 48 megapixels, as HEIC: images of up to 100 are read, one at a time whatever the threads; data sets and the server
# stay at 25.
mkdir large
"$cloob" info photos/plain.jpg --view large/1.png --size 5200 --quiet > out 2> err || fail "a large image: $(cat err)"
for i in 2 3 4; do ln large/1.png large/$i.png; done
"$cloob" embed --checkpoint model.safetensors --images large/1.png --out large.npy --quiet > out 2> err || fail "embed, 27 megapixels: $(cat err)"
"$cloob" search index large --checkpoint model.safetensors --json --quiet > out 2> err || fail "search, 27 megapixels: $(cat err)"
grep -q '"embedded": *4' out || fail "search, 27 megapixels: $(cat out err)"
peak() { python3 -c 'import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)' "$@"; }
if command -v python3 > /dev/null; then
    classify=("$cloob" classify --checkpoint model.safetensors --labels fish,tree --quiet --threads 4)
    export ASAN_OPTIONS=${ASAN_OPTIONS:-}:quarantine_size_mb=1 # what a sanitizer keeps after free is not the program's
    one=$(peak "${classify[@]}" large/1.png) four=$(peak "${classify[@]}" large)
    [ "$four" -lt $((one + 100)) ] || fail "four images of 27 megapixels: $four MiB, one: $one MiB"
fi
printf 'filepath\ttitle\nlarge/1.png\ta fish\n' > large.tsv
"$cloob" info large.tsv > out 2> err || fail "info: $(cat err)"
grep -q 'more than the limit of 25000000' out || fail "a data set with 27 megapixels: $(cat out)"

# A model without a tokenizer cannot be asked for words: refused before anything is embedded.
"$cloob" convert model.safetensors wordless.safetensors --to openai --quiet > out 2> err || fail "convert: $(cat err)"
"$cloob" search index world/images --checkpoint wordless.safetensors --out wordless.index > out 2> err && fail "a model without a tokenizer was indexed"
grep -q -- '--vocab' err || fail "no tokenizer: $(cat err)"
[ -e wordless.index ] && fail "an index was written for a model without a tokenizer"
[ $bad = 0 ] && echo "photos as people have them"
exit $bad
