#!/bin/bash
# Training steps and embeddings on one GPU beside PyTorch, in one run, medians; prints a table last.
#
#     bench/gpu_peer.sh [step] [embed] [clip] [modes]      (default: step embed clip)
#
# step   RN50, RN101, RN50x4, ViT-B-32, ViT-B-16: ours, and torch.compile with channels last in bf16
# embed  RN50 images in batches of 256 and 1
# clip   RN50's step with CLIP's loss instead of CLOOB's
# modes  RN50 by PyTorch without compiling: eager, and channels last
# The peer is bench/peers/peer_step.py. CLOOB is the program, OUT a folder for full results.
set -u
cd "$(dirname "$0")/.."
cloob=${CLOOB:-build/cloob} out=${OUT:-build/peer}
parts=${*:-step embed clip}
mkdir -p "$out"
out=$(cd "$out" && pwd)
: > "$out/results.jsonl"
steps="RN50:512 RN50x4:128 ViT-B-32:1024 ViT-B-16:128 RN101:512"
has() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac; }
keep() { tail -1 | grep '^{' | sed "s/^{/{\"who\": \"$1\", \"part\": \"$2\", /" | tee -a "$out/results.jsonl"; }
ours() { timeout 100 "$cloob" bench "$@" --device cuda --precision amp_bf16 --repeats 20 --json --quiet 2>> "$out/ours.log"; }
peer() { (cd bench/peers && PYTHONUNBUFFERED=1 timeout 240 python3 peer_step.py "$@" 2>> "$out/peer.log"); }

# Compiling takes PyTorch a minute each on the CPU: side by side, kept in its cache, before anything is timed. RN101 is left out:
# all five together would not fit.
if has step; then
    for pair in ${steps% *}; do peer step --arch "${pair%:*}" --batch "${pair#*:}" --mode compile --repeats 1 > /dev/null & done
fi
if has embed; then for batch in 256 1; do peer embed --arch RN50 --batch $batch --mode compile --repeats 1 > /dev/null & done; fi
wait
echo "compiled after $SECONDS s"

for pair in $steps; do
    has step || break
    model=${pair%:*} batch=${pair#*:}
    ours step --model "$model" --batch "$batch" | keep ours "step"
    peer step --arch "$model" --batch "$batch" --mode compile --repeats 10 | keep torch.compile "step"
done
if has clip; then
    ours step --model RN50 --batch 512 --method clip | keep ours "step, CLIP's loss"
    ours step --model RN50 --batch 512 | keep ours "step, CLOOB's loss"
fi
if has modes; then
    for mode in eager cl; do peer step --arch RN50 --batch 512 --mode $mode --repeats 5 | keep "torch, $mode" "step"; done
fi
for batch in 256 1; do
    has embed || break
    ours embed --model RN50 --batch $batch | keep ours "embed"
    peer embed --arch RN50 --batch $batch --mode compile --repeats 20 | keep torch.compile "embed"
done
python3 - "$out/results.jsonl" << 'END'
import json, sys
print("%-14s %-20s %-10s %6s %10s %12s %8s" % ("who", "what", "model", "batch", "ms", "a second", "GiB"))
for line in open(sys.argv[1]):
    r = json.loads(line)
    ours = r["who"] == "ours"
    rate = r.get("pairs_per_s") or r.get("items_per_s") or r.get("per_s")
    memory = r["planned_bytes" if r.get("planned_bytes") else "peak_bytes"] / 2**30 if ours else r["peak_GiB"]
    print("%-14s %-20s %-10s %6d %10.3f %12.1f %8.2f" % (r["who"], r["part"], r.get("model") or r.get("arch"), r.get("batch") or r.get("n"), r["ms"], rate, memory))
END
