/* dwconv.c's loops for one element type. */

/* Places [from, to) of the kernel that see the image of `size` from place i of the result. */
CPU_INLINE void NAME(dw_seen)(int64_t i, int64_t size, const dw_job *z, int64_t *from, int64_t *to)
{
    int64_t half = z->k / 2, first = half - i * z->s, behind = size + first;
    *from = first > 0 ? first : 0;
    *to = behind < z->k ? behind : z->k;
}

/* sum (LANES) at place (i, j) of the result by kernel q of the channels at image; w: its weights of these channels. */
CPU_INLINE void NAME(dw_place)(float *sum, const REAL *image, const float *w, int64_t i, int64_t j, int64_t width,
                               const dw_job *z)
{
    int64_t W = z->W, C = z->C, k = z->k, top, below, left, right;
    NAME(dw_seen)(i, z->H, z, &top, &below);
    NAME(dw_seen)(j, W, z, &left, &right);
    const REAL *corner = image + ((i * z->s - k / 2) * W + j * z->s - k / 2) * C;
    for (int64_t u = top; u < below; u++)
        for (int64_t v = left; v < right; v++) {
            const REAL *x = corner + (u * W + v) * C;
            const float *by = w + (u * k + v) * C;
            if (width == LANES)
                for (int64_t c = 0; c < LANES; c++) sum[c] += GET(x[c]) * by[c];
            else
                for (int64_t c = 0; c < width; c++) sum[c] += GET(x[c]) * by[c];
        }
}

/* Rows of the result. */
CPU_CLONES static void NAME(dwconv_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const dw_job *z = arg;
    int64_t C = z->C, m = z->m;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c0 = 0; c0 < C; c0 += LANES)
            for (int64_t q = 0; q < m; q++) {
                int64_t width = C - c0 < LANES ? C - c0 : LANES;
                const REAL *image = (const REAL *)z->x + r / z->Ho * z->H * z->W * C + c0;
                for (int64_t j = 0; j < z->Wo; j++) {
                    float sum[LANES] = { 0 };
                    for (int64_t c = 0; z->bias && c < width; c++) sum[c] = z->bias[(c0 + c) * m + q];
                    NAME(dw_place)(sum, image, z->w + q * z->k * z->k * C + c0, r % z->Ho, j, width, z);
                    REAL *y = (REAL *)z->y + ((r * z->Wo + j) * C + c0) * m + q;
                    for (int64_t c = 0; c < width; c++) y[c * m] = PUT(sum[c]);
                }
            }
}

/* Rows of dx, in steps or with several kernels per channel: each place asks which places of dy have read it. */
CPU_CLONES static void NAME(dwconv_dx_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const dw_job *z = arg;
    int64_t C = z->C, m = z->m, k = z->k, s = z->s;
    (void)thread;
    for (int64_t at = begin * z->W; at < end * z->W; at++)
        for (int64_t c0 = 0; c0 < C; c0 += LANES) {
            int64_t width = C - c0 < LANES ? C - c0 : LANES, h = at / z->W % z->H + k / 2, l = at % z->W + k / 2;
            float sum[LANES] = { 0 };
            for (int64_t p = 0; p < k * k; p++) {
                int64_t i = h - p / k, j = l - p % k;
                if (i < 0 || j < 0 || i % s || j % s || i / s >= z->Ho || j / s >= z->Wo) continue;
                int64_t place = (at / z->W / z->H * z->Ho + i / s) * z->Wo + j / s;
                const REAL *dy = (const REAL *)z->dy + (place * C + c0) * m;
                for (int64_t q = 0; q < m; q++)
                    for (int64_t c = 0; c < width; c++)
                        sum[c] += GET(dy[c * m + q]) * z->w[(q * k * k + p) * C + c0 + c];
            }
            REAL *dx = (REAL *)z->y + at * C + c0;
            for (int64_t c = 0; c < width; c++) dx[c] = PUT(sum[c]);
        }
}

/* Adds what one row of dy and one row of x give to the kernel's row of sums (k, LANES). */
CPU_INLINE void NAME(dw_row)(float *sum, const REAL *dy, const REAL *x, const dw_job *z, int64_t width)
{
    int64_t C = z->C, m = z->m;
    for (int64_t j = 0; j < z->Wo; j++)
        for (int64_t v = 0; v < z->k; v++) {
            int64_t l = j * z->s + v - z->k / 2;
            if (l < 0 || l >= z->W) continue;
            for (int64_t c = 0; c < width; c++) sum[v * LANES + c] += GET(dy[(j * C + c) * m]) * GET(x[l * C + c]);
        }
}

/* Blocks of LANES channels, and the kernels of each. */
CPU_CLONES static void NAME(dwconv_dw_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const dw_job *z = arg;
    int64_t C = z->C, k = z->k, m = z->m;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        float sum[KERNEL * KERNEL * LANES] = { 0 };
        int64_t c0 = b / m * LANES, q = b % m, width = C - c0 < LANES ? C - c0 : LANES;
        for (int64_t r = 0; r < z->N * z->Ho; r++)
            for (int64_t u = 0; u < k; u++) {
                int64_t h = r % z->Ho * z->s + u - k / 2;
                if (h < 0 || h >= z->H) continue;
                const REAL *dy = (const REAL *)z->dy + (r * z->Wo * C + c0) * m + q,
                           *x = (const REAL *)z->x + (r / z->Ho * z->H + h) * z->W * C + c0;
                NAME(dw_row)(sum + u * k * LANES, dy, x, z, width);
            }
        for (int64_t c = 0; c < width; c++)
            for (int64_t p = 0; p < k * k; p++) z->dw[((c0 + c) * m + q) * k * k + p] = sum[p * LANES + c];
    }
}
