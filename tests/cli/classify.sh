#!/bin/bash
# Folders, patterns, broken files, CSV and sorting of cloob classify; cloob search by words and by image. Usage: classify.sh CLOOB
. "$(dirname "$0")/../scratch.sh"

"$cloob" synth --out world --count 24 --val-count 8 --per-class 4 --size 32 --seed 1 --quiet > /dev/null || exit 77
"$cloob" train --train-data world/train.tsv --model tiny --force-image-size 32 --batch-size 8 --max-steps 2 --warmup 1 --vocab-size 600 --name m --logs . --quiet > m.txt || fail train
model=$(cat m.txt)
cp -r world/images photos
echo junk > photos/broken.jpg
ask() { "$cloob" classify --checkpoint "$model" --labels "fish,tree,house" --quiet "$@"; }

ask photos --json > all.json 2> err.txt || fail "a folder with one broken file: exit code $?"
grep -q broken.jpg err.txt || fail "the broken file is not named"
[ "$(grep -o '"image"' all.json | wc -l)" = 32 ] || fail "not every image of the folder"
ask 'photos/val-*' --csv > val.csv || fail "a pattern"
[ "$(wc -l < val.csv)" = 9 ] && head -1 val.csv | grep -qx 'image,label,p' || fail "CSV: $(head -2 val.csv)"
ask photos/broken.jpg > /dev/null 2>&1 && fail "nothing readable must not be success"
ask nowhere photos/val-0000001.jpg --json > one.json 2> err.txt || fail "one of two paths is not there: $(cat err.txt)"
[ "$(grep -o '"image"' one.json | wc -l)" = 1 ] && grep -q nowhere err.txt || fail "the path that is not there: $(cat one.json err.txt)"
"$cloob" embed --checkpoint "$model" --images nowhere photos/val-0000001.jpg --out one.npy --quiet > /dev/null 2> err.txt || fail "embed: one of two is not there: $(cat err.txt)"
mkdir empty
ask empty > /dev/null 2> err.txt && fail "an empty folder must not be success"
grep -q 'empty: holds no images' err.txt || fail "an empty folder: $(cat err.txt)"
LC_ALL=C ask photos/val-0000001.jpg 2> /dev/null | LC_ALL=C grep -q '[^ -~]' && fail "bars that are no ASCII in the C locale"
ask nowhere > /dev/null 2>&1 && fail "a path that is not there must not be success"

ask 'photos/val-*' --sort-into sorted --dry-run > /dev/null 2>&1 || fail "dry run"
[ -e sorted ] && fail "a dry run wrote something"
ask 'photos/val-*' --sort-into sorted > /dev/null || fail "sorting"
[ "$(find sorted -type l | wc -l)" = 8 ] || fail "links: $(find sorted | head -3)"
ask 'photos/val-*' --sort-into sorted > /dev/null || fail "sorting again"
[ "$(find sorted -type l | wc -l)" = 8 ] || fail "the second time added links"
ask 'photos/val-*' --sort-into copied --copy > /dev/null || fail "copying"
[ "$(find copied -type f | wc -l)" = 8 ] || fail "copies"
find copied -type f | while read -r f; do cmp -s "$f" "photos/$(basename "$f")" || echo "$f"; done | grep -q . && fail "a copy is another file"
ask 'photos/val-*' --sort-into copied --copy > /dev/null || fail "copying a second time"
[ "$(find copied -type f | wc -l)" = 16 ] || fail "names that are taken get a number"

# Other labels: links of the earlier ones are mentioned, and --clear removes them; files that are no links stay.
sort_again() { "$cloob" classify --checkpoint "$model" --labels "boat,cloud" 'photos/val-*' --sort-into sorted "$@" > /dev/null 2> err.txt || fail "new labels: $(cat err.txt)"; }
touch sorted/mine.txt "$(find sorted -mindepth 1 -type d | head -1)/mine.txt"
sort_again
grep -q 'sorted has 8 links in folders of other labels; --clear removes' err.txt || fail "new labels: $(cat err.txt)"
sort_again --clear --dry-run
grep -q '16 earlier links would be removed' err.txt && [ "$(find sorted -type l | wc -l)" = 16 ] || fail "a dry run of --clear: $(cat err.txt)"
sort_again --clear
[ "$(find sorted -type l | wc -l)" = 8 ] && [ "$(find sorted -name mine.txt | wc -l)" = 2 ] || fail "--clear: $(find sorted)"
[ "$(find sorted -type l -path '*/boat/*' -o -type l -path '*/cloud/*' | wc -l)" = 8 ] || fail "--clear: $(find sorted)"
"$cloob" classify --checkpoint "$model" --labels a,b photos --clear > /dev/null 2>&1
[ $? = 2 ] || fail "--clear without --sort-into"

# Labels from a file that somebody else wrote stay below the folder.
for label in ... .. . .... ../up /abs; do
    printf '%s\n' "$label" "$label" > one.txt
    mkdir -p box/in
    "$cloob" classify --checkpoint "$model" --labels-file one.txt 'photos/val-*' --sort-into box/in/sorted --copy > /dev/null 2> err.txt || fail "label $label: $(cat err.txt)"
    [ "$(find box -type f -path 'box/in/sorted/*/*' | wc -l)" = 8 ] && [ "$(find box -type f | wc -l)" = 8 ] || fail "label $label leaves the folder: $(find box -type f)"
    rm -r box
done

"$cloob" search index photos --checkpoint "$model" --quiet > /dev/null 2>&1 || fail "search index"
"$cloob" search query "a fish" --index photos --n 3 --json --quiet > q.json || fail "search query"
grep -q '^\[{"path": ' q.json || fail "search query --json is a list: $(head -c 80 q.json)"
"$cloob" search query --image photos/val-0000001.jpg --index photos --n 1 --quiet | grep -q 'val-0000001.jpg' || fail "an image does not find itself"
exit $bad
