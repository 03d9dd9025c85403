/* Cross entropy of rows of logits, for one element type: the includer defines REAL, EXP(x) and NAME. Included
 * twice on purpose, so there is no guard.
 *
 * z: (n, C) logits, becomes p - onehot(y), the gradient. y: (n). uncertain: (n), 1 - sum p^2, or NULL.
 * Returns the sum of -ln p_y. The largest logit is kept out of the sum (S = 1 + rest), so that -ln p = ln(1 +
 * rest) and 1 - p = rest / S of a confident row keep their digits instead of being lost to rounding against 1. */
double NAME(REAL *z, float *uncertain, const int32_t *y, int64_t n, int64_t C)
{
    double loss = 0;
    for (int64_t i = 0; i < n; i++, z += C) {
        REAL high = z[0], rest[8] = { 0 }, square[8] = { 0 };
        int64_t top = 0, j = 0, own = y[i];
        for (j = 1; j < C; j++) high = z[j] > high ? z[j] : high;
        while (z[top] != high) top++;
        double behind = (double)high - (double)z[own];
        for (j = 0; j < C; j++) z[j] = EXP(z[j] - high);
        z[top] = 0;
        for (j = 0; j + 8 <= C; j += 8)
            for (int k = 0; k < 8; k++) rest[k] += z[j + k], square[k] += z[j + k] * z[j + k];
        for (; j < C; j++) rest[0] += z[j], square[0] += z[j] * z[j];
        double r = 0, q = 0;
        for (int k = 0; k < 8; k++) r += rest[k], q += square[k];
        loss += log1p(r) + behind;
        if (uncertain) uncertain[i] = (float)((r * (2 + r) - q) / ((1 + r) * (1 + r)));
        REAL inverse = (REAL)(1 / (1 + r));
        for (j = 0; j < C; j++) z[j] *= inverse;
        z[top] = inverse;
        z[own] = own == top ? (REAL)(-r / (1 + r)) : z[own] - 1;
    }
    return loss;
}
