#!/bin/bash
# A preset's batch is that of all ranks: 1, 2 and 4 ranks have one global batch, one schedule and, to rounding, one loss.
# Usage: presets.sh CLOOB MPIRUN
. "$(dirname "$0")/../scratch.sh"
mpirun=$2
flags=(train --dataset-type synthetic --train-num-samples 64 --model tiny-rn --force-image-size 32 --vocab-size 540 --warmup 1
    --workers 1 --threads 1 --logs "$dir" --log-every-n-steps 1 --device cpu --use-bn-sync --quiet --max-steps 2)
ranks() { "$mpirun" --allow-run-as-root --oversubscribe -np "$1" "$cloob" "${flags[@]}" "${@:2}" > "$dir/out" 2>&1; }
numbers() { grep -oE '(loss|lr) [-0-9.e]+' "$dir/$1/out.log"; }

for n in 1 2 4; do
    ranks $n --preset cc --global-batch-size 16 --name cc$n || fail "$n ranks: $(cat "$dir/out")"
    grep -q "batch 16 = $n x $((16 / n))" "$dir/cc$n/out.log" || fail "$n ranks: $(grep batch "$dir/cc$n/out.log")"
    for line in 'global_batch_size: 16' "batch_size: $((16 / n))" 'restart_epochs: 7' 'lr_scheduler: cosine-restarts' 'lr: 0.001' 'wd: 0.1' 'epochs: 31'; do
        grep -qx "$line" "$dir/cc$n/params.txt" || fail "$n ranks: params.txt lacks $line"
    done
    grep -o '[0-9]* steps an epoch, [0-9]* steps in all' "$dir/cc$n/out.log" > "$dir/steps$n"
    cmp -s "$dir/steps1" "$dir/steps$n" || fail "$n ranks: $(cat "$dir/steps$n")"
    paste <(numbers cc1) <(numbers cc$n) |
        awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 2.1e-5 || $1 != $3) exit 1 } END { exit NR < 4 }' || fail "$n ranks: $(numbers cc1) and $(numbers cc$n)"
done
ranks 1 --preset yfcc --global-batch-size 16 --name yfcc || fail "yfcc: $(cat "$dir/out")"
grep -qx 'restart_epochs: 7' "$dir/yfcc/params.txt" || fail "yfcc has no restarts"

# CLIP has the paper's schedule, too: restarts in all experiments, a warm-up of 20,000 steps on CC and 10,000 on YFCC.
schedule() { grep -xE '(lr_scheduler|restart_epochs|epochs|method|learnable_inv_tau|init_inv_tau): .*' "$dir/$1/params.txt" | sort | paste -sd ' '; }
clip() {
    ranks 1 --preset "$1" --global-batch-size 16 --model tiny-rn --name "$1" || fail "$1: $(cat "$dir/out")"
    [ "$(schedule "$1")" = "epochs: $2 init_inv_tau: 14.3 learnable_inv_tau: True lr_scheduler: $3 method: clip restart_epochs: $4" ] || fail "$1: $(schedule "$1")"
}
clip clip-cc 31 cosine-restarts 7
clip clip-cc-128 128 cosine-restarts 7
clip clip-yfcc 28 cosine-restarts 7
clip openclip-cc 31 cosine 0

# What cannot be divided is refused; --batch-size stays per rank and beats the preset's.
ranks 3 --preset cc --global-batch-size 16 --name three && fail "16 over 3 ranks"
grep -q -- '--global-batch-size 16 cannot be divided by 3 ranks' "$dir/out" || fail "16 over 3 ranks: $(cat "$dir/out")"
ranks 2 --preset cc --batch-size 4 --name two || fail "--batch-size 4: $(cat "$dir/out")"
grep -q 'batch 8 = 2 x 4' "$dir/two/out.log" || fail "--batch-size 4: $(grep batch "$dir/two/out.log")"
"$cloob" "${flags[@]}" --batch-size 4 --global-batch-size 8 --name both > "$dir/out" 2>&1 && fail "both sizes"
[ $bad = 0 ] && echo "1, 2 and 4 ranks train the preset alike"
exit $bad
