/* layernorm.c's loops for one element type. */

/* Row r in 8 bits, and, where y is there, in its own type. */
CPU_INLINE void NAME(rounded_row)(const job *j, int64_t r, float mu, float s)
{
    for (int64_t c0 = 0; c0 < j->C; c0 += GEMM_U8_GROUP) {
        const REAL *x = (const REAL *)j->x + r * j->C + c0;
        REAL group[GEMM_U8_GROUP];
        for (int64_t c = 0; c < GEMM_U8_GROUP; c++)
            group[c] = PUT((GET(x[c]) - mu) * s * j->gain[c0 + c] + j->bias[c0 + c]);
        if (j->y) memcpy((REAL *)j->y + r * j->C + c0, group, sizeof group);
        gemm_u8_round_groups((const void *)group, 1, j->rounded, (r * j->C + c0) / GEMM_U8_GROUP);
    }
}

CPU_CLONES static void NAME(forward_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t C = j->C;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const REAL *x = (const REAL *)j->x + r * C;
        float sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < C; c++) sum += GET(x[c]);
        float mu = sum / (float)C;
#pragma omp simd reduction(+ : square)
        for (int64_t c = 0; c < C; c++) square += (GET(x[c]) - mu) * (GET(x[c]) - mu);
        float s = 1.0f / sqrtf(square / (float)C + j->eps);
        if (j->rounded) NAME(rounded_row)(j, r, mu, s);
        else {
            REAL *y = (REAL *)j->y + r * C;
            for (int64_t c = 0; c < C; c++) y[c] = PUT((GET(x[c]) - mu) * s * j->gain[c] + j->bias[c]);
        }
        if (j->mean) j->mean[r] = mu;
        if (j->rstd) j->rstd[r] = s;
    }
}

CPU_INLINE void NAME(row_backward)(const job *j, int64_t r)
{
    int64_t C = j->C;
    const REAL *dy = (const REAL *)j->dy + r * C, *x = (const REAL *)j->x + r * C,
               *extra = j->extra ? (const REAL *)j->extra + r * C : NULL;
    REAL *dx = (REAL *)j->dx + r * C;
    float mu = j->mean[r], s = j->rstd[r], m1 = 0, m2 = 0;
#pragma omp simd reduction(+ : m1, m2)
    for (int64_t c = 0; c < C; c++) {
        float g = GET(dy[c]) * j->gain[c];
        m1 += g;
        m2 += g * (GET(x[c]) - mu) * s;
    }
    m1 /= (float)C;
    m2 /= (float)C;
    for (int64_t c = 0; c < C; c++) {
        float v = s * (GET(dy[c]) * j->gain[c] - m1 - (GET(x[c]) - mu) * s * m2);
        dx[c] = PUT(extra ? v + GET(extra[c]) : v);
    }
}

CPU_CLONES static void NAME(backward_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t C = j->C;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        float *gain = j->part + k * 2 * C, *bias = gain + C;
        int64_t last = (k + 1) * CHUNK < j->R ? (k + 1) * CHUNK : j->R;
        for (int64_t c = 0; c < 2 * C; c++) gain[c] = 0;
        for (int64_t r = k * CHUNK; r < last; r++) {
            const REAL *dy = (const REAL *)j->dy + r * C, *x = (const REAL *)j->x + r * C;
            float mu = j->mean[r], s = j->rstd[r];
            for (int64_t c = 0; c < C; c++) {
                gain[c] += GET(dy[c]) * (GET(x[c]) - mu) * s;
                bias[c] += GET(dy[c]);
            }
            if (j->dx) NAME(row_backward)(j, r);
        }
    }
}
