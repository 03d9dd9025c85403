/* elementwise.c's loops for one element type. */
CPU_CLONES static void NAME(relu_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const REAL *a = j->a;
    REAL *y = j->y;
    (void)thread;
    for (int64_t i = begin; i < end; i++) y[i] = PUT(GET(a[i]) > 0 ? GET(a[i]) : 0.0f);
}

CPU_CLONES static void NAME(add_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const REAL *a = j->a, *b = j->b;
    REAL *y = j->y;
    (void)thread;
    for (int64_t i = begin; i < end; i++) y[i] = PUT(GET(a[i]) + GET(b[i]));
}

CPU_CLONES static void NAME(act_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const REAL *a = j->a;
    REAL *y = j->y;
    (void)thread;
    if (j->act == OP_ACT_GELU_TANH)
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float x = GET(a[i]);
            y[i] = PUT(x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x)));
        }
    else if (j->act == OP_ACT_GELU)
#pragma omp simd
        for (int64_t i = begin; i < end; i++)
            y[i] = PUT(0.5f * GET(a[i]) * (1.0f + vmath_erf(GET(a[i]) * 0.70710678f)));
    else
#pragma omp simd
        for (int64_t i = begin; i < end; i++) y[i] = PUT(GET(a[i]) * sigmoid(1.702f * GET(a[i])));
}

CPU_CLONES static void NAME(act_bwd_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const REAL *a = j->a, *b = j->b;
    REAL *y = j->y;
    (void)thread;
    if (j->act == OP_ACT_GELU_TANH)
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float x = GET(b[i]), s = sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
            y[i] = PUT(GET(a[i]) * (s + x * s * (1.0f - s) * 1.59576912f * (1.0f + 0.134145f * x * x)));
        }
    else if (j->act == OP_ACT_GELU)
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float x = GET(b[i]);
            y[i] = PUT(GET(a[i]) *
                       (0.5f * (1.0f + vmath_erf(x * 0.70710678f)) + x * vmath_exp(-0.5f * x * x) * 0.39894228f));
        }
    else
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float x = GET(b[i]), s = sigmoid(1.702f * x);
            y[i] = PUT(GET(a[i]) * (s + 1.702f * x * s * (1.0f - s)));
        }
}

/* ---- pool ---------------------------------------------------------------------------------------- */

CPU_CLONES static void NAME(pool_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t b = j->big.b, W = j->big.W, Ho = j->big.H / 2, Wo = W / 2;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t r = 0; r < Ho * Wo; r++) {
            const REAL *top = (const REAL *)j->from + (i * j->big.HW + r / Wo * 2 * W + r % Wo * 2) * b,
                       *below = top + W * b;
            REAL *y = (REAL *)j->to + (i * Ho * Wo + r) * b;
            for (int64_t c = 0; c < b; c++)
                y[c] = PUT(0.25f * (GET(top[c]) + GET(top[b + c]) + GET(below[c]) + GET(below[b + c])));
        }
}

CPU_CLONES static void NAME(unpool_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t b = j->big.b, W = j->big.W, Ho = j->big.H / 2, Wo = W / 2;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t p = 0; p < j->big.HW; p++) {
            int64_t h = p / W / 2, w = p % W / 2;
            const REAL *dy = (const REAL *)j->from + (i * Ho * Wo + h * Wo + w) * b;
            REAL *dx = (REAL *)j->to + (i * j->big.HW + p) * b;
            bool pooled = h < Ho && w < Wo;
            for (int64_t c = 0; c < b; c++) dx[c] = PUT(pooled ? 0.25f * GET(dy[c]) : 0.0f);
        }
}
