#!/bin/bash
# Photos as people have them, through the program: turned by EXIF, larger than the limit, unreadable, a model without words.
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

# A photo above the limit is read smaller: the limit is lowered here instead of drawing 25 million pixels.
"$cloob" classify --checkpoint model.safetensors --labels "fish,tree" photos/plain.jpg --max-image-pixels 400 --quiet > out 2> err || fail "a photo above the limit: $(cat err)"
"$cloob" embed --checkpoint model.safetensors --images photos/plain.jpg --max-image-pixels 400 --out no.npy --quiet > out 2> err && fail "an image above the limit was embedded"
grep -q -- '--max-image-pixels' err || fail "the message names no option that embed has: $(cat err)"

# A model without a tokenizer cannot be asked for words: refused before anything is embedded.
"$cloob" convert model.safetensors wordless --to open_clip --quiet > out 2> err || fail "convert: $(cat err)"
"$cloob" search index world/images --checkpoint wordless --out wordless.index > out 2> err && fail "a model without a tokenizer was indexed"
grep -q -- '--vocab' err || fail "no tokenizer: $(cat err)"
[ -e wordless.index ] && fail "an index was written for a model without a tokenizer"
[ $bad = 0 ] && echo "photos as people have them"
exit $bad
