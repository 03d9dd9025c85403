#!/bin/bash
# A learned temperature through the program, on pairs that do not match: the inverse temperature of InfoNCE falls, as CLIP's does (with InfoNCE / inv_tau it
# could only rise), alike on 1, 2 and 4 ranks. InfoLOOB's, which follows the paper's loss, rises. Usage: temperature.sh CLOOB [MPIRUN]
. "$(dirname "$0")/../scratch.sh"
mpirun=${2:-}
flags=(train --dataset-type synthetic --train-num-samples 512 --model tiny-vit --vocab-size 540 --warmup 2 --lr 1e-3 --learnable-inv-tau --init-inv-tau 20
    --workers 1 --threads 1 --logs "$dir" --log-every-n-steps 1 --device cpu --report-to none --quiet --epochs 1 --max-steps 30)
column() { awk -F'\t' -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i } NR > 1 { print $c }' "$dir/$1/metrics.tsv"; }
for method in clip infonce-hopfield cloob infoloob; do
    "$cloob" "${flags[@]}" --method $method --batch-size 16 --name $method > "$dir/out" 2>&1 || fail "$method: $(cat "$dir/out")"
    echo "$method: $(column $method inv_tau | sed -n '1p;10p;20p;30p' | paste -sd ' ')"
done
falls() { column "$1" inv_tau | awk 'NR > 3 && $1 >= before { bad = 1 } { before = $1 } END { exit bad || NR != 30 || $1 > 19.9 }'; }
for method in clip infonce-hopfield; do falls $method || fail "$method: inv_tau does not fall: $(column $method inv_tau | paste -sd ' ')"; done
for method in cloob infoloob; do [ "$(column $method inv_tau | tail -1 | cut -d. -f1)" = 20 ] || fail "$method: $(column $method inv_tau | paste -sd ' ')"; done

# Ranks follow the same gradient, and print the same norm.
for n in 2 4; do
    [ -n "$mpirun" ] || break
    "$mpirun" --allow-run-as-root --oversubscribe -np $n "$cloob" "${flags[@]}" --method clip --batch-size $((16 / n)) --name clip$n > "$dir/out" 2>&1 || fail "$n ranks: $(cat "$dir/out")"
    for name in inv_tau grad_norm; do
        paste <(column clip $name) <(column clip$n $name) | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > 2e-3) exit 1 } END { exit NR != 30 }' || fail "$n ranks: $name is not that of one process"
    done
done
[ $bad = 0 ] && echo "InfoNCE's inverse temperature falls where pairs do not match"
exit $bad
