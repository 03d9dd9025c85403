# For scripts that give the program invalid input: sourced with $1 = CLOOB.
. "$(dirname "$0")/../scratch.sh"
export OMP_NUM_THREADS=1
tried=0 base=() # base: arguments in front of each test's own

# refused CODE WORD ARGUMENT...: ends with CODE, one line with WORD on stderr besides warnings, and nothing on stdout.
refused()
{
    local code=$1 word=$2 got
    shift 2
    tried=$((tried + 1))
    timeout 300 "$cloob" "${base[@]}" "$@" --threads 1 --quiet > out 2> err
    got=$?
    grep -v '^warning:' err > line
    if [ $got != "$code" ] || [ "$(wc -l < line)" != 1 ] || ! grep -qF -- "$word" line || [ -s out ]; then
        echo "FAIL: $* ended with $got instead of $code: $(cat err)"
        bad=1
    fi
}
