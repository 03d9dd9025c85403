#!/bin/sh
# Builds the fuzzers with clang and the sanitizers and runs each for a while: scripts/fuzz.sh [SECONDS] [NAME...]
# Findings stay in build-fuzz/findings. The corpus in tests/fuzz/corpus is only read.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-600}
[ $# -gt 0 ] && shift
cmake -S . -B build-fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCLOOB_FUZZ=ON \
    -DCLOOB_SANITIZE=ON -DCLOOB_WERROR=OFF -DCLOOB_WITH_CUDA=OFF -DCLOOB_WITH_MPI=OFF >/dev/null
names=${*:-$(ls tests/fuzz/corpus)}
mkdir -p build-fuzz/findings
for name in $names; do
    cmake --build build-fuzz --target "fuzz_$name" >/dev/null
    mkdir -p "build-fuzz/grown/$name"
    echo "fuzzing $name for $seconds s" >&2
    "build-fuzz/fuzz_$name" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -artifact_prefix="build-fuzz/findings/$name-" \
        -print_final_stats=1 "build-fuzz/grown/$name" "tests/fuzz/corpus/$name" 2>&1 | tail -4
done
