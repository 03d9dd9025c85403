#!/bin/bash
# Builds on a GPU machine, tests, and times kernels. Prints short tables last.
#
#     bench/gpu.sh [build] [test] [run] [ops] [vit] [loss] [million] [curve]     (default: build test ops)
#
# build    configures and builds with all cores
# test     every test that needs a GPU (scripts/gpu_tests.sh)
# run      the program from images to results: training, resume, embedding, zero-shot (bench/gpu_run.sh)
# ops      bench_ops: convolutions, batch norm, text tower, attention pool, AdamW
# vit      bench_ops: layers of ViT-B-32 and ViT-B-16
# loss     the objective, 4,096 to 131,072 pairs, next to PyTorch (bench/peers/loss_torch.py)
# million  the objective of 1,048,576 pairs
# curve    RN50's training loss over 200 steps in bf16 and fp32 (bench_curve)
#
# Environment: OUT, a folder for full logs (default: build-gpu/logs); BUILD, the build folder (build-gpu); ARCHS, the compute
# capabilities; TARGETS, what is built. compute-sanitizer: scripts/gpu_sanitize.sh.
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build-gpu}
out=${OUT:-$build/logs}
export CLOOB_TUNE_CACHE=${CLOOB_TUNE_CACHE:-$PWD/$build/tune}
mkdir -p "$out" "$CLOOB_TUNE_CACHE"
bad=0

configure() {
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCLOOB_WERROR=OFF ${ARCHS:+"-DCLOOB_GPU_ARCHS=$ARCHS"} "$@" > "$build/configure.log" 2>&1 ||
        { tail -30 "$build/configure.log"; return 1; }
}
bench_loss() { timeout 60 "$build/bench_loss_cuda" "$@" || bad=1; } # N D REPEATS PRECISION TILE [plain]

for part in ${*:-build test ops}; do
    echo; echo "== $part ($(date +%T))"
    case $part in
    build)
        configure || exit 1
        if ! grep -q "CUDA  *yes" "$build/configure.log"; then # cuDNN may be installed inside a Python package
            header=$(find / -name cudnn.h -not -path '/proc/*' 2> /dev/null | head -1)
            library=$(find / -name 'libcudnn.so*' -not -path '/proc/*' 2> /dev/null | head -1)
            rm -rf "$build/CMakeCache.txt"
            configure "-DCUDNN_INCLUDE=$(dirname "$header")" "-DCUDNN_LIBRARY=$library" -DCLOOB_WITH_CUDA=ON || exit 1
            grep -q "CUDA  *yes" "$build/configure.log" || { echo "no CUDA: nvcc $(command -v nvcc), cudnn.h $header, $library"; tail -30 "$build/configure.log"; exit 1; }
        fi
        grep -E "^--   " "$build/configure.log" | tr '\n' ';'; echo
        cmake --build "$build" ${TARGETS:+--target $TARGETS} > "$out/build.log" 2>&1 || { grep -E "error|FAILED" "$out/build.log" | cut -c1-300 | head -40; exit 1; }
        tail -1 "$out/build.log"
        ;;
    test) scripts/gpu_tests.sh "$build" -j3 || bad=1 ;;
    run) BUILD=$build timeout 280 bench/gpu_run.sh 2>&1 | tee "$out/run.txt"; [ "${PIPESTATUS[0]}" = 0 ] || bad=1 ;;
    ops)
        timeout 280 "$build/bench_ops" log "$out/tuning.log" > "$out/ops.txt" 2>&1 || { bad=1; tail -5 "$out/ops.txt"; }
        head -1 "$out/ops.txt"
        sed -n '/^per step/,$p' "$out/ops.txt"
        ;;
    vit) timeout 110 "$build/bench_ops" vit log "$out/tuning-vit.log" 2>&1 | tee "$out/vit.txt" ;;
    loss)
        {
            for n in 4096 16384 32768; do bench_loss $n 1024 10 bf16 0; bench_loss $n 1024 10 bf16 0 plain; done
            bench_loss 131072 1024 2 bf16 0
            bench_loss 16384 1024 1 f32 0
            timeout 100 python3 bench/peers/loss_torch.py --device cuda --precision bf16 --dim 1024 --repeats 10 --n 4096 16384 32768
        } 2>&1 | tee "$out/loss.jsonl"
        ;;
    million) timeout 500 "$build/bench_loss_cuda" 1048576 1024 1 bf16 0 || bad=1 ;;
    curve) timeout 280 "$build/bench_curve" 2>&1 | tee "$out/curve.txt"; [ "${PIPESTATUS[0]}" = 0 ] || bad=1 ;;
    *) echo "unknown part: $part"; exit 2 ;;
    esac
done
cp "$CLOOB_TUNE_CACHE"/tune-*.txt "$out" 2> /dev/null
exit $bad
