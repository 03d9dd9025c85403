#!/bin/bash
# params.txt has every option of `cloob train` under the flag's name, except --max-steps, which is not a setting of a run. Usage: params.sh CLOOB
. "$(dirname "$0")/../scratch.sh"
OMP_NUM_THREADS=1 "$cloob" train --dataset-type synthetic --train-num-samples 16 --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 \
    --max-steps 1 --warmup 1 --workers 0 --threads 1 --device cpu --quiet --logs logs --name a --aug-cfg gray_scale_prob=0.1 --hopfield-warmup 7 > /dev/null || exit 1
cut -d: -f1 logs/a/params.txt | LC_ALL=C sort > keys
"$cloob" help train | grep -oE '^ +--[a-z0-9-]+' | tr -d ' ' | sed 's/^--//; s/^no-//; s/-/_/g' | grep -vxE 'json|log_to|max_steps|preset|quiet|settings|threads' | LC_ALL=C sort -u > flags
missing=$(LC_ALL=C comm -13 keys flags)
[ -z "$missing" ] || { echo "FAIL: params.txt lacks" $missing; exit 1; }
grep -q max_steps logs/a/params.txt && { echo "FAIL: --max-steps is stored"; exit 1; }
grep -qx 'aug_cfg: gray_scale_prob=0.1' logs/a/params.txt && grep -qx 'hopfield_warmup: 7' logs/a/params.txt ||
    { echo "FAIL: other values than were given: $(grep -E 'aug_cfg|warmup' logs/a/params.txt)"; exit 1; }
