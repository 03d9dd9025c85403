#!/bin/bash
# Results of commands as text and as JSON, compared with values that are known beforehand. Usage: results.sh CLOOB
set -u
. "$(dirname "$(realpath "$0")")/fixture.sh"
must() { # PATTERN ARGUMENTS...: succeeds, and its output has the pattern
    pattern=$1
    shift
    "$cloob" "$@" --quiet > out 2> err || fail "cloob $*: $(tail -1 err)"
    grep -qE -- "$pattern" out || fail "cloob $*: no $pattern in: $(head -c 600 out)"
}
refused() { # PATTERN ARGUMENTS...: wrong usage
    pattern=$1
    shift
    "$cloob" "$@" > out 2> err
    code=$?
    [ $code = 2 ] && grep -qE -- "$pattern" err || fail "cloob $*: code $code: $(tail -1 err)"
}

# retrieval from one stored pattern gives that pattern, whatever the state
must . embed --checkpoint model.safetensors --images "$image" --out one.safetensors
must . embed --checkpoint model.safetensors --images "$image" --out one.npy
must . embed --checkpoint model.safetensors --images world/images/* --retrieve one.safetensors --scale-hopfield 3 --out all.npy
numbers() { od -An -v -tf4 -w4 -j128 "$1"; } # of an .npy file
numbers one.npy > pattern
numbers all.npy | awk 'NR == FNR { p[n++] = $1; next } { d = $1 - p[(FNR - 1) % n]; if (d > 1e-6 || d < -1e-6) bad = 1; rows = FNR / n }
    END { exit bad || rows < 2 }' pattern - || fail "rows that are retrieved from one pattern differ from it"
must . embed --checkpoint model.safetensors --images "$image" --out e.npy --features pre
"$cloob" embed --checkpoint model.safetensors --images "$image" --retrieve nothing.safetensors --out x.npy > out 2> err && fail "a file that is not there"
grep -q nothing.safetensors err || fail "a file that is not there: $(tail -1 err)"

# two rows of each of two classes, at 0, 6, 90 and 84 degrees: the nearest neighbour of a row among the same rows is itself
{
    header='{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},"y":{"dtype":"I32","shape":[4],"data_offsets":[32,48]}}'
    printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    one='\0\0\200\077' tenth='\315\314\314\075' zero='\0\0\0\0'
    printf "$one$zero$one$tenth$zero$one$tenth$one$zero$zero\\001\\0\\0\\0\\001\\0\\0\\0"
} > c.safetensors
must '"k": 1, "test_acc": 1, "test_mean_per_class": 1, "train_rows": 4, "test_rows": 4' probe --train c.safetensors --test c.safetensors --knn 1 --json
must '^test acc  *1$' probe --train c.safetensors --test c.safetensors --knn 1
must '"seeds": 2, "shots": \[\{"shots": 1, "mean": 1, "deviation": 0, "test_acc": \[1, 1\]\}, \{"shots": 2,' \
    probe --train c.safetensors --test c.safetensors --shots 1,2 --seeds 2 --json
must '^ +2 shots  test .* over 2 draws' probe --train c.safetensors --test c.safetensors --shots 1,2 --seeds 2
refused shots probe --train c.safetensors --test c.safetensors --shots 1,,2

# a known model without weights
must '"embed_dim": 512' info ViT-B-32 --json
must 'ViT-B-32' info ViT-B-32

# the average of a model with itself is itself
must '"models": 2' average model.safetensors model.safetensors --out same.safetensors --json
must . embed --checkpoint same.safetensors --images "$image" --out same.npy
cmp -s one.npy same.npy || fail "the average of a model with itself"

# a sweep by parts, then whole
sweep="sweep --train-data world/train.tsv --val-data world/val.tsv --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --epochs 1
    --max-steps 1 --warmup 1 --workers 0 --threads 1 --device cpu --logs logs --name s --grid lr=1e-3,1e-4 --select image_to_text_R@1"
must '"settings": 2, .*"complete": false' $sweep --part 0/2 --json
must 'this part is done|image_to_text_R@1' $sweep --part 1/2
must '"found": 2, "failed": 0, "complete": true' $sweep --json
refused 'NAME=VALUE' sweep --train-data world/train.tsv --grid lr --select x
refused part $sweep --part 2
refused 'name must be' $sweep --name ..
refused 'name must be' ablate --train-data world/train.tsv --val-data world/val.tsv --model tiny-rn --batch-size 8 --name ..

refused 'nothing: unknown; choose from' bench nothing
refused 'needs one of' bench
exit $bad
