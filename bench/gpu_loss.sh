#!/bin/bash
# The objective on one GPU, from a clean checkout: builds what it needs, checks it against the definition, times it beside
# PyTorch, and prints a table last. usage: bench/gpu_loss.sh [all|check|time|tune|million]
# The peer is bench/peers/cloob_ref.py. Logs go to $OUT.
cd "$(dirname "$0")/.." || exit 1
what=${1:-all}
out=${OUT:-build-gpu/out}
mkdir -p "$out"
b=build-gpu
if ! { cmake -S . -B $b -G Ninja -DCLOOB_WITH_MPI=OFF -DCLOOB_WERROR=OFF > "$out/build.log" 2>&1 &&
    cmake --build $b --target test_loss_cuda bench_loss_cuda >> "$out/build.log" 2>&1; }; then
    tail -40 "$out/build.log"
    echo "BUILD FAILED"
    exit 1
fi
nvidia-smi --query-gpu=name,clocks.sm,temperature.gpu --format=csv,noheader
run() { timeout "$1" "${@:2}" 2>&1; }

if [ "$what" = all ] || [ "$what" = check ]; then
    run 100 $b/test_loss_cuda | tee "$out/check.log" | grep -vE "^    fused|^    even|^    odd|^    stored" | tail -60
    grep -E "^    " "$out/check.log" | tail -28
fi
if [ "$what" = all ] || [ "$what" = time ]; then
    : > "$out/ours.jsonl"
    for n in 4096 16384 32768; do
        run 60 $b/bench_loss_cuda $n 1024 10 bf16 0 | tee -a "$out/ours.jsonl"
        run 60 $b/bench_loss_cuda $n 1024 10 bf16 0 plain | tee -a "$out/ours.jsonl"
    done
    run 60 $b/bench_loss_cuda 131072 1024 2 bf16 0 | tee -a "$out/ours.jsonl"
    run 60 $b/bench_loss_cuda 16384 1024 1 f32 0 | tee -a "$out/ours.jsonl"
    PYTHONUNBUFFERED=1 run 100 python3 bench/peers/loss_torch.py --device cuda --precision bf16 --dim 1024 --repeats 10 \
        --n 4096 16384 32768 | tee "$out/peer.jsonl"
fi
if [ "$what" = all ] || [ "$what" = tune ]; then
    for tile in 2048 8192; do
        run 60 $b/bench_loss_cuda 32768 1024 5 bf16 $tile
        run 60 $b/bench_loss_cuda 32768 1024 5 bf16 $tile plain
    done | tee "$out/tune.jsonl"
fi
if [ "$what" = million ]; then
    run 500 $b/bench_loss_cuda 1048576 1024 1 bf16 0 | tee "$out/million.jsonl"
fi
echo "---- table: who n ms GiB"
cat "$out"/ours.jsonl "$out"/tune.jsonl "$out"/peer.jsonl "$out"/million.jsonl 2> /dev/null |
    python3 -c '
import json, sys
for line in sys.stdin:
    try: r = json.loads(line)
    except ValueError: continue
    who = "torch" if "peer" in r else "ours plain" if r.get("plain") else "ours fused" if r["precision"] == "bf16" else "ours"
    print("%-11s %-5s n %7d tile %5s  %10s ms  %7s GiB  %s" % (who, r.get("precision", ""), r["n"], r.get("tile", ""), r["ms"], r.get("gib", ""), r.get("loss", "")))'
grep -hE "passed,|worst" "$out/check.log" 2> /dev/null
true
