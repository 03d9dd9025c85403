#!/bin/sh
# What examples/theory.c prints obeys the theory. usage: theory.sh THEORY [CLOOB]
check() { # THEORY WHAT CONDITION (awk, on the lines after the heading) [MORE ARGUMENTS]
    "$1" "$2" ${4:+"$4"} | awk -F, "NR > 1 { $3 } END { exit bad || NR < 5 }" || { echo "FAIL: $2"; exit 1; }
}
check "$1" mi 'if ($2 > $1 + 0.05 || $2 > $4 || $3 < $1 - 0.05) bad = 1'                            # lower bound, ln N, upper bound
check "$1" saturation 'if (NR > 2 && ($2 > last || $3 < 1.99 || $3 > 2.01)) bad = 1; last = $2'       # one vanishes, one stays
check "$1" saturation 'if (NR > 2 && ($5 < last - 1e-9)) bad = 1; last = $5; if ($1 == 1 && ($4 > 1e-6 || $5 < 1.9)) bad = 1' # by the temperature: one vanishes, one grows
check "$1" variance 'if ($4 <= 0 || $9 <= 0 || ($1 < 0.25 && $5 <= 2 * $4)) bad = 1'                 # close pairs: the rejected loss has scores of more variance
check "$1" hopfield 'if ($1 == beta && $3 > energy + 1e-5) bad = 1; beta = $1; energy = $3'           # energy never rises
check "$1" covariance 'if (NR == 2) own = $3; if ($1 == 4 && $3 < own + 0.1) bad = 1; if ($1 == 60 && ($3 - own) ^ 2 > 1e-4) bad = 1'
[ -n "${2:-}" ] || exit 0
# Captions correlate less than the scenes; retrieval brings it back; at a large scale every caption retrieves itself.
scenes=$(mktemp -d) && trap 'rm -rf "$scenes"' EXIT
"$2" synth --out "$scenes" --count 1500 --val-count 16 --per-class 4 --size 16 --seed 7 --quiet >"$scenes.txt" || { cat "$scenes.txt"; exit 1; }
rm -f "$scenes.txt"
check "$1" world 'for (k = 2; k < 4; k++) { if ($1 == 0) { own[k] = $k; if ($k > 0.6 * $(k + 2)) bad = 1 }
    if ($1 == 8 && $k < 1.5 * own[k]) bad = 1; if ($1 == 60 && ($k - own[k]) ^ 2 > 1e-6) bad = 1 }' "$scenes"
