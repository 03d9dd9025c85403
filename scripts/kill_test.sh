#!/bin/bash
# Kills a run at random moments, continues with --resume latest each time, and compares the end with a run that was left
# alone. Usage: scripts/kill_test.sh [KILLS] [PROGRAM] [DEVICE]      20 kills on the cpu by default; exit code 0 when the weights
# are the same.
set -u
kills=${1:-20}
cloob=${2:-build/cloob}
device=${3:-cpu}
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-kill-XXXXXX")
trap 'rm -rf "$dir"' EXIT
flags=(train --dataset-type synthetic --train-num-samples 64 --model tiny-rn --force-image-size 32 --vocab-size 540
    --batch-size 8 --warmup 10 --workers 1 --threads 1 --logs "$dir" --save-every 3steps --quiet --device "$device"
    --log-every-n-steps 10 --delete-previous-checkpoint --schedule-steps $((kills * 20 + 40)) --epochs 100000)

"$cloob" "${flags[@]}" --name whole > /dev/null 2> "$dir/whole.err" || { cat "$dir/whole.err"; exit 1; }

killed=0 runs=0 resume=()
while [ "$killed" -lt "$kills" ]; do
    "$cloob" "${flags[@]}" --name killed ${resume[@]+"${resume[@]}"} > /dev/null 2> "$dir/killed.err" &
    run=$!
    sleep "$(awk -v r="$RANDOM" 'BEGIN { printf "%.3f", 0.03 + 0.35 * r / 32768 }')"
    kill -9 "$run" 2> /dev/null
    wait "$run" 2> /dev/null
    code=$?
    runs=$((runs + 1))
    case $code in
        137) killed=$((killed + 1)) ;;
        0) break ;; # it was faster than the kills
        *) echo "run $runs ended with $code: $(cat "$dir/killed.err")"; exit 1 ;;
    esac
    # Before the first checkpoint there is nothing to resume: begin anew.
    if ls "$dir"/killed/checkpoints/*.safetensors > /dev/null 2>&1; then resume=(--resume latest)
    else resume=(); rm -rf "$dir/killed"; fi
done
"$cloob" "${flags[@]}" --name killed ${resume[@]+"${resume[@]}"} > /dev/null 2> "$dir/killed.err" ||
    { echo "the last run failed: $(cat "$dir/killed.err")"; exit 1; }

# The run's name is in the metadata; everything after the header must be the same bytes.
body() { tail -c +"$((9 + $(od -An -tu8 -N8 "$1" | tr -d ' ')))" "$1" | sha256sum; }
a=$(body "$dir/whole/checkpoints/latest.safetensors") b=$(body "$dir/killed/checkpoints/latest.safetensors")
left=$(ls "$dir"/killed/checkpoints | grep -c tmp)
echo "killed $killed times: weights and state $([ "$a" = "$b" ] && echo identical || echo DIFFER), $left half-written files left"
[ "$a" = "$b" ] && [ "$left" = 0 ]
