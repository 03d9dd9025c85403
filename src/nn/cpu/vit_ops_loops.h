/* vit_ops.c's loops for one element type. Positions, biases, gains and sums are F32 whatever it is. */
CPU_CLONES static void NAME(grid_tokens_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const float *bias = a->in[1].data, *pos = a->in[2].data;
    int64_t T = a->out[0].dim[1], C = a->out[0].dim[2];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const REAL *x = (const REAL *)a->in[0].data + i * C;
        REAL *y = (REAL *)a->out[0].data + i * C;
        if (bias)
            for (int64_t c = 0; c < C; c++) y[c] = PUT(GET(x[c]) + bias[c] + pos[i % T * C + c]);
        else
            for (int64_t c = 0; c < C; c++) y[c] = PUT(GET(x[c]) + pos[i % T * C + c]);
    }
}

CPU_CLONES static void NAME(column_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const column_job *j = arg;
    const REAL *a = j->a, *b = j->b;
    (void)thread;
    for (int64_t c = begin; c < end; c++) j->out[c] = 0;
    for (int64_t r = 0; r < j->R; r++)
        if (b)
            for (int64_t c = begin; c < end; c++) j->out[c] += GET(a[r * j->step + c]) * GET(b[r * j->step + c]);
        else
            for (int64_t c = begin; c < end; c++) j->out[c] += GET(a[r * j->step + c]);
}

CPU_CLONES static void NAME(mean_rows_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    enum { LANES = 64 };
    const op_args *a = arg;
    op_sequences s = op_sequences_of(&a->attr, &a->in[0], &a->in[1]);
    int64_t C = tensor_cols(&a->in[0]), first = a->attr.rows;
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        for (int64_t c0 = 0; c0 < C; c0 += LANES) {
            float sum[LANES] = { 0 };
            int64_t width = C - c0 < LANES ? C - c0 : LANES, T = op_row_count(&s, n);
            const REAL *x = (const REAL *)a->in[0].data + op_first_row(&s, n) * C + c0;
            REAL *y = (REAL *)a->out[0].data + n * C + c0;
            for (int64_t t = first; t < T; t++)
                for (int64_t c = 0; c < width; c++) sum[c] += GET(x[t * C + c]);
            for (int64_t c = 0; c < width; c++) y[c] = PUT(sum[c] / (float)(T - first));
        }
}

CPU_CLONES static void NAME(mean_rows_bwd_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    op_sequences s = op_sequences_of(&a->attr, &a->out[0], &a->in[2]);
    int64_t C = tensor_cols(&a->out[0]), first = a->attr.rows;
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        for (int64_t t = 0, T = op_row_count(&s, n); t < T; t++) {
            const REAL *dy = (const REAL *)a->in[0].data + n * C;
            REAL *dx = (REAL *)a->out[0].data + (op_first_row(&s, n) + t) * C;
            float share = t < first ? 0.0f : 1.0f / (float)(T - first);
            for (int64_t c = 0; c < C; c++) dx[c] = PUT(GET(dy[c]) * share);
        }
}

CPU_CLONES static void NAME(repeat_row_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const float *x = a->in[0].data;
    int64_t C = a->out[0].dim[1];
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < C; c++) ((REAL *)a->out[0].data)[i * C + c] = PUT(x[c]);
}

CPU_CLONES static void NAME(scale_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const float *gain = a->in[1].data;
    int64_t C = tensor_cols(&a->out[0]);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const REAL *x = (const REAL *)a->in[0].data + i * C;
        REAL *y = (REAL *)a->out[0].data + i * C;
        for (int64_t c = 0; c < C; c++) y[c] = PUT(GET(x[c]) * gain[c]);
    }
}

CPU_CLONES static void NAME(bias_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const float *bias = a->in[1].data;
    int64_t C = tensor_cols(&a->out[0]), n = a->in[1].dim[0], keys = n == C ? C : C / 3,
            values = n == C ? C : C / 3 * 2;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const REAL *x = (const REAL *)a->in[0].data + i * C;
        REAL *y = (REAL *)a->out[0].data + i * C;
        for (int64_t c = 0; c < keys; c++) y[c] = PUT(GET(x[c]) + bias[c]);
        for (int64_t c = keys; c < values; c++) y[c] = x[c];
        for (int64_t c = values; c < C; c++) y[c] = PUT(GET(x[c]) + bias[c - keys]);
    }
}

CPU_CLONES static void NAME(gate_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    int64_t C = tensor_cols(&a->out[0]);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const REAL *g = (const REAL *)a->in[0].data + i * 2 * C, *x = g + C;
        REAL *y = (REAL *)a->out[0].data + i * C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) y[c] = PUT(GET(g[c]) * GET(x[c]) / (1.0f + vmath_exp(-GET(g[c]))));
    }
}

CPU_CLONES static void NAME(gate_bwd_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    int64_t C = tensor_cols(&a->in[0]);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const REAL *dy = (const REAL *)a->in[0].data + i * C, *g = (const REAL *)a->in[1].data + i * 2 * C, *x = g + C;
        REAL *dg = (REAL *)a->out[0].data + i * 2 * C, *dx = dg + C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float v = GET(g[c]), s = 1.0f / (1.0f + vmath_exp(-v)), d = GET(dy[c]);
            dg[c] = PUT(d * GET(x[c]) * (s + v * s * (1.0f - s)));
            dx[c] = PUT(d * v * s);
        }
    }
}

/* A range of images; channels are taken LANES at a time, with the gates of all positions computed once. */
CPU_CLONES static void NAME(excite_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    enum { LANES = 64 };
    const op_args *a = arg;
    int64_t C = a->in[0].dim[3], P = a->in[0].dim[1] * a->in[0].dim[2];
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        for (int64_t c0 = 0; c0 < C; c0 += LANES) {
            int64_t width = C - c0 < LANES ? C - c0 : LANES;
            const REAL *x = (const REAL *)a->in[0].data + n * P * C + c0, *g = (const REAL *)a->in[1].data + n * C + c0;
            REAL *y = (REAL *)a->out[0].data + n * P * C + c0;
            float s[LANES];
            for (int64_t c = 0; c < width; c++) s[c] = 1.0f / (1.0f + vmath_exp(-GET(g[c])));
            for (int64_t p = 0; p < P; p++)
                for (int64_t c = 0; c < width; c++) y[p * C + c] = PUT(GET(x[p * C + c]) * s[c]);
        }
}

CPU_CLONES static void NAME(excite_bwd_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    enum { LANES = 64 };
    const op_args *a = arg;
    int64_t C = a->in[1].dim[3], P = a->in[1].dim[1] * a->in[1].dim[2];
    REAL *dx = a->out[0].data, *dg = a->out[1].data;
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        for (int64_t c0 = 0; c0 < C; c0 += LANES) {
            int64_t width = C - c0 < LANES ? C - c0 : LANES, at = n * P * C + c0;
            const REAL *dy = (const REAL *)a->in[0].data + at, *x = (const REAL *)a->in[1].data + at,
                       *g = (const REAL *)a->in[2].data + n * C + c0;
            float s[LANES], sum[LANES] = { 0 };
            for (int64_t c = 0; c < width; c++) s[c] = 1.0f / (1.0f + vmath_exp(-GET(g[c])));
            for (int64_t p = 0; p < P * C; p += C)
                for (int64_t c = 0; c < width; c++) {
                    sum[c] += GET(dy[p + c]) * GET(x[p + c]);
                    if (dx) dx[at + p + c] = PUT(GET(dy[p + c]) * s[c]);
                }
            for (int64_t c = 0; dg && c < width; c++) dg[n * C + c0 + c] = PUT(sum[c] * s[c] * (1.0f - s[c]));
        }
}

/* scratch: cosines and sines (T, e/2, 2). */
CPU_CLONES static void NAME(rope_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    int64_t T = a->in[0].dim[1], C = a->in[0].dim[2] / 3, e = C / a->attr.heads;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const REAL *x = (const REAL *)a->in[0].data + i * 3 * C;
        REAL *y = (REAL *)a->out[0].data + i * 3 * C;
        const float *turn = (const float *)a->scratch + i % T * e;
        for (int64_t h = 0; h < 2 * C; h += e)
            for (int64_t p = 0; p < e; p += 2) {
                float u = GET(x[h + p]), v = GET(x[h + p + 1]);
                y[h + p] = PUT(u * turn[p] - v * turn[p + 1]);
                y[h + p + 1] = PUT(v * turn[p] + u * turn[p + 1]);
            }
        memcpy(y + 2 * C, x + 2 * C, (size_t)C * sizeof *y);
    }
}
