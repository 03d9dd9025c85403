# For scripts that give the program what it cannot use; sourced after cloob= is set. Works in a folder of its own, which goes
# when the script ends.
set -u
dir=$(mktemp -d "${TMPDIR:-/tmp}/cloob-bad-XXXXXX")
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export OMP_NUM_THREADS=1
bad=0 tried=0 base=() # arguments before every one's own

# refused CODE WORD ARGUMENT...: ends with CODE, one line on stderr beside warnings that holds WORD, nothing on stdout.
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
