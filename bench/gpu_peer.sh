#!/bin/bash
# Training steps and embeddings on one GPU next to PyTorch, in one run, medians. Prints a table last.
#
#     bench/gpu_peer.sh [step] [short] [modes] [large] [embed] [clip] [loss] [onnx] [jpeg] [max] [compile]      (default: all but the last four)
#
# step   RN50, ViT-B-32, ViT-B-16, RN50x4, ViT-L-14 (or STEPS="MODEL:BATCH:GIB ..."), texts padded to 77 tokens; PyTorch:
#        torch.compile, channels last, bf16
# short  RN50 with captions of 7 to 21 tokens (or SHORT="MODEL:BATCH:GIB:MODE ..."): cloob packs them; PyTorch cuts them to 24,
#        with the whole step compiled, and with CUDA graphs
# modes  other modes of PyTorch (MODES="MODEL:BATCH:GIB:MODE ..."): the whole step as one function, and with CUDA graphs
# max    the whole step with max-autotune, for texts of 77 tokens and cut to 24; takes minutes longer
# large  ViT-L-14 within 80 GiB; the planner chooses what is recomputed
# embed  RN50 and ViT-B-32: batches of 256 images, one image, one text (EMBEDS="MODEL:BATCH:GIB:MODE[:text] ...")
# clip   RN50's step with CLIP's loss, and with CLOOB's
# loss   the objective alone, 32,768 pairs of width 1,024
# onnx   ONNX Runtime's CUDA provider on the same towers (ONNX="MODEL:BATCH:OPTION ..."); needs onnxruntime-gpu
# jpeg   training RN50 from shards, SHARDS="FOLDER/{000..119}.tar": decoding on all cores, on 4 cores, and on the GPU with 4 cores
# compile  compiles the models of the other parts and ends, so that the next run finds them in PyTorch's cache
#
# GIB is the memory that PyTorch needs. Models are compiled in parallel, the slowest first, within MEMORY GiB (118), each in a process
# that then frees its memory and waits; each is timed alone. A model that is not compiled after COMPILE seconds (280) is left out.
# CLOOB is the program (default: build/cloob), OUT a folder for full results.
set -u
cd "$(dirname "$0")/.."
cloob=$(realpath "${CLOOB:-build/cloob}") out=${OUT:-build/peer}
parts=${*:-step short modes large embed clip loss}
mkdir -p "$out"
out=$(cd "$out" && pwd) gates=$(mktemp -d)
: > "$out/results.jsonl"
steps=${STEPS:-RN50:512:36 ViT-B-32:1024:38 ViT-B-16:128:14 RN50x4:128:23 ViT-L-14:128:45}
short=${SHORT:-RN50:512:30:whole RN50:512:30:graphs}
modes=${MODES:-RN50:512:36:whole RN50:512:36:graphs ViT-B-16:128:14:graphs}
embeds=${EMBEDS:-RN50:256:8:compile ViT-B-32:256:6:compile RN50:1:3:graphs ViT-B-32:1:3:graphs ViT-B-32:1:3:graphs:text}
onnx=${ONNX:-RN50:256:--nhwc ViT-B-32:256:--opset=17 RN50:1:--graph ViT-B-32:1:--graph}
short_models=$(for s in $short; do echo "${s%:*:*}"; done | sort -u) # MODEL:BATCH
memory=${MEMORY:-118} compile=${COMPILE:-280}
has() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac; }
record() { tail -1 | grep '^{' | sed "s/^{/{\"program\": \"$1\", \"part\": \"$2\", /" | tee -a "$out/results.jsonl"; }
cloob_bench() { timeout 60 "$cloob" bench "$@" --device cuda --repeats 20 --json --quiet 2>> "$out/cloob.log"; }
cloob_step() { cloob_bench step --model "$1" --batch "$2" --precision "$3" "${@:4}"; }

# ---- PyTorch, compiled in parallel ------------------------------------------------------------------------------------------------

names=() # of peers, in the order of starting
declare -A pid gib

done_with() { [ -e "$gates/$1.ready" ] || ! kill -0 "${pid[$1]}" 2> /dev/null; }
in_use() { # GiB of models that compile, and of weights, gradients and moments of those that wait
    local sum=0 n
    for n in "${names[@]}"; do
        if ! done_with "$n"; then sum=$((sum + ${gib[$n]})); else case $n in *graphs*) sum=$((sum + ${gib[$n]})) ;; *) sum=$((sum + 3)) ;; esac; fi
    done
    echo $sum
}

# start NAME GIB ARGUMENTS...: starts peer_step.py once its memory is free
start() {
    local name=$1 need=$2
    while [ "$(in_use)" -gt 0 ] && [ $(($(in_use) + need)) -gt "$memory" ]; do [ $SECONDS -lt "$compile" ] || return; sleep 1; done
    (cd bench/peers && PYTHONUNBUFFERED=1 exec timeout 580 python3 peer_step.py "${@:3}" --gate "$gates/$name" > "$gates/$name.json" 2>> "$out/peer.log") &
    pid[$name]=$! gib[$name]=$need
    names+=("$name")
}

# release NAME PROGRAM PART: times a compiled model
release() {
    [ -n "${pid[$1]:-}" ] && [ -e "$gates/$1.ready" ] || { echo "$1: not compiled"; return; }
    touch "$gates/$1.go"
    wait "${pid[$1]}"
    record "$2" "$3" < "$gates/$1.json"
}

trap 'for n in "${names[@]}"; do kill "${pid[$n]}" 2> /dev/null; done; rm -rf "$gates"' EXIT
fields() { IFS=: read -r model batch need mode text <<< "$1"; }
has max && modes="$modes RN50:512:36:max" short="$short RN50:512:30:max"
if has modes || has max; then for s in $modes; do fields "$s"; start "$model-$mode" "$need" step --arch "$model" --batch "$batch" --mode "$mode"; done; fi
if has short || has max; then for s in $short; do fields "$s"; start "$model-short-$mode" "$need" step --arch "$model" --batch "$batch" --mode "$mode" --ctx 24; done; fi
if has step; then for s in $steps; do fields "$s"; start "$model-step" "$need" step --arch "$model" --batch "$batch" --mode compile; done; fi
if has embed; then for s in $embeds; do fields "$s"; start "$model-embed-$batch$text" "$need" embed --arch "$model" --batch "$batch" --mode "${mode:-compile}" --repeats 20 ${text:+--text}; done; fi
for n in "${names[@]}"; do while ! done_with "$n" && [ $SECONDS -lt "$compile" ]; do sleep 0.5; done; done
for n in "${names[@]}"; do # a model that still compiles would disturb the others
    [ -e "$gates/$n.ready" ] || { echo "$n: left out after $SECONDS s"; kill "${pid[$n]}" 2> /dev/null; }
done
echo "compiled after $SECONDS s"
has compile && exit

# ---- one at a time -----------------------------------------------------------------------------------------------------------------

if has step; then for s in $steps; do
    fields "$s"
    cloob_step "$model" "$batch" amp_bf16 --text-length 77 | record cloob "step"
    release "$model-step" torch.compile "step"
done; fi
if has short || has max; then
    for s in $short_models; do fields "$s"; cloob_step "$model" "$batch" amp_bf16 --text-length 14 --pack-texts | record cloob "step, short texts"; done
    for s in $short; do fields "$s"; release "$model-short-$mode" "torch, $mode" "step, texts cut to 24"; done
fi
if has modes || has max; then for s in $modes; do fields "$s"; release "$model-$mode" "torch, $mode" "step"; done; fi
if has embed; then for s in $embeds; do
    fields "$s"
    cloob_bench embed --model "$model" --batch "$batch" --precision amp_bf16 ${text:+--text} | record cloob "embed${text:+, text}"
    release "$model-embed-$batch$text" "torch, ${mode:-compile}" "embed${text:+, text}"
done; fi
if has onnx; then for s in $onnx; do
    fields "$s"
    (cd bench/peers && timeout 60 python3 onnx_embed.py --arch "$model" --batch "$batch" $need 2>> "$out/peer.log") | record "ONNX Runtime" "embed, fp16"
done; fi
if has clip; then
    cloob_step RN50 512 amp_bf16 --method clip | record cloob "step, CLIP's loss"
    cloob_step RN50 512 amp_bf16 | record cloob "step, CLOOB's loss"
fi
if has loss; then
    timeout 60 "$cloob" bench loss --n 32768 --dim 1024 --precision bf16 --device cuda --json --quiet 2>> "$out/cloob.log" | record cloob "objective"
    (cd bench/peers && timeout 60 python3 peer_step.py loss --n 32768 --dim 1024 --dtype bf16 2>> "$out/peer.log") | record torch "objective"
fi
# jpeg_run CORES WORKERS DECODER: median of the logged rates of a training run, without the first
jpeg_run() {
    timeout 60 taskset -c "$1" "$cloob" train --train-data "$SHARDS" --model RN50 --batch-size 512 --max-steps 60 --epochs 9 --warmup 10 --device cuda --precision amp_bf16 --vocab-size 1000 \
        --log-every-n-steps 10 --save-frequency 0 --workers "$2" --image-decoder "$3" --logs "$gates/logs" --name "jpeg-$3-$2-$RANDOM" > "$out/jpeg-$3-$2.log" 2>&1
    grep -aoE "[0-9.]+ pairs/s, data wait [0-9.]+ %" "$out/jpeg-$3-$2.log" | tail -n +2 | sort -n | awk '{ r[NR] = $1; w[NR] = $5 } END { if (NR) { m = int((NR + 1) / 2);
        printf "{\"model\": \"RN50\", \"batch\": 512, \"ms\": %.3f, \"pairs_per_s\": %.1f, \"data_wait\": %.1f}\n", 512e3 / r[m], r[m], w[m] } }'
}
if has jpeg; then
    last=$(($(nproc) - 1))
    jpeg_run "0-$last" "$last" cpu | record cloob "JPEG, $(nproc) cores"
    jpeg_run 0-3 4 cpu | record cloob "JPEG, 4 cores"
    jpeg_run 0-3 4 gpu | record cloob "JPEG, 4 cores, GPU"
fi
if has large; then
    cloob_step ViT-L-14 512 amp_bf16 --text-length 14 --pack-texts --fit-memory 80G | record cloob "step, 80 GiB"
fi
echo "finished after $SECONDS s"
python3 - "$out/results.jsonl" << 'END'
import json, sys
print("%-14s %-22s %-10s %6s %10s %12s %8s" % ("program", "part", "model", "batch", "ms", "a second", "GiB"))
for line in open(sys.argv[1]):
    r = json.loads(line)
    rate = r.get("pairs_per_s") or r.get("items_per_s") or r.get("per_s") or 0
    memory = (r.get("planned_bytes") or r.get("peak_bytes") or 0) / 2**30 if r["program"] == "cloob" else r.get("peak_GiB", 0)
    print("%-14s %-22s %-10s %6d %10.3f %12.1f %8.2f" % (r["program"], r["part"], r.get("model") or r.get("arch") or "",
          r.get("batch") or r.get("n") or 0, r["ms"], rate, memory))
END
