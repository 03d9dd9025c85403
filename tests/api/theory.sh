#!/bin/sh
# What examples/theory.c prints obeys the theory. usage: theory.sh THEORY
check() { # WHAT CONDITION (awk, on the lines after the heading)
    "$1" "$2" | awk -F, "NR > 1 { $3 } END { exit bad || NR < 5 }" || { echo "FAIL: $2"; exit 1; }
}
check "$1" mi 'if ($2 > $1 + 0.05 || $2 > $4 || $3 < $1 - 0.05) bad = 1'                            # lower bound, ln N, upper bound
check "$1" saturation 'if (NR > 2 && ($2 > last || $3 < 1.99 || $3 > 2.01)) bad = 1; last = $2'       # one vanishes, one stays
check "$1" hopfield 'if ($1 == beta && $3 > energy + 1e-5) bad = 1; beta = $1; energy = $3'           # energy never rises
check "$1" covariance 'if (NR == 2) own = $3; if ($1 == 4 && $3 < own + 0.1) bad = 1; if ($1 == 60 && ($3 - own) ^ 2 > 1e-4) bad = 1'
