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

/* Of a window's four places. */
CPU_INLINE void NAME(pool_place)(const REAL *top, const REAL *below, int64_t b, int64_t width, REAL *y)
{
    for (int64_t c = 0; c < width; c++)
        y[c] = PUT(0.25f * (GET(top[c]) + GET(top[b + c]) + GET(below[c]) + GET(below[b + c])));
}

/* Rows of the result. */
CPU_CLONES static void NAME(pool_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t b = j->big.C, W = j->big.W, Ho = j->big.H / 2, Wo = W / 2;
    (void)thread;
    for (int64_t p = begin * Wo; p < end * Wo; p++) {
        int64_t i = p / Wo / Ho, h = p / Wo % Ho, w = p % Wo;
        const REAL *top = (const REAL *)j->from + (i * j->big.HW + 2 * h * W + 2 * w) * b, *below = top + W * b;
        if (!j->rounded) NAME(pool_place)(top, below, b, b, (REAL *)j->to + p * b);
        for (int64_t c = 0; j->rounded && c < b; c += GEMM_U8_GROUP) {
            REAL group[GEMM_U8_GROUP];
            NAME(pool_place)(top + c, below + c, b, GEMM_U8_GROUP, group);
            if (j->to) memcpy((REAL *)j->to + p * b + c, group, sizeof group);
            gemm_u8_round_groups((const void *)group, 1, j->rounded, (p * b + c) / GEMM_U8_GROUP);
        }
    }
}

/* Rows of the gradient. */
CPU_CLONES static void NAME(unpool_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t b = j->big.C, W = j->big.W, H = j->big.H, Ho = H / 2, Wo = W / 2;
    (void)thread;
    for (int64_t p = begin * W; p < end * W; p++) {
        int64_t i = p / W / H, h = p / W % H / 2, w = p % W / 2;
        const REAL *dy = (const REAL *)j->from + ((i * Ho + h) * Wo + w) * b;
        REAL *dx = (REAL *)j->to + p * b;
        bool pooled = h < Ho && w < Wo;
        for (int64_t c = 0; c < b; c++) dx[c] = PUT(pooled ? 0.25f * GET(dy[c]) : 0.0f);
    }
}
