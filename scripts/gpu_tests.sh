#!/usr/bin/env bash
# Every test with cases that need a GPU, on a machine that has one: gpu_tests.sh [BUILD [CTEST OPTIONS...]].
#
# BUILD is a built tree (default: build). Prints what failed or was skipped, and last the sum over all cases:
# "N passed, N failed, N skipped". The full log is BUILD/gpu_tests.log; the exit code is 1 when anything failed.
# With CLOOB_GPU_GENERATION=80 (or 86, 89) a newer GPU takes the older one's paths; the log's name then ends in the number.
set -u
cd "$(dirname "$0")/.."
build=${1:-build}
shift $(($# > 0))
log=$build/gpu_tests${CLOOB_GPU_GENERATION:+-$CLOOB_GPU_GENERATION}.log
(cd "$build" && ctest -L '^gpu$' -V "$@") >"$log" 2>&1
status=$?
grep -E '^[0-9]+: +(FAIL|skip|skipped:)|^[0-9]+: +\.\./.*:[0-9]+:|\*\*\*(Failed|Timeout|Exception|Not Run)' "$log" | sort | uniq -c
cases() { grep -cE "^[0-9]+: +($1) " "$log"; }
failed=$(cases FAIL)
lost=$(grep -cE '\*\*\*(Timeout|Exception|Not Run)' "$log") # programs that did not reach their summary
[ $status -eq 0 ] || [ $((failed + lost)) -gt 0 ] || lost=1
python=$(sed -nE 's/^[0-9]+: (OK|FAILED).*skipped=([0-9]+).*/\2/p' "$log" | tail -1)
echo "$(cases ok) passed, $((failed + lost)) failed, $(($(cases skip) + ${python:-0})) skipped"
[ $((failed + lost)) -eq 0 ]
