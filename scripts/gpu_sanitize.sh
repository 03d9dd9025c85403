#!/usr/bin/env bash
# compute-sanitizer over the GPU tests, on a machine that has both: gpu_sanitize.sh BUILD [SECONDS].
#
# BUILD is a tree built with -DCLOOB_LIST_LAUNCHES=ON. Runs memcheck, synccheck and racecheck over small parts of the tests, of tiny
# models and of benchmarks of kernels, several at a time; only cloob's kernels are checked. Everything runs once without a tool
# first, so that choices of kernels are cached. What is left after SECONDS (1200) is killed. Prints how the jobs of each tool ended,
# the first lines of reports and of failed checks, and the kernels that no job that ended has launched. Logs: BUILD/gpu_sanitize.
# The exit code is 1 when a tool reported something, a check failed or a tool broke off; jobs that were cut off do not count.
# By environment: TOOLS, some of the three; ONLY=REGEX, of names of jobs; J, jobs at a time; JOB_SECONDS, for one job (150);
# COMPUTE_SANITIZER, the program. Version 2025.3 (CUDA 13.0) fails with an internal error in racecheck, 2026.3 does not.
set -u
cd "$(dirname "$0")/.." || exit
build=$(realpath "${1:?usage: gpu_sanitize.sh BUILD [SECONDS]}") deadline=$((SECONDS + ${2:-1200}))
tools=${TOOLS:-memcheck synccheck racecheck} at_once=${J:-$(($(nproc) < 14 ? $(nproc) : 14))} job_seconds=${JOB_SECONDS:-150}
san=${COMPUTE_SANITIZER:-compute-sanitizer} out=$build/gpu_sanitize count=0
command -v "$san" >/dev/null || { echo "no $san: COMPUTE_SANITIZER names it" >&2; exit 2; }
workers=$("$san" --help 2>/dev/null | grep -om1 -e --racecheck-num-workers) # not every version has it
names=$(tests/kernel_coverage.py "$build" --names)
[ -n "$names" ] || { echo "$build/libcloob.a has no GPU kernels" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/cloob-sanitize-XXXXXX")
# shellcheck disable=SC2046 # a list of processes
trap 'kill $(jobs -rp) 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# ---- the jobs: NAME, a tab, [VARIABLE=VALUE...] PROGRAM ARGUMENTS... quoted for the shell ----
job() { local name=$1; shift; printf '%s\t%s\n' "${name//[ >,]/}" "$(printf '%q ' "$@")"; }
parts() { local name=$1 n=$2 i; shift 2; for ((i = 0; i < n; i++)); do job "$name.$i" "${@//\{\}/$i/$n}"; done; } # {} becomes I/N
words() { local program=$1 w; shift; for w; do job "${program#*_}.$w" "$program" "$w"; done; }
cases() { local program=$1 c; shift; for c; do job "${program#*_}.$c" "CHECK_ONLY=$c" "$program"; done; }
bench() { local name=$1 what=$2; shift 2; job "$what.$name" cloob bench "$what" "$@" --repeats 1 --device cuda --json; }
models() {
    local m p pack
    for p in amp_bf16 fp32; do
        for m in tiny-rn tiny-vit; do
            for pack in '' --pack-texts; do bench "$m.$p${pack:+.packed}" step --model $m --precision $p --batch-size 64 $pack; done
        done
    done
    bench tiny-rn.recompute step --model tiny-rn --precision amp_bf16 --batch-size 64 --accum-freq 2 --grad-checkpointing
    for m in clip siglip; do bench $m step --model tiny-vit --precision amp_bf16 --batch-size 64 --method $m; done
    for p in fp32 bf16 fp8; do bench $p embed --model tiny-vit --precision $p --batch-size 8; done
    bench text embed --model tiny-rn --precision bf16 --batch-size 8 --text
    bench invariant embed --model tiny-rn --precision bf16 --batch-size 8 --invariant
}
all_jobs() { # FACTOR: of the number of parts
    local p
    parts gpu_ops $((28 * $1)) CHECK_SMALL=1 test_gpu_ops '{}'
    parts loss_cuda 10 'CHECK_PART={}' test_loss_cuda
    job act_gemm test_act_gemm
    words test_conv_small '32->32' '32->64' '64->64' '40->40' '40->80' '80->80' ' 8->' bytes
    parts ops $((5 * $1)) test_ops cuda '{}'
    models
    cases test_packed_texts packed_is_padded_on_a_gpu trainings_are_alike_on_a_gpu
    for p in block_gradients.on_a_gpu tuning.a_gpu_trains patch_dropout.a_gpu_gives model_ref.both_on_cuda; do cases test_${p%.*} ${p#*.}; done
    job concurrent_runs CHECK_ONLY=on_a_gpu OMP_NUM_THREADS=1 test_concurrent_runs
    for p in adamw init gpu_view nccl; do job $p test_$p; done
    parts gpu_train 9 'CHECK_PART={}' test_gpu_train
    job attention.89 CLOOB_GPU_GENERATION=89 CHECK_SMALL=1 test_gpu_ops 'attention 225' # an older generation's kernels
}

# ---- running them ----
tool_command() { # TOOL PORT: into the array `run`
    local n
    run=("$san" --tool "$1" --port "$2" --max-connections 16 --launch-timeout 60 --target-processes application-only
        --error-exitcode 99 --check-exit-code no --print-limit 20)
    [ "$1" = memcheck ] && run+=(--report-api-errors no) # NCCL tries calls that fail
    [ "$1" = racecheck ] && run+=(--force-synchronization-limit 16 ${workers:+"$workers" 2}) # less memory, fewer threads
    for n in $names; do run+=(--kernel-name "kns=$n"); done
}
one() { # TOOL NAME COMMAND SECONDS PORT: a job, its log, and a line on how it ended
    local log=$out/logs/$1.$2 from=$SECONDS code state reports set=() run=() words=()
    eval "words=($3)"
    while [[ ${words[0]} == *=* ]]; do set+=("${words[0]}") words=("${words[@]:1}"); done
    [ "$1" = none ] || tool_command "$1" "$5"
    env CHECK_LAUNCHES="$out/launches/$1.$2" "${set[@]}" timeout -k 4 "$4" "${run[@]}" "$build/${words[0]}" "${words[@]:1}" >"$log" 2>&1 </dev/null &
    trap 'kill $!; wait $!' TERM
    wait $! && code=0 || code=$?
    reports=$(sed -nE 's/.*(ERROR|RACECHECK) SUMMARY: ([0-9]+) (error|hazard).*/\2/p' "$log" | tail -1)
    if [ $code = 124 ] || [ $code = 137 ]; then state='cut-off'
    elif [ "${reports:-0}" != 0 ]; then state=reported
    elif [ "$1" != none ] && { [ -z "$reports" ] || grep -qiE 'internal( sanitizer)? error|sanitizer.*out of memory' "$log"; }; then state=broken
    else case $code in 0) state=ended ;; 77) state=skipped ;; *) state=failed ;; esac; fi
    [ -n "$reports" ] || reports=$(grep -cE '^=+ (Invalid|Error:|Warning:|Race reported|Barrier error|Program hit)' "$log")
    echo "$1 $2 $state $((SECONDS - from)) $reports" >"$out/state/$1.$2"
}
queue() { # TOOL JOBS-AT-ONCE END <JOBS: none begins in the last 15 s before END, none is alive then
    local name command rest
    while IFS=$'\t' read -r name command <&3; do
        [[ $name =~ ${ONLY:-} ]] || continue
        while (($(jobs -rp | wc -l) >= $2)); do wait -n; done
        rest=$(($3 - SECONDS - 6)) count=$((count + 1))
        if ((rest < 9)); then echo "$1 $name unstarted 0 0" >"$out/state/$1.$name"; continue; fi
        one "$1" "$name" "$command" $((rest < job_seconds ? rest : job_seconds)) $((49152 + count * 16 % 16000)) 2>/dev/null &
    done 3<&0
    wait
}
rm -rf "$out"
mkdir -p "$out"/{logs,state,launches} "$work/tune"
export CLOOB_TUNE_CACHE=$work/tune CLOOB_CACHE=$work TMPDIR=$work GOMP_SPINCOUNT=2000 OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2
all_jobs 1 >"$work/jobs"
queue none "$at_once" $((SECONDS + (deadline - SECONDS) / 4)) <"$work/jobs"
for t in $tools; do
    [ "$t" = racecheck ] && all_jobs 2 >"$work/jobs" # it is slower and takes more memory
    queue "$t" "$at_once" "$deadline" <"$work/jobs"
    cat "$out/state/$t".* | awk 'FNR == NR { if ($3 == "broken") again[$2]; next } $1 in again' - "$work/jobs" >"$work/again"
    queue "$t" 4 "$deadline" <"$work/again" # the tool may have run out of memory
done

# ---- what came out ----
cat "$out"/state/* >"$out/jobs.txt"
of() { awk -v t="$1" -v s=" $2 " '$1 == t && index(s, " " $3 " ")' "$out/jobs.txt"; } # TOOL STATES
for t in none $tools; do
    echo "== $t: $(awk -v t="$t" '$1 == t { n[$3]++ } END { for (s in n) printf "%s%d %s", c++ ? ", " : "", n[s], s }' "$out/jobs.txt")"
    of "$t" "reported failed broken cut-off" | sort -k3,3 | while read -r _ name state seconds reports; do
        echo "$state: $name, $seconds s, $reports reports"
        grep -E '^=+ +[A-Za-z]|^ +.*:[0-9]+:|^FAIL|^cloob|rror' "$out/logs/$t.$name" |
            grep -vE 'SANITIZER|Host|SUMMARY' | cut -c1-200 | head -4
    done
    of "$t" "ended failed" | while read -r _ name _; do cat "$out/launches/$t.$name"; done 2>/dev/null |
        tests/kernel_coverage.py "$build" /dev/stdin | grep -v '^  '
done
[ -n "$(ls "$out/launches")" ] || echo "no program has listed its launches: was $build configured with -DCLOOB_LIST_LAUNCHES=ON?"
! grep -qE ' (reported|failed|broken) ' "$out/jobs.txt"
