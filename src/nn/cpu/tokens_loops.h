/* tokens.c's loops for one element type. Tables, positions and their gradients are F32 whatever it is. */

/* Lines of images. */
CPU_CLONES static void NAME(input_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t H = y->dim[1], W = y->dim[2], C = y->dim[3];
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < C; c++) {
            REAL *out = (REAL *)y->data + i * W * C + c;
            const uint8_t *bytes = (const uint8_t *)x->data + i * W * 3 + c;
            const float *floats = (const float *)x->data + ((i / H * 3 + c) * H + i % H) * W;
            float scale = c < 3 ? 1.0f / (255.0f * a->attr.std[c]) : 0,
                  shift = c < 3 ? -a->attr.mean[c] / a->attr.std[c] : 0;
            if (c >= 3)
                for (int64_t p = 0; p < W; p++) out[p * C] = 0;
            else if (x->dtype == CLOOB_U8)
                for (int64_t p = 0; p < W; p++) out[p * C] = PUT((float)bytes[p * 3] * scale + shift);
            else
                for (int64_t p = 0; p < W; p++) out[p * C] = PUT(floats[p]);
        }
}

CPU_CLONES static void NAME(embed_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const int32_t *token = a->in[0].data, *row = a->in[3].data;
    const float *table = a->in[1].data, *pos = a->in[2].data;
    int64_t T = a->in[0].dim[1], C = tensor_cols(&a->out[0]);
    REAL *y = a->out[0].data;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t i = row ? row[r] : r;
        for (int64_t c = 0; c < C; c++) y[r * C + c] = PUT(table[token[i] * C + c] + pos[i % T * C + c]);
    }
}

/* Threads share the columns: every sum is taken in the order of the rows. */
CPU_CLONES static void NAME(embed_bwd_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const int32_t *token = a->in[1].data, *row = a->in[4].data;
    const REAL *dy = a->in[0].data;
    float *dtable = a->out[0].data, *dpos = a->out[1].data;
    int64_t R = tensor_rows(&a->in[0]), T = a->in[1].dim[1], C = tensor_cols(&a->in[0]), V = a->in[2].dim[0],
            width = end - begin;
    (void)thread;
    for (int64_t v = 0; dtable && v < V; v++) memset(dtable + v * C + begin, 0, (size_t)width * sizeof *dtable);
    for (int64_t t = 0; dpos && t < T; t++) memset(dpos + t * C + begin, 0, (size_t)width * sizeof *dpos);
    for (int64_t r = 0; r < R; r++) {
        const REAL *g = dy + r * C;
        int64_t i = row ? row[r] : r;
        for (int64_t c = begin; dtable && c < end; c++) dtable[token[i] * C + c] += GET(g[c]);
        for (int64_t c = begin; dpos && c < end; c++) dpos[i % T * C + c] += GET(g[c]);
    }
}

static void NAME(add_row)(void *to, const void *from, int64_t n)
{
    REAL *y = to;
    const REAL *x = from;
    for (int64_t c = 0; c < n; c++) y[c] = PUT(GET(y[c]) + GET(x[c]));
}

/* ---- grid to tokens ------------------------------------------------------------------------------ */

/* LANES channels of an image. */
CPU_CLONES static void NAME(mean_tokens_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    planes z = planes_of(&a->in[0]);
    int64_t pieces = (z.C + LANES - 1) / LANES, T = z.HW + 1;
    (void)thread;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t n = piece / pieces, c0 = piece % pieces * LANES, width = z.C - c0 < LANES ? z.C - c0 : LANES;
        const REAL *x = (const REAL *)a->in[0].data + n * z.HW * z.C + c0;
        const float *pos = (const float *)a->in[1].data + c0;
        REAL *y = (REAL *)a->out[0].data + n * T * z.C + c0;
        float sum[LANES] = { 0 };
        for (int64_t p = 0; p < z.HW; p++)
            for (int64_t c = 0; c < width; c++) {
                float v = GET(x[p * z.C + c]);
                sum[c] += v;
                y[(p + 1) * z.C + c] = PUT(v + pos[(p + 1) * z.C + c]);
            }
        for (int64_t c = 0; c < width; c++) y[c] = PUT(sum[c] / (float)z.HW + pos[c]);
    }
}

CPU_CLONES static void NAME(mean_tokens_dx_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    planes z = planes_of(&a->out[0]);
    (void)thread;
    for (int64_t n = begin; n < end; n++) {
        const REAL *dy = (const REAL *)a->in[0].data + n * (z.HW + 1) * z.C;
        REAL *dx = (REAL *)a->out[0].data + n * z.HW * z.C;
        float share = 1.0f / (float)z.HW;
        for (int64_t p = 0; p < z.HW; p++)
            for (int64_t c = 0; c < z.C; c++) dx[p * z.C + c] = PUT(GET(dy[(p + 1) * z.C + c]) + GET(dy[c]) * share);
    }
}

/* sum[i] = sum over the batch of dy[n, i], i within the first tokens. */
CPU_CLONES static void NAME(batch_sum_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const sum_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) j->sum[i] = 0;
    for (int64_t n = 0; n < j->N; n++) {
        const REAL *dy = (const REAL *)j->dy + n * j->stride;
        for (int64_t i = begin; i < end; i++) j->sum[i] += GET(dy[i]);
    }
}

/* Tokens n T + t of a class token followed by the grid. */
CPU_CLONES static void NAME(class_tokens_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const float *cls = a->in[1].data, *pos = a->in[2].data;
    int64_t T = a->out[0].dim[1], C = a->out[0].dim[2];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / T, t = i % T;
        const REAL *x = (const REAL *)a->in[0].data + (n * (T - 1) + t - 1) * C;
        REAL *y = (REAL *)a->out[0].data + i * C;
        if (t == 0)
            for (int64_t c = 0; c < C; c++) y[c] = PUT(cls[c] + pos[c]);
        else
            for (int64_t c = 0; c < C; c++) y[c] = PUT(GET(x[c]) + pos[t * C + c]);
    }
}
