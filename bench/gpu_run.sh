#!/bin/bash
# The program from images to results on one device: trains with validation, resumes and compares the bytes, compares
# embeddings with the CPU's, classifies. Prints one line per check; the exit code is 1 if a check failed.
#
#     bench/gpu_run.sh [DEVICE]      default cuda; BUILD names the build folder (default build-gpu)
set -u
cd "$(dirname "$0")/.."
cloob=$PWD/${BUILD:-build-gpu}/cloob device=${1:-cuda} here=$PWD/bench
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-run-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export CLOOB_TUNE_CACHE=$dir
bad=0
must() { # WHAT COMMAND...
    local what=$1; shift
    if "$@" > out 2> err; then echo "ok   $what"; else echo "FAIL $what: $(tail -3 err | cut -c1-400)"; bad=1; fi
}
same_weights() { # compares the bytes of all tensors; the headers differ by the name of the run
    python3 - "$1" "$2" << 'END'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
a, b = read(sys.argv[1]), read(sys.argv[2])
sys.exit(0 if a == b and len(a) > 100 else "the weights differ")
END
}
near() { # TOLERANCE A B: safetensors of F32
    python3 - "$@" << 'END'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: struct.unpack(f"<{(v['data_offsets'][1] - v['data_offsets'][0]) // 4}f", data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in head.items() if k != "__metadata__" and v["dtype"] == "F32"}
a, b = read(sys.argv[2]), read(sys.argv[3])
worst = max(abs(x - y) for k in b for x, y in zip(a[k], b[k]))
print(f"differ by {worst:.1e}", file=sys.stderr)
sys.exit(0 if a.keys() == b.keys() and b and worst < float(sys.argv[1]) else f"differ by {worst:.3e}")
END
}
accurate() { python3 -c 'import json, sys; t = json.load(open("zeroshot.json")); print(t["top1"], file=sys.stderr); sys.exit(t["top1"] < 0.6)'; }

must "images" python3 "$here/colour_pairs.py" "$dir/data" 640
base=(train --train-data data/train.tsv --val-data data/val.tsv --zeroshot-data data/classes --model tiny --force-image-size 32
    --vocab-size 600 --batch-size 56 --epochs 6 --warmup 8 --lr 2e-3 --workers 2 --device "$device" --logs logs --ema 0.9
    --hopfield-warmup 30 --lr-scheduler const --quiet) # const: the rate does not depend on how long a run is
must "training with validation and zero-shot" "$cloob" "${base[@]}" --name whole
must "training, stopped half-way" "$cloob" "${base[@]}" --name half --max-steps 31
must "resuming it" "$cloob" "${base[@]}" --name half --resume latest
must "resumed weights equal uninterrupted ones" same_weights logs/whole/checkpoints/latest.safetensors logs/half/checkpoints/latest.safetensors
must "training in bf16" "$cloob" "${base[@]}" --name half16 --precision amp_bf16 --max-steps 20
model=logs/whole/checkpoints/latest.safetensors
must "embedding" "$cloob" embed --checkpoint $model --data data/val.tsv --out gpu.safetensors --device "$device"
must "embedding in batches" "$cloob" embed --checkpoint $model --data data/val.tsv --out batch.safetensors --device "$device" --no-invariant --batch-size 17
must "embedding in bf16" "$cloob" embed --checkpoint $model --data data/val.tsv --out bf16.safetensors --device "$device" --precision bf16
must "embedding on the CPU" "$cloob" embed --checkpoint $model --data data/val.tsv --out cpu.safetensors --device cpu
must "embeddings equal the CPU's" near 1e-4 gpu.safetensors cpu.safetensors
must "embeddings in batches equal the CPU's" near 1e-4 batch.safetensors cpu.safetensors
must "embeddings in bf16 are close to the CPU's" near 3e-2 bf16.safetensors cpu.safetensors
must "retrieval" "$cloob" eval retrieval --input gpu.safetensors --device "$device" --json
must "classify" "$cloob" classify --checkpoint $model --labels red,green,blue --device "$device" data/classes/red/0.png
must "probe" "$cloob" eval probe --checkpoint $model --data data/classes --device "$device"
must "zero-shot" bash -c "'$cloob' eval zeroshot --checkpoint $model --data data/classes --device $device --json > zeroshot.json"
must "zero-shot accuracy is at least 60 %" accurate
grep -h "planned peak" logs/whole/out.log | tail -1
grep -h "pairs/s" logs/whole/out.log | tail -1
exit $bad
