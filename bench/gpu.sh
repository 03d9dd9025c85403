#!/bin/bash
# Builds on a GPU machine, checks every kernel against its definition, times them, and prints short tables last.
#
#     bench/gpu.sh [build] [test] [ops] [vit] [train] [run] [curve] [sanitize] [sanitize-step]     (default: build test ops)
#
# build     configure and build with all cores
# test      test_ops, test_gpu_ops, test_conv_small and test_act_gemm, and the tests of the cache
# ops       bench_ops: convolutions, batch norm, text tower, attention pool, AdamW
# vit       bench_ops: ViT-B-32 and ViT-B-16 layers
# train     the optimizer, NCCL with one rank, and training: exactness, threads, resume, averages, memory, embeddings
# run       a whole run by the program: training, resume, embedding, zero-shot (bench/gpu_run.sh)
# curve     RN50's loss over 200 steps in 16-bit beside fp32 (bench/gpu_curve.sh)
# sanitize  compute-sanitizer memcheck and racecheck over test_ops' GPU part
# sanitize-step  the same over steps of the tiny models, with choices of kernels made before
# Choices timed in an earlier run are taken from carry/tune when it is there, and copied to OUT at the end.
# OUT names a folder for full logs (default: build-gpu/logs); BUILD the build folder, ARCHS the compute capabilities, TARGETS what is built.
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build-gpu}
out=${OUT:-$build/logs}
parts=${*:-build test ops}
export CLOOB_TUNE_CACHE=${CLOOB_TUNE_CACHE:-$PWD/$build/tune}
mkdir -p "$out" "$CLOOB_TUNE_CACHE"
cp carry/tune/tune-*.txt "$CLOOB_TUNE_CACHE" 2> /dev/null
bad=0

configure() {
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCLOOB_WERROR=OFF ${ARCHS:+"-DCLOOB_GPU_ARCHS=$ARCHS"} "$@" > "$build/configure.log" 2>&1 ||
        { tail -30 "$build/configure.log"; return 1; }
}
section() { echo; echo "== $1 ($(date +%T))"; }

for part in $parts; do
    section "$part"
    case $part in
    build)
        configure || exit 1
        if ! grep -q "CUDA  *yes" "$build/configure.log"; then # cuDNN may lie in a Python package
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
    test)
        for t in tune ops gpu_ops conv_small act_gemm; do
            timeout 170 stdbuf -oL "$build/test_$t" > "$out/test_$t.log" 2>&1 || bad=1
            echo "-- test_$t"; tail -60 "$out/test_$t.log"
        done
        ;;
    ops)
        timeout 280 stdbuf -oL "$build/bench_ops" log "$out/tuning.log" > "$out/ops.txt" 2>&1 || { bad=1; tail -5 "$out/ops.txt"; }
        head -1 "$out/ops.txt"
        sed -n '/^per step/,$p' "$out/ops.txt"
        ;;
    vit)
        timeout 110 stdbuf -oL "$build/bench_ops" vit log "$out/tuning-vit.log" > "$out/vit.txt" 2>&1 || bad=1
        cat "$out/vit.txt"
        ;;
    sanitize)
        for tool in memcheck racecheck; do
            timeout 250 compute-sanitizer --tool $tool --error-exitcode 9 "$build/test_ops" > "$out/$tool.log" 2>&1 || bad=1
            echo "-- $tool"; tail -12 "$out/$tool.log"
        done
        ;;
    train)
        for t in adamw nccl gpu_train side_by_side pack; do
            timeout 170 stdbuf -oL "$build/test_$t" > "$out/test_$t.log" 2>&1 || bad=1
            echo "-- test_$t"; tail -60 "$out/test_$t.log"
        done
        ;;
    run)
        BUILD=$build timeout 280 bench/gpu_run.sh > "$out/run.txt" 2>&1 || bad=1
        cat "$out/run.txt"
        ;;
    curve)
        BUILD=$build bench/gpu_curve.sh > "$out/curve.txt" 2> "$out/curve.err" || bad=1
        cat "$out/curve.err" "$out/curve.txt"
        ;;
    sanitize-step)
        for step in "tiny-rn fp32" "tiny-rn amp_bf16" "tiny-vit amp_bf16"; do
            set -- $step # a batch of 8 would have its objective on the host
            run=("$build/cloob" bench step --model "$1" --precision "$2" --batch-size 64 --repeats 1 --device cuda --json)
            "${run[@]}" > "$out/step-$1-$2.log" 2>&1 || { bad=1; tail -5 "$out/step-$1-$2.log"; }
            for tool in memcheck racecheck; do
                log=$out/$tool-$1-$2.log
                timeout 100 compute-sanitizer --tool $tool "${run[@]}" > "$log" 2>&1 || bad=1
                echo "-- $tool, $1, $2: $(tail -1 "$log")"
                # cuBLASLt's own kernels (nvjet) hand over tiles in ways that racecheck does not follow; anything else counts.
                grep -E "^=+ (Error|Warning|Invalid)|^=+  +at " "$log" | grep -v nvjet_ | head -5 | grep . && bad=1
                grep -qE "SUMMARY" "$log" || bad=1
            done
        done
        ;;
    *) echo "unknown part: $part"; exit 2 ;;
    esac
done
cp "$CLOOB_TUNE_CACHE"/tune-*.txt "$out" 2> /dev/null
exit $bad
