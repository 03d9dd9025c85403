#!/bin/bash
# The loss of RN50 over 200 steps in 16-bit and 8-bit beside fp32, on the same batches, and beside the difference that another seed makes.
#
#     bench/gpu_curve.sh [OPTION...]      options of bench_curve, e.g. --batch 64 --model ViT-B-32
#
# Uses the program in BUILD (default build-gpu, made by bench/gpu.sh build), and builds it when it is not there. Kernel choices
# are kept in BUILD/tune, as bench/gpu.sh keeps them.
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build-gpu}
[ -x "$build/bench_curve" ] || bench/gpu.sh build || exit 1
export CLOOB_TUNE_CACHE=${CLOOB_TUNE_CACHE:-$PWD/$build/tune}
mkdir -p "$CLOOB_TUNE_CACHE"
exec timeout 280 "$build/bench_curve" "$@"
