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
        for (int64_t c = 0; c < C; c++) y[c] = PUT(GET(x[c]) + bias[c] + pos[i % T * C + c]);
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
            for (int64_t c = begin; c < end; c++) j->out[c] += GET(a[r * j->C + c]) * GET(b[r * j->C + c]);
        else
            for (int64_t c = begin; c < end; c++) j->out[c] += GET(a[r * j->C + c]);
}

CPU_CLONES static void NAME(mean_rows_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    enum { LANES = 64 };
    const op_args *a = arg;
    int64_t T = a->in[0].dim[1], C = a->in[0].dim[2], first = a->attr.rows;
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        for (int64_t c0 = 0; c0 < C; c0 += LANES) {
            float sum[LANES] = { 0 };
            int64_t width = C - c0 < LANES ? C - c0 : LANES;
            const REAL *x = (const REAL *)a->in[0].data + n * T * C + c0;
            REAL *y = (REAL *)a->out[0].data + n * C + c0;
            for (int64_t t = first; t < T; t++)
                for (int64_t c = 0; c < width; c++) sum[c] += GET(x[t * C + c]);
            for (int64_t c = 0; c < width; c++) y[c] = PUT(sum[c] / (float)(T - first));
        }
}

CPU_CLONES static void NAME(mean_rows_bwd_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    int64_t T = a->out[0].dim[1], C = a->out[0].dim[2], first = a->attr.rows;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const REAL *dy = (const REAL *)a->in[0].data + i / T * C;
        REAL *dx = (REAL *)a->out[0].data + i * C;
        float share = i % T < first ? 0.0f : 1.0f / (float)(T - first);
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
