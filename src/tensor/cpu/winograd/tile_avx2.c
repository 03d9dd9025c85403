/* The inner parts in AVX2: a register holds 8 channels, transforms are sums of registers. */
#include <immintrin.h>
#include <stddef.h>

#include "tensor/cpu/winograd/tile.h"

#define TARGET __attribute__((target("avx2,fma")))
#define INLINE TARGET static inline __attribute__((always_inline))

enum { V = WINOGRAD_LANES, ROWS = WINOGRAD_ROWS, COLUMNS = WINOGRAD_COLUMNS, EDGE = WINOGRAD_EDGE };

/* The points of 4 x 4 tiles: 0, a, -a, b, -b, infinity. */
#define A 0.625f
#define B 1.5f

INLINE __m256 times(float s, __m256 x) { return _mm256_mul_ps(_mm256_set1_ps(s), x); }
INLINE __m256 plus(__m256 y, float s, __m256 x) { return _mm256_fmadd_ps(_mm256_set1_ps(s), x, y); }

/* ---- one dimension ------------------------------------------------------------------------------- */

/* Coefficients of prod_{j != i} (x - p_j), row by row, times d. */
INLINE void points_of_6(const __m256 d[EDGE], __m256 v[EDGE])
{
    __m256 even = plus(d[4], -B * B, d[2]), odd = plus(d[3], -B * B, d[1]);
    v[0] = plus(plus(d[4], -(A * A + B * B), d[2]), A * A * B * B, d[0]);
    v[1] = plus(even, A, odd);
    v[2] = plus(even, -A, odd);
    even = plus(d[4], -A * A, d[2]), odd = plus(d[3], -A * A, d[1]);
    v[3] = plus(even, B, odd);
    v[4] = plus(even, -B, odd);
    v[5] = plus(plus(d[5], -(A * A + B * B), d[3]), A * A * B * B, d[1]);
}

INLINE void points_of_4(const __m256 d[EDGE], __m256 v[EDGE])
{
    v[0] = _mm256_sub_ps(d[0], d[2]);
    v[1] = _mm256_add_ps(d[1], d[2]);
    v[2] = _mm256_sub_ps(d[2], d[1]);
    v[3] = _mm256_sub_ps(d[1], d[3]);
}

/* y_i = sum over points of p^i m_p; infinity counts for the last one. */
INLINE void outputs_of_6(const __m256 m[EDGE], __m256 y[EDGE])
{
    __m256 sum_a = _mm256_add_ps(m[1], m[2]), sum_b = _mm256_add_ps(m[3], m[4]), by_a = _mm256_sub_ps(m[1], m[2]),
           by_b = _mm256_sub_ps(m[3], m[4]);
    y[0] = _mm256_add_ps(_mm256_add_ps(m[0], sum_a), sum_b);
    y[1] = plus(times(A, by_a), B, by_b);
    y[2] = plus(times(A * A, sum_a), B * B, sum_b);
    y[3] = plus(plus(m[5], A * A * A, by_a), B * B * B, by_b);
}

INLINE void outputs_of_4(const __m256 m[EDGE], __m256 y[EDGE])
{
    y[0] = _mm256_add_ps(_mm256_add_ps(m[0], m[1]), m[2]);
    y[1] = _mm256_sub_ps(_mm256_sub_ps(m[1], m[2]), m[3]);
}

/* The way back: m_p = sum of p^i y_i, and the last one at infinity. */
INLINE void back_of_6(const __m256 y[EDGE], __m256 m[EDGE])
{
    __m256 even = plus(y[0], A * A, y[2]), odd = plus(y[1], A * A, y[3]);
    m[0] = y[0];
    m[1] = plus(even, A, odd);
    m[2] = plus(even, -A, odd);
    even = plus(y[0], B * B, y[2]), odd = plus(y[1], B * B, y[3]);
    m[3] = plus(even, B, odd);
    m[4] = plus(even, -B, odd);
    m[5] = y[3];
}

INLINE void back_of_4(const __m256 y[EDGE], __m256 m[EDGE])
{
    m[0] = y[0];
    m[1] = _mm256_add_ps(y[0], y[1]);
    m[2] = _mm256_sub_ps(y[0], y[1]);
    m[3] = _mm256_sub_ps(_mm256_setzero_ps(), y[1]);
}

/* ---- patches in ---------------------------------------------------------------------------------- */

/* edge is a constant where these are called; `inside` when no element of the patch is beyond the image. */
INLINE void patch_in(const float *x, const winograd_place *at, float *v, int64_t stride, const int edge,
                     const bool inside)
{
    __m256 half[EDGE][EDGE], d[EDGE], to[EDGE];
    int64_t h0 = at->h - 1, w0 = at->w - 1;
#pragma GCC unroll 6
    for (int j = 0; j < edge; j++) {
#pragma GCC unroll 6
        for (int i = 0; i < edge; i++) {
            bool here = inside || (h0 + i >= 0 && h0 + i < at->H && w0 + j >= 0 && w0 + j < at->W);
            d[i] = here ? _mm256_loadu_ps(x + ((h0 + i) * at->W + w0 + j) * at->pixel) : _mm256_setzero_ps();
        }
        if (edge == 6) points_of_6(d, to);
        else points_of_4(d, to);
#pragma GCC unroll 6
        for (int i = 0; i < edge; i++) half[i][j] = to[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < edge; i++) {
        if (edge == 6) points_of_6(half[i], to);
        else points_of_4(half[i], to);
#pragma GCC unroll 6
        for (int j = 0; j < edge; j++) _mm256_storeu_ps(v + (i * edge + j) * stride, to[j]);
    }
}

static bool is_inside(const winograd_place *at, int edge)
{
    return at->h > 0 && at->w > 0 && at->h - 1 + edge <= at->H && at->w - 1 + edge <= at->W;
}

TARGET static void in_4(const float *x, const winograd_place *at, float *v, int64_t stride)
{
    if (is_inside(at, 6)) patch_in(x, at, v, stride, 6, true);
    else patch_in(x, at, v, stride, 6, false);
}

TARGET static void in_2(const float *x, const winograd_place *at, float *v, int64_t stride)
{
    if (is_inside(at, 4)) patch_in(x, at, v, stride, 4, true);
    else patch_in(x, at, v, stride, 4, false);
}

/* ---- tiles out ----------------------------------------------------------------------------------- */

INLINE void tile_out(const float *m, int64_t stride, const float *bias, bool relu, const winograd_place *at, float *y,
                     const int edge)
{
    __m256 half[EDGE][EDGE], from[EDGE], to[EDGE], add = bias ? _mm256_loadu_ps(bias) : _mm256_setzero_ps();
    const int size = edge - 2;
    int64_t rows = at->H - at->h, columns = at->W - at->w;
#pragma GCC unroll 6
    for (int j = 0; j < edge; j++) {
#pragma GCC unroll 6
        for (int i = 0; i < edge; i++) from[i] = _mm256_loadu_ps(m + (i * edge + j) * stride);
        if (edge == 6) outputs_of_6(from, to);
        else outputs_of_4(from, to);
#pragma GCC unroll 4
        for (int i = 0; i < size; i++) half[i][j] = to[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < size; i++) {
        if (i >= rows) return;
        if (edge == 6) outputs_of_6(half[i], to);
        else outputs_of_4(half[i], to);
#pragma GCC unroll 4
        for (int j = 0; j < size; j++) {
            __m256 sum = _mm256_add_ps(to[j], add);
            if (relu) sum = _mm256_max_ps(sum, _mm256_setzero_ps());
            if (j < columns) _mm256_storeu_ps(y + ((at->h + i) * at->W + at->w + j) * at->pixel, sum);
        }
    }
}

TARGET static void out_4(const float *m, int64_t stride, const float *bias, bool relu, const winograd_place *at,
                         float *y)
{
    tile_out(m, stride, bias, relu, at, y, 6);
}

TARGET static void out_2(const float *m, int64_t stride, const float *bias, bool relu, const winograd_place *at,
                         float *y)
{
    tile_out(m, stride, bias, relu, at, y, 4);
}

/* ---- tiles back ---------------------------------------------------------------------------------- */

INLINE void tile_back(const float *dy, const winograd_place *at, float *d, int64_t stride, const int edge)
{
    __m256 half[EDGE][EDGE], from[EDGE], to[EDGE];
    const int size = edge - 2;
#pragma GCC unroll 4
    for (int j = 0; j < size; j++) {
#pragma GCC unroll 4
        for (int i = 0; i < size; i++) {
            bool here = at->h + i < at->H && at->w + j < at->W;
            from[i] = here ? _mm256_loadu_ps(dy + ((at->h + i) * at->W + at->w + j) * at->pixel) : _mm256_setzero_ps();
        }
        if (edge == 6) back_of_6(from, to);
        else back_of_4(from, to);
#pragma GCC unroll 6
        for (int i = 0; i < edge; i++) half[i][j] = to[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < edge; i++) {
        if (edge == 6) back_of_6(half[i], to);
        else back_of_4(half[i], to);
#pragma GCC unroll 6
        for (int j = 0; j < edge; j++) _mm256_storeu_ps(d + (i * edge + j) * stride, to[j]);
    }
}

TARGET static void back_4(const float *dy, const winograd_place *at, float *d, int64_t stride)
{
    tile_back(dy, at, d, stride, 6);
}

TARGET static void back_2(const float *dy, const winograd_place *at, float *d, int64_t stride)
{
    tile_back(dy, at, d, stride, 4);
}

/* ---- multiplying --------------------------------------------------------------------------------- */

/* rows and fetch are constants where it is called, so that the sums stay in registers. */
INLINE void rows_by_panel(const winograd_block *b, const int rows, const bool fetch)
{
    __m256 left[ROWS], right[ROWS];
    const float *v = b->v, *panel = b->panel, *next = b->next;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) left[r] = right[r] = _mm256_setzero_ps();
    for (int64_t c = 0; c < b->C; c += V, v += rows * V, panel += V * COLUMNS) {
#pragma GCC unroll 8
        for (int k = 0; k < V; k++) {
            __m256 l = _mm256_load_ps(panel + k * COLUMNS), m = _mm256_load_ps(panel + k * COLUMNS + V);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                __m256 one = _mm256_broadcast_ss(v + r * V + k);
                left[r] = _mm256_fmadd_ps(one, l, left[r]);
                right[r] = _mm256_fmadd_ps(one, m, right[r]);
            }
            if (fetch) _mm_prefetch((const char *)(next + (c + k) * COLUMNS), _MM_HINT_T1);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_ps(b->m + r * COLUMNS, left[r]);
        _mm256_storeu_ps(b->m + r * COLUMNS + V, right[r]);
    }
}

#define BY(n)                                                                                                          \
    TARGET static void rows_##n(const winograd_block *b)                                                               \
    {                                                                                                                  \
        if (b->next) rows_by_panel(b, n, true);                                                                        \
        else rows_by_panel(b, n, false);                                                                               \
    }
/* clang-format off */
BY(1) BY(2) BY(3) BY(4) BY(5) BY(6)
    /* clang-format on */

    static void multiply(const winograd_block *b)
{
    static void (*const by_rows[ROWS])(const winograd_block *) = { rows_1, rows_2, rows_3, rows_4, rows_5, rows_6 };
    by_rows[b->rows - 1](b);
}

INLINE void sum_rows(const winograd_sum *s, const int rows)
{
    __m256 left[ROWS], right[ROWS];
    const float *v = s->v, *d = s->d;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        left[r] = s->first ? _mm256_setzero_ps() : _mm256_load_ps(s->u + r * COLUMNS);
        right[r] = s->first ? _mm256_setzero_ps() : _mm256_load_ps(s->u + r * COLUMNS + V);
    }
#pragma GCC unroll 4
    for (int64_t t = 0; t < s->tiles; t++, v += s->ldv) {
        __m256 l = _mm256_load_ps(d + t * COLUMNS), m = _mm256_load_ps(d + t * COLUMNS + V);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m256 one = _mm256_broadcast_ss(v + r);
            left[r] = _mm256_fmadd_ps(one, l, left[r]);
            right[r] = _mm256_fmadd_ps(one, m, right[r]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm256_store_ps(s->u + r * COLUMNS, left[r]);
        _mm256_store_ps(s->u + r * COLUMNS + V, right[r]);
    }
}

TARGET static void sum_up_to_4(const winograd_sum *s)
{
    if (s->rows == 4) sum_rows(s, 4);
    else if (s->rows == 3) sum_rows(s, 3);
    else if (s->rows == 2) sum_rows(s, 2);
    else sum_rows(s, 1);
}

TARGET static void sum(const winograd_sum *s)
{
    if (s->rows == 6) sum_rows(s, 6);
    else if (s->rows == 5) sum_rows(s, 5);
    else sum_up_to_4(s);
}

const winograd_tile *winograd_tile_of(int size)
{
    static const winograd_tile small = { 2, 4, 16, in_2, multiply, out_2, back_2, sum },
                               large = { 4, 6, 36, in_4, multiply, out_4, back_4, sum };
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return NULL;
    return size == 2 ? &small : &large;
}
