/* batchnorm.c's loops for one element type. A plane is walked in stretches of ROWS rows and LANES channels: sums over a
 * stretch stay in registers and in float, sums of stretches are double. */

/* ---- statistics ---------------------------------------------------------------------------------- */

CPU_INLINE void NAME(sum_stretch)(const REAL *x, int64_t rows, int64_t b, int64_t width, const float *shift,
                                  double *sum, double *square)
{
    float fs[LANES] = { 0 }, fq[LANES] = { 0 };
    for (int64_t p = 0; p < rows; p++)
        for (int64_t c = 0; c < width; c++) {
            float v = GET(x[p * b + c]) - shift[c];
            fs[c] += v;
            fq[c] += v * v;
        }
    for (int64_t c = 0; c < width; c++) sum[c] += (double)fs[c], square[c] += (double)fq[c];
}

CPU_CLONES static void NAME(stats_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const stats_job *j = arg;
    const planes *z = &j->z;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t C = z->C;
        const REAL *x = (const REAL *)j->x + i * z->HW * C;
        double *sum = j->sums + i * 2 * C, *square = sum + C;
        for (int64_t c = 0; c < C; c++) sum[c] = square[c] = 0;
        for (int64_t p = 0; p < z->HW; p += ROWS, x += ROWS * C) {
            int64_t rows = z->HW - p < ROWS ? z->HW - p : ROWS;
            for (int64_t c = 0; c < C; c += LANES) {
                if (C - c >= LANES) NAME(sum_stretch)(x + c, rows, C, LANES, j->shift + c, sum + c, square + c);
                else NAME(sum_stretch)(x + c, rows, C, C - c, j->shift + c, sum + c, square + c);
            }
        }
    }
}

/* ---- apply --------------------------------------------------------------------------------------- */

CPU_INLINE void NAME(apply_plane)(const apply_job *j, const REAL *x, const REAL *res, REAL *y, int64_t b)
{
    const float *mean = j->mean, *scale = j->scale, *bias = j->bias;
    for (int64_t p = 0; p < j->z.HW; p++, x += b, y += b) {
        const REAL *r = res ? res + p * b : NULL;
        if (r && j->relu)
            for (int64_t c = 0; c < b; c++)
                y[c] = PUT(clamp((GET(x[c]) - mean[c]) * scale[c] + bias[c] + GET(r[c]), true));
        else if (r)
            for (int64_t c = 0; c < b; c++) y[c] = PUT((GET(x[c]) - mean[c]) * scale[c] + bias[c] + GET(r[c]));
        else if (j->relu)
            for (int64_t c = 0; c < b; c++) y[c] = PUT(clamp((GET(x[c]) - mean[c]) * scale[c] + bias[c], true));
        else
            for (int64_t c = 0; c < b; c++) y[c] = PUT((GET(x[c]) - mean[c]) * scale[c] + bias[c]);
    }
}

CPU_INLINE void NAME(apply_pool_plane)(const apply_job *j, const REAL *x, REAL *y, int64_t b)
{
    const float *mean = j->mean, *scale = j->scale, *bias = j->bias;
    int64_t W = j->z.W, Wo = W / 2;
    for (int64_t h = 0; h < j->z.H / 2; h++)
        for (int64_t w = 0; w < Wo; w++) {
            const REAL *top = x + (2 * h * W + 2 * w) * b, *below = top + W * b;
            REAL *to = y + (h * Wo + w) * b;
            for (int64_t c = 0; c < b; c++) {
                float m = mean[c], s = scale[c], t = bias[c];
                float upper = clamp((GET(top[c]) - m) * s + t, j->relu) + clamp((GET(top[b + c]) - m) * s + t, j->relu);
                float lower =
                    clamp((GET(below[c]) - m) * s + t, j->relu) + clamp((GET(below[b + c]) - m) * s + t, j->relu);
                to[c] = PUT(0.25f * (upper + lower));
            }
        }
}

CPU_CLONES static void NAME(apply_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const apply_job *j = arg;
    const planes *z = &j->z;
    int64_t out_rows = j->pool ? (z->H / 2) * (z->W / 2) : z->HW;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const REAL *x = (const REAL *)j->x + i * z->HW * z->C,
                   *res = j->res ? (const REAL *)j->res + i * z->HW * z->C : NULL;
        REAL *y = (REAL *)j->y + i * out_rows * z->C;
        if (j->pool) NAME(apply_pool_plane)(j, x, y, z->C);
        else NAME(apply_plane)(j, x, res, y, z->C);
    }
}

/* ---- backward ------------------------------------------------------------------------------------ */

/* One stretch's pointers, at its first channel: rows of x, y and g follow those of the plane, rows of dy those of the
 * pooled plane. */
typedef struct NAME(stretch) {
    const REAL *dy, *dy2, *x, *y;
    REAL *g, *dx;
} NAME(stretch);

CPU_INLINE NAME(stretch) NAME(stretch_of)(const back_job *j, int64_t i, int64_t b, int64_t c)
{
    int64_t rows_dy = j->pool ? (j->z.H / 2) * (j->z.W / 2) : j->z.HW, at = i * j->z.HW * b + c,
            at_dy = i * rows_dy * b + c;
    return (NAME(stretch)){ (const REAL *)j->dy + at_dy,     j->dy2 ? (const REAL *)j->dy2 + at_dy : NULL,
                            (const REAL *)j->x + at,         j->y ? (const REAL *)j->y + at : NULL,
                            j->g ? (REAL *)j->g + at : NULL, j->dx ? (REAL *)j->dx + at : NULL };
}

/* v = the gradient before relu and pool, for one row of channels: dy through pool, masked. k: channels' constants. */
CPU_INLINE void NAME(before_row)(const back_job *j, const NAME(stretch) * s, int64_t p, int64_t b, int64_t width,
                                 const channels *k, float *v)
{
    int64_t r = source_row(j, p);
    const REAL *dy = s->dy + (r < 0 ? 0 : r) * b, *dy2 = s->dy2 ? s->dy2 + (r < 0 ? 0 : r) * b : NULL,
               *x = s->x + p * b, *y = s->y ? s->y + p * b : NULL;
    float share = r < 0 ? 0.0f : j->pool ? 0.25f : 1.0f;
    if (dy2)
        for (int64_t c = 0; c < width; c++) v[c] = share * (GET(dy[c]) + GET(dy2[c]));
    else
        for (int64_t c = 0; c < width; c++) v[c] = share * GET(dy[c]);
    if (!j->relu) return;
    if (y)
        for (int64_t c = 0; c < width; c++) v[c] = GET(y[c]) > 0 ? v[c] : 0.0f;
    else
        for (int64_t c = 0; c < width; c++)
            v[c] = (GET(x[c]) - k->mean[c]) * k->scale[c] + k->bias[c] > 0 ? v[c] : 0.0f;
}

CPU_INLINE void NAME(reduce_stretch)(const back_job *j, const NAME(stretch) * s, int64_t p0, int64_t p1, int64_t b,
                                     int64_t width, const channels *k, double *bias, double *gain)
{
    float fb[LANES] = { 0 }, fg[LANES] = { 0 };
    for (int64_t p = p0; p < p1; p++) {
        float v[LANES];
        NAME(before_row)(j, s, p, b, width, k, v);
        for (int64_t c = 0; c < width; c++) {
            fb[c] += v[c];
            fg[c] += v[c] * (GET(s->x[p * b + c]) - k->mean[c]);
        }
        if (s->g)
            for (int64_t c = 0; c < width; c++) s->g[p * b + c] = PUT(v[c]);
    }
    for (int64_t c = 0; c < width; c++) bias[c] += (double)fb[c], gain[c] += (double)fg[c];
}

CPU_INLINE void NAME(reduce_plane)(const back_job *j, int64_t i)
{
    int64_t b = j->z.C;
    double *bias = j->part + i * 2 * b, *gain = bias + b;
    for (int64_t c = 0; c < b; c++) bias[c] = gain[c] = 0;
    for (int64_t p = 0; p < j->z.HW; p += ROWS)
        for (int64_t c = 0; c < b; c += LANES) {
            int64_t last = p + ROWS < j->z.HW ? p + ROWS : j->z.HW;
            NAME(stretch) s = NAME(stretch_of)(j, i, b, c);
            channels k = channels_at(&j->k, c);
            if (b - c >= LANES) NAME(reduce_stretch)(j, &s, p, last, b, LANES, &k, bias + c, gain + c);
            else NAME(reduce_stretch)(j, &s, p, last, b, b - c, &k, bias + c, gain + c);
        }
}

CPU_CLONES static void NAME(reduce_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const back_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) NAME(reduce_plane)(j, i);
}

/* dx = gain rstd (g - mean(g) - xhat mean(g xhat)) = scale g + of_x (x - mean) + rest per channel. */
CPU_INLINE void NAME(back_stretch)(const back_job *j, const NAME(stretch) * s, int64_t p0, int64_t p1, int64_t b,
                                   int64_t width, const channels *k)
{
    for (int64_t p = p0; p < p1; p++) {
        float v[LANES];
        NAME(before_row)(j, s, p, b, width, k, v);
        for (int64_t c = 0; c < width; c++)
            s->dx[p * b + c] = PUT(k->scale[c] * v[c] + k->of_x[c] * (GET(s->x[p * b + c]) - k->mean[c]) + k->rest[c]);
    }
}

CPU_INLINE void NAME(back_plane)(const back_job *j, int64_t i)
{
    int64_t b = j->z.C;
    for (int64_t p = 0; p < j->z.HW; p += ROWS)
        for (int64_t c = 0; c < b; c += LANES) {
            int64_t last = p + ROWS < j->z.HW ? p + ROWS : j->z.HW;
            NAME(stretch) s = NAME(stretch_of)(j, i, b, c);
            channels k = channels_at(&j->k, c);
            if (b - c >= LANES) NAME(back_stretch)(j, &s, p, last, b, LANES, &k);
            else NAME(back_stretch)(j, &s, p, last, b, b - c, &k);
        }
}

CPU_CLONES static void NAME(back_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const back_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) NAME(back_plane)(j, i);
}
