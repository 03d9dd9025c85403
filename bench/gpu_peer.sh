#!/bin/bash
# Training steps and embeddings on one GPU beside PyTorch, in one run, medians; prints a table last.
#
#     bench/gpu_peer.sh [step] [short] [modes] [large] [embed] [clip] [loss] [max]      (default: all but max)
#
# step   RN50, RN50x4, ViT-B-32, ViT-B-16, RN101 (STEPS="RN50:512 ..." chooses): texts of 77 tokens, padded;
#        ours, and torch.compile with channels last in bf16
# short  RN50 and ViT-B-32 (SHORT="RN50:512 ...") with captions of 7 to 21 tokens: ours packed, PyTorch's cut to 24, the whole step compiled
# modes  RN50 by PyTorch's other ways: the whole step as one function, and with CUDA graphs; max: max-autotune, which takes minutes
# large  ViT-L-14 within 80 GiB, what is recomputed chosen by the planner
# embed  RN50 and ViT-B-32 images in batches of 256, RN50 in batches of 1
# clip   RN50's step with CLIP's loss instead of CLOOB's
# loss   the objective alone, 32,768 pairs of 1,024 numbers
# CLOOB is the program (default: build/cloob), OUT a folder for full results.
set -u
cd "$(dirname "$0")/.."
cloob=$(realpath "${CLOOB:-build/cloob}") out=${OUT:-build/peer}
parts=${*:-step short modes large embed clip loss}
mkdir -p "$out"
out=$(cd "$out" && pwd)
: > "$out/results.jsonl"
steps=${STEPS:-RN50:512 RN50x4:128 ViT-B-32:1024 ViT-B-16:128 RN101:512}
short=${SHORT:-RN50:512 ViT-B-32:1024}
embeds=${EMBEDS:-RN50:256 ViT-B-32:256 RN50:1}
has() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac; }
keep() { tail -1 | grep '^{' | sed "s/^{/{\"who\": \"$1\", \"part\": \"$2\", /" | tee -a "$out/results.jsonl"; }
ours() { timeout 100 "$cloob" bench "$@" --device cuda --precision amp_bf16 --repeats 20 --json --quiet 2>> "$out/ours.log"; }
peer() { (cd bench/peers && PYTHONUNBUFFERED=1 timeout 280 python3 peer_step.py "$@" 2>> "$out/peer.log"); }
peer_step() { peer step --arch "${1%:*}" --batch "${1#*:}" "${@:2}"; }

# Compiling takes PyTorch a minute each on the CPU: side by side, kept in its cache, before anything is timed. Models with the most
# memory are left out: all together would not fit.
if [ -z "${WARM:-}" ]; then
    if has step; then for pair in $steps; do [ "$pair" = RN101:512 ] || peer_step "$pair" --mode compile --repeats 1 > /dev/null & done; fi
    if has short; then for pair in $short; do peer_step "$pair" --mode whole --ctx 24 --repeats 1 > /dev/null & done; fi
    if has modes; then for mode in whole graphs; do peer_step RN50:512 --mode $mode --repeats 1 > /dev/null & done; fi
    if has embed; then for pair in $embeds; do peer embed --arch "${pair%:*}" --batch "${pair#*:}" --mode compile --repeats 1 > /dev/null & done; fi
    wait
    echo "compiled after $SECONDS s"
fi
[ "${1:-}" = warm ] && exit 0

for pair in $steps; do
    has step || break
    ours step --model "${pair%:*}" --batch "${pair#*:}" --text-length 77 | keep ours "step"
    peer_step "$pair" --mode compile --repeats 10 | keep torch.compile "step"
done
for pair in $short; do
    has short || break
    ours step --model "${pair%:*}" --batch "${pair#*:}" --text-length 14 --pack-texts | keep ours "step, short texts"
    peer_step "$pair" --mode whole --ctx 24 --repeats 10 | keep "torch, whole" "step, texts cut to 24"
done
if has modes; then
    for mode in whole graphs; do peer_step RN50:512 --mode $mode --repeats 10 | keep "torch, $mode" "step"; done
fi
if has max; then peer_step RN50:512 --mode max --repeats 10 | keep "torch, max" "step"; fi
if has large; then
    ours step --model ViT-L-14 --batch 512 --text-length 14 --pack-texts --fit-memory 80G | keep ours "step, 80 GiB"
fi
if has clip; then
    ours step --model RN50 --batch 512 --method clip | keep ours "step, CLIP's loss"
    ours step --model RN50 --batch 512 | keep ours "step, CLOOB's loss"
fi
for pair in $embeds; do
    has embed || break
    ours embed --model "${pair%:*}" --batch "${pair#*:}" | keep ours "embed"
    peer embed --arch "${pair%:*}" --batch "${pair#*:}" --mode compile --repeats 20 | keep torch.compile "embed"
done
if has loss; then
    timeout 60 "$cloob" bench loss --n 32768 --dim 1024 --precision bf16 --device cuda --json --quiet 2>> "$out/ours.log" | keep ours "objective"
    peer loss --n 32768 --dim 1024 --dtype bf16 | keep torch "objective"
fi
python3 - "$out/results.jsonl" << 'END'
import json, sys
print("%-14s %-22s %-10s %6s %10s %12s %8s" % ("who", "what", "model", "batch", "ms", "a second", "GiB"))
for line in open(sys.argv[1]):
    r = json.loads(line)
    rate = r.get("pairs_per_s") or r.get("items_per_s") or r.get("per_s") or 0
    memory = (r.get("planned_bytes") or r.get("peak_bytes") or 0) / 2**30 if r["who"] == "ours" else r.get("peak_GiB", 0)
    print("%-14s %-22s %-10s %6d %10.3f %12.1f %8.2f" % (r["who"], r["part"], r.get("model") or r.get("arch") or "",
          r.get("batch") or r.get("n") or 0, r["ms"], rate, memory))
END
