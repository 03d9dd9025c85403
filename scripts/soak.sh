#!/bin/bash
# Trains for a long time with validation, frequent saves and random disturbances, and watches memory, descriptors and threads.
#
#     scripts/soak.sh [SECONDS [CLOOB [SAMPLES]]]     5400 seconds (90 minutes) and build/cloob by default; days are fine
#     scripts/soak.sh serve [SECONDS [CLOOB [MIB]]]   a mixed load on the server for 600 seconds; reports the most memory it takes
#
# SAMPLES is a folder that keeps one file per life: a line a second with resident KiB, descriptors and threads.
# Disturbances: the process is stopped and continued, asked to end, killed, resumed with another batch. At the end: the lives, what
# disturbed them, and the growth of each figure between the first and the last quarter of the longest life. Exit code 1 when memory or
# descriptors grew by more than a tenth, or when a run did not go on.
set -u
if [ "${1:-}" = serve ]; then
    exec python3 "$(dirname "$0")/../tests/serve/load.py" "${3:-build/cloob}" "${2:-600}" "${4:-1024}"
fi
seconds=${1:-5400}
cloob=$(realpath "${2:-build/cloob}")
samples=${3:-}
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-soak-XXXXXX")
trap 'kill -9 $pid 2> /dev/null; rm -rf "$dir"' EXIT
pid=
batches=(8 16 32)
stops=0 ends=0 kills=0 lives=0
start() {
    local batch=${batches[RANDOM % 3]} resume=
    [ -e "$dir/logs/soak/checkpoints/latest.safetensors" ] && resume="--resume latest"
    "$cloob" train --dataset-type synthetic --train-num-samples 256 --val-data synthetic --val-num-samples 32 --model tiny-rn --force-image-size 32 \
        --vocab-size 540 --batch-size "$batch" --epochs 1000000 --warmup 10 --workers 2 --device cpu --quiet --logs "$dir/logs" --name soak \
        --save-every 20steps --delete-previous-checkpoint --log-every-n-steps 50 $resume > /dev/null 2>> "$dir/err" &
    pid=$!
    lives=$((lives + 1))
    : > "$dir/life$lives"
}
sample() { # resident KiB, descriptors, threads
    [ -r /proc/$pid/status ] || return
    echo "$(awk '/^VmRSS/ { print $2 }' /proc/$pid/status) $(ls /proc/$pid/fd 2> /dev/null | wc -l) $(awk '/^Threads/ { print $2 }' /proc/$pid/status)" >> "$dir/life$lives"
}
end=$((SECONDS + seconds))
patience=$((seconds / 8 > 20 ? seconds / 8 : 20)) # a life lasts this long, more or less
start
until_=$((SECONDS + patience / 2 + RANDOM % patience))
while [ $SECONDS -lt $end ]; do
    sleep 1
    kill -0 $pid 2> /dev/null || { echo "FAIL: a run ended by itself: $(tail -1 "$dir/err")"; exit 1; }
    sample
    if [ $((RANDOM % 20)) = 0 ]; then
        kill -STOP $pid; sleep 0.$((RANDOM % 10)); kill -CONT $pid
        stops=$((stops + 1))
    fi
    if [ $SECONDS -ge $until_ ]; then
        if [ $((RANDOM % 2)) = 0 ]; then kill -TERM $pid; ends=$((ends + 1)); else kill -KILL $pid; kills=$((kills + 1)); fi
        wait $pid 2> /dev/null
        start
        until_=$((SECONDS + patience / 2 + RANDOM % patience))
    fi
done
kill -TERM $pid; wait $pid 2> /dev/null; pid=
[ -n "$samples" ] && mkdir -p "$samples" && cp "$dir"/life* "$samples"
longest=$(wc -l "$dir"/life* | grep -v total | sort -n | tail -1 | awk '{ print $2 }')
updates=$(grep -oE '"train.updates":"[0-9]+"' -a -m1 "$dir/logs/soak/checkpoints/latest.safetensors" | head -1 | grep -oE '[0-9]+')
echo "$seconds s: $lives lives, $stops pauses, $ends asked to end, $kills killed; ${updates:-0} steps, $(wc -l < "$dir/logs/soak/checkpoints/results.jsonl") evaluations, $(ls "$dir/logs/soak/checkpoints" | wc -l) files left"
awk -v n="$(wc -l < "$longest")" '
    NR > n / 8 && NR <= n * 3 / 8 { a += $1; b += $2; c += $3; k++ }
    NR > n * 3 / 4 { x += $1; y += $2; z += $3; m++ }
    END { if (!k || !m) exit 1
        printf "longest life, %d samples: resident %.1f -> %.1f MiB, descriptors %.1f -> %.1f, threads %.1f -> %.1f\n", n, a / k / 1024, x / m / 1024, b / k, y / m, c / k, z / m
        exit x / m > 1.1 * a / k || y / m > 1.1 * b / k }' "$longest" || { echo "FAIL: it grows"; exit 1; }
