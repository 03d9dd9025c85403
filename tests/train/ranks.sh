#!/bin/bash
# Ranks through the program: 2 ranks print the losses of 1; 1 rank resumes a run of 2; a rank that fails or is killed ends all
# of them, and is named. Usage: ranks.sh CLOOB MPIRUN
. "$(dirname "$0")/../scratch.sh"
mpirun=$2
flags=(train --dataset-type synthetic --train-num-samples 64 --model tiny-rn --force-image-size 32 --vocab-size 540 --warmup 4
    --workers 1 --threads 1 --logs "$dir" --log-every-n-steps 1 --device cpu --use-bn-sync --quiet)
ranks() { "$mpirun" --allow-run-as-root --oversubscribe "$@" > "$dir/out" 2>&1; }
losses() { grep -o 'loss [-0-9.]* (' "$dir/$1/out.log" | tr -d '(' | awk '{ print $2 }'; }

"$cloob" "${flags[@]}" --batch-size 8 --max-steps 20 --name one > /dev/null || fail "one process"
ranks -np 2 "$cloob" "${flags[@]}" --batch-size 4 --max-steps 20 --name two || fail "two ranks: $(cat "$dir/out")"
paste <(losses one) <(losses two) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d } END { printf "20 losses differ by %g at most (5 digits printed)\n", worst; exit !(NR == 20 && worst < 2.1e-5) }' || fail "the losses of one and two ranks differ"
[ "$(grep -c checkpoints "$dir/out")" = 1 ] || fail "one rank speaks for all: $(cat "$dir/out")"

ranks -np 2 "$cloob" "${flags[@]}" --batch-size 4 --max-steps 20 --resume "$dir/two/checkpoints/epoch_1.safetensors" --name two || fail "resume with two: $(cat "$dir/out")"
"$cloob" "${flags[@]}" --batch-size 8 --schedule-steps 24 --resume latest --name two > "$dir/out" 2>&1 || fail "resume with one: $(cat "$dir/out")"
grep -q 'done: 24 steps' "$dir/two/out.log" || fail "resume with another number of ranks"

ranks -np 1 "$cloob" "${flags[@]}" --batch-size 4 --name vocab : -np 1 "$cloob" "${flags[@]}" --batch-size 4 --name vocab --vocab nowhere && fail "a rank without vocabulary"
grep -q 'rank 1 of 2 failed' "$dir/out" && grep -q 'nowhere: cannot open' "$dir/out" || fail "a rank that cannot begin is named: $(cat "$dir/out")"

ranks -np 1 "$cloob" "${flags[@]}" --batch-size 4 --name device : -np 1 timeout 60 "$cloob" "${flags[@]}" --batch-size 4 --name device --device cuda:999 && fail "a rank without its device"
grep -q 'rank 1 of 2 failed' "$dir/out" && grep -q 'device cuda' "$dir/out" || fail "a rank that cannot open its device is named: $(cat "$dir/out")"

ranks -np 1 bash -c "ulimit -f 64; exec \"\$@\"" - "$cloob" "${flags[@]}" --batch-size 4 --name full : -np 1 "$cloob" "${flags[@]}" --batch-size 4 --name full && fail "a full disk"
grep -q 'rank 0: .*cannot write' "$dir/out" || fail "a rank that fails in a run is named: $(cat "$dir/out")"

# A rank that is stopped is named after --collective-timeout, and the run ends.
stopped() { # FLAGS...: stops rank 1 once there is a checkpoint
    rm -rf "$dir/stop"
    timeout 120 "$mpirun" --allow-run-as-root --oversubscribe -np 2 "$cloob" "${flags[@]}" --batch-size 4 --epochs 100000 --save-every 1steps --collective-timeout 2 --name stop > "$dir/out" 2>&1 &
    local job=$! rank=
    for _ in $(seq 600); do [ -e "$dir/stop/checkpoints/recent.safetensors" ] && break; sleep 0.1; done
    for pid in $(ps -o pid= --ppid "$(ps -o pid= --ppid $job | tr -d ' ')"); do
        tr '\0' '\n' < "/proc/$pid/environ" 2> /dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1" && rank=$pid
    done
    [ -n "$rank" ] && kill -STOP "$rank" || fail "no rank $1 to stop: $(cat "$dir/out")"
    wait $job
    code=$?
    [ $code != 0 ] && [ $code != 124 ] || fail "a stopped rank $1: code $code"
    grep -q "rank $1 of 2 did not respond while the others waited 2 s" "$dir/out" || fail "a stopped rank $1 is not named: $(cat "$dir/out")"
    for _ in $(seq 100); do grep -qs '^State:.[^Z]' "/proc/$rank/status" || return 0; sleep 0.1; done
    fail "the stopped rank is still there: $(cat "/proc/$rank/status" | head -3)"
    kill -KILL "$rank"
}
stopped 1
stopped 0

# A search over ranks: one run after the other in the same processes, one table.
ranks -np 2 "$cloob" sweep "${flags[@]:1}" --batch-size 4 --max-steps 2 --train-data none --val-data none --val-num-samples 16 --grid method=clip,cloob --select clip_val_loss --name search || fail "a search of two ranks: $(cat "$dir/out")"
[ "$(wc -l < "$dir/search/results.jsonl")" = 2 ] && [ "$(grep -c '^# search' "$dir/out")" = 1 ] || fail "a line for each run and one table: $(cat "$dir/out")"

[ $bad = 0 ] && echo "ranks agree, go on with other numbers, and end together"
exit $bad
