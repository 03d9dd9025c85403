#!/bin/bash
# Any number of threads: cut to what makes sense, never a crash or a hang; thread starts that fail mean fewer threads. Usage: threads.sh CLOOB
set -u
. "$(dirname "$(realpath "$0")")/fixture.sh"
unset OMP_NUM_THREADS
for n in 1 3 100 100000 2147483648 100000000000000; do
    timeout 300 "$cloob" classify --threads $n --quiet --checkpoint model.safetensors --labels red,blue "$image" > out$n 2> err || fail "--threads $n: $(tail -1 err)"
done
for n in 9223372036854775808 99999999999999999999 -1 1.5 x; do
    timeout 300 "$cloob" classify --threads $n --quiet --checkpoint model.safetensors --labels red,blue "$image" > out 2> err
    [ $? = 2 ] || fail "--threads $n: not refused"
done
( ulimit -v 900000; timeout 300 "$cloob" classify --threads 64 --quiet --checkpoint model.safetensors --labels red,blue "$image" > out 2> err ) || fail "few threads: $(tail -1 err)"
exit $bad
