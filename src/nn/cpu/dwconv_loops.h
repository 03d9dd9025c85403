/* dwconv.c's loops for one element type. */

/* One position of the result, channels c0 .. c0 + width - 1. */
CPU_CLONES static void NAME(dwconv_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const dw_job *z = arg;
    int64_t W = z->W, C = z->C, k = z->k, half = k / 2;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c0 = 0; c0 < C; c0 += LANES) {
            int64_t i = r % z->H, width = C - c0 < LANES ? C - c0 : LANES;
            int64_t top = i < half ? half - i : 0, below = i + half >= z->H ? z->H - i + half : k;
            const REAL *image = (const REAL *)z->x + (r - i) * W * C + c0;
            for (int64_t j = 0; j < W; j++) {
                float sum[LANES] = { 0 };
                int64_t left = j < half ? half - j : 0, right = j + half >= W ? W - j + half : k;
                for (int64_t u = top; u < below; u++)
                    for (int64_t v = left; v < right; v++) {
                        const REAL *x = image + ((i + u - half) * W + j + v - half) * C;
                        const float *w = z->w + (u * k + v) * C + c0;
                        if (width == LANES)
                            for (int64_t c = 0; c < LANES; c++) sum[c] += GET(x[c]) * w[c];
                        else
                            for (int64_t c = 0; c < width; c++) sum[c] += GET(x[c]) * w[c];
                    }
                REAL *y = (REAL *)z->y + (r * W + j) * C + c0;
                for (int64_t c = 0; c < width; c++) y[c] = PUT(sum[c]);
            }
        }
}

/* Adds what one row of dy and one row of x give to the kernel's row of sums (k, LANES). */
CPU_INLINE void NAME(dw_row)(float *sum, const REAL *dy, const REAL *x, const dw_job *z, int64_t width)
{
    int64_t W = z->W, C = z->C, half = z->k / 2;
    for (int64_t j = 0; j < W; j++)
        for (int64_t v = 0; v < z->k; v++) {
            int64_t l = j + v - half;
            if (l < 0 || l >= W) continue;
            for (int64_t c = 0; c < width; c++) sum[v * LANES + c] += GET(dy[j * C + c]) * GET(x[l * C + c]);
        }
}

CPU_CLONES static void NAME(dwconv_dw_range)(void *arg, int64_t begin, int64_t end, int thread)
{
    const dw_job *z = arg;
    int64_t H = z->H, W = z->W, C = z->C, k = z->k, half = k / 2;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        float sum[KERNEL * KERNEL * LANES] = { 0 };
        int64_t c0 = b * LANES, width = C - c0 < LANES ? C - c0 : LANES;
        for (int64_t r = 0; r < z->N * H; r++)
            for (int64_t u = 0; u < k; u++) {
                int64_t h = r % H + u - half;
                if (h < 0 || h >= H) continue;
                const REAL *dy = (const REAL *)z->dy + r * W * C + c0,
                           *x = (const REAL *)z->x + (r + u - half) * W * C + c0;
                NAME(dw_row)(sum + u * k * LANES, dy, x, z, width);
            }
        for (int64_t c = 0; c < width; c++)
            for (int64_t p = 0; p < k * k; p++) z->dw[(c0 + c) * k * k + p] = sum[p * LANES + c];
    }
}
