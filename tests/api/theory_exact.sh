#!/bin/sh
# What examples/theory_exact.c prints obeys the paper's identities and bounds. usage: theory_exact.sh THEORY_EXACT
check() { # WHAT CONDITION (awk, on the lines after the heading; `bad` is set where it fails) AT_THE_END
    "$program" "$1" | awk -F, "function far(a, b, by) { return a - b > by || b - a > by }
        NR > 1 { $2 } END { ${3:-} exit bad || NR < 5 }" || { echo "FAIL: $1"; "$program" "$1"; exit 1; }
}
program=$1
# U_x^T U_y is that of the mean Jacobian to 1e-12; its norm is below 2 m beta, which is below beta / 2; rows are exactly dominant.
check jacobian 'if ($4 > 1e-12 || far($2, $3, 1e-12) || $5 > $6 + 1e-9 || $6 > $7 + 1e-9 || $8 > 1e-12 || $5 < 0.1 * $6) bad = 1'
# MI = InfoLOOB - DE + KL; 0 <= DE <= its bound; the best critic (power 1) has KL 0 and is above the information; others are below it.
check discrete 'if ($8 > 1e-12 || far($3, $4 - $5 + $7, 1e-8) || $5 < -1e-12 || $5 > $6 + 1e-12 || $7 < -1e-12) bad = 1
    if ($1 == 1 && ($4 < $3 || $7 > 1e-12)) bad = 1
    if ($1 == 0.5 && $2 >= 3 && $4 < $3) below++; if ($1 == 0.25 && $4 >= $3) bad = 1' 'if (below < 2) bad = 1;'
# The bias of the normalising constant is positive, falls with the negatives and tends to its first-order term.
check normaliser 'if ($2 <= 0 || (NR > 2 && $2 >= last)) bad = 1; last = $2; ratio = $2 / $3; n = $1' 'if (n != 128 || far(ratio, 1, 0.01)) bad = 1;'
# The constants of the paper: c is 3.1546 for d = 20, K = 3 and at least 1.3718 for d = 75, K = 1.
check capacity 'if ($3 == 20 && (far($6, 3.1546, 5e-5) || $5 < 1.27)) bad = 1; if ($3 == 75 && ($6 < 1.3718 || $6 > 1.372 || $5 > -0.94)) bad = 1
    if (NR > 3 && $7 < patterns) bad = 1; patterns = $7'
