/* A resize: the weights of its axes, the plain kernels, the choice of kernels, and the passes. */
#include "data/view/resize.h"

#include <stdlib.h>
#include <string.h>

#include "data/view/resize_weights.h"

/* --- the definition ---------------------------------------------------------------------------------- */

static uint8_t clip8(int32_t sum)
{
    int32_t v = sum >> RESIZE_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void across_row(uint8_t *out, const uint8_t *row, const resize_axis *x, int channels)
{
    for (int64_t i = 0; i < x->n; i++) {
        const uint8_t *in = row + x->first[i] * channels;
        const int32_t *k = x->k + i * x->taps;
        for (int c = 0; c < channels; c++) {
            int32_t sum = RESIZE_HALF;
            for (int32_t t = 0; t < x->count[i]; t++) sum += k[t] * in[t * channels + c];
            *out++ = clip8(sum);
        }
    }
}

static void across_plain(uint8_t *const *out, const uint8_t *const *row, const resize_axis *x, int channels)
{
    across_row(out[0], row[0], x, channels);
}

static void down_plain(uint8_t *out, const uint8_t *src, int64_t stride, int64_t rows, const resize_axis *y, int64_t i,
                       int64_t n)
{
    (void)rows;
    const uint8_t *in = src + y->first[i] * stride;
    const int32_t *k = y->k + i * y->taps;
    for (int64_t b = 0; b < n; b++) {
        int32_t sum = RESIZE_HALF;
        for (int32_t t = 0; t < y->count[i]; t++) sum += k[t] * in[t * stride + b];
        out[b] = clip8(sum);
    }
}

static bool always(void) { return true; }

static bool nothing(resize_axis *a)
{
    (void)a;
    return true;
}

const resize_kernels resize_plain = { "plain", always, nothing, 1, across_plain, down_plain };

#ifdef __x86_64__
const resize_kernels *const resize_all_kernels[] = { &resize_avx2, &resize_plain, NULL };
#elif defined(__aarch64__)
const resize_kernels *const resize_all_kernels[] = { &resize_neon, &resize_plain, NULL };
#else
const resize_kernels *const resize_all_kernels[] = { &resize_plain, NULL };
#endif

static const resize_kernels *fastest(void)
{
    const resize_kernels *const *k = resize_all_kernels;
    while (!(*k)->usable()) k++;
    return *k;
}

/* --- buffers ----------------------------------------------------------------------------------------- */

void resize_buffer_release(resize_buffer *b)
{
    free(b->base);
    *b = (resize_buffer){ 0 };
}

cloob_status resize_reserve(cloob_ctx *ctx, resize_buffer *b, size_t bytes)
{
    if (bytes <= b->cap) return CLOOB_OK;
    resize_buffer_release(b);
    b->base = calloc(1, bytes + RESIZE_SLACK + 63); /* pages that are never used cost nothing */
    if (!b->base) return ctx_no_memory(ctx, bytes, "resizing an image");
    b->data = (uint8_t *)b->base + (-(uintptr_t)b->base & 63);
    b->cap = bytes;
    return CLOOB_OK;
}

/* ---- weights ----------------------------------------------------------------------------------- */

/* Output i of the axis, number `begin` + i of the span; w: scratch of a->taps doubles. */
static void weigh(resize_axis *a, int64_t i, const resize_span *s, int64_t begin, int bits, double *w)
{
    int64_t lo, hi;
    double sum = 0.0, centre = resize_centre(s, begin + i);
    resize_inputs(s, centre, &lo, &hi);
    for (int64_t t = 0; t < hi - lo; t++) sum += w[t] = resize_weight(s, centre, lo, t);
    a->first[i] = (int32_t)lo;
    a->count[i] = (int32_t)(hi - lo);
    for (int64_t t = 0; t < hi - lo; t++) a->k[i * a->taps + t] = resize_round(sum != 0.0 ? w[t] / sum : w[t], bits);
}

/* torch's precision: the largest at which the largest weight of all outputs fits into 16 bits. */
static int torch_bits(const resize_span *s, int64_t out)
{
    double most = 0;
    int bits = 0;
    for (int64_t i = 0; i < out; i++) {
        int64_t lo, hi;
        double sum = 0, largest = 0, centre = resize_centre(s, i);
        resize_inputs(s, centre, &lo, &hi);
        for (int64_t t = 0; t < hi - lo; t++) {
            double w = resize_weight(s, centre, lo, t);
            sum += w;
            if (w > largest) largest = w;
        }
        if (sum != 0 && largest / sum > most) most = largest / sum;
    }
    while (bits < RESIZE_BITS && (int)(0.5 + most * (1 << (bits + 1))) < 1 << 15) bits++;
    return bits;
}

static cloob_status axis_carve(cloob_ctx *ctx, resize_axis *a, resize_buffer *b, int64_t n, int64_t taps, double **w)
{
    size_t rows = (size_t)n, weights = rows * (size_t)taps;
    size_t ints = 2 * rows + 2 * weights, bytes = (size_t)taps * sizeof(double) + ints * 4;
    CLOOB_TRY(resize_reserve(ctx, b, bytes));
    *w = b->data;
    a->n = n;
    a->taps = taps;
    a->k = (int32_t *)(*w + taps);
    a->first = a->k + weights;
    a->count = a->first + rows;
    a->half = a->count + rows;
    memset(a->k, 0, weights * 4);
    return CLOOB_OK;
}

/* Weights of outputs [begin, begin + n) of `out`, when `in` pixels become `out` pixels. Inputs count from the first
 * that is needed. b owns the arrays. */
static cloob_status axis_build(cloob_ctx *ctx, resize_axis *a, resize_buffer *b, const resize_plan *p, int64_t in,
                               int64_t out, int64_t begin, int64_t n)
{
    resize_span s = resize_span_of((int)p->filter, in, out);
    int bits = p->torch ? torch_bits(&s, out) : RESIZE_BITS;
    double *w;
    CLOOB_TRY(axis_carve(ctx, a, b, n, resize_taps(&s), &w));
    for (int64_t i = 0; i < n; i++) weigh(a, i, &s, begin, bits, w);
    a->origin = a->first[0];
    for (int64_t i = 0; i < n; i++) a->first[i] -= (int32_t)a->origin;
    return CLOOB_OK;
}

void resize_scratch_release(resize_scratch *s)
{
    resize_buffer_release(&s->axis[0]);
    resize_buffer_release(&s->axis[1]);
    resize_buffer_release(&s->mid);
    resize_buffer_release(&s->row);
}

/* --- passes ------------------------------------------------------------------------------------------ */

static bool needs_across(const resize_source *src, const resize_plan *p) { return p->out_width != src->width; }
static bool needs_down(const resize_source *src, const resize_plan *p) { return p->out_height != src->height; }

/* The columns that the axis across reads: from its origin on. */
static int64_t columns_read(const resize_axis *x) { return x->first[x->n - 1] + x->count[x->n - 1]; }

/* Rows so near the end of the image that reading past them is not allowed. */
static int64_t last_rows(const resize_source *src) { return RESIZE_SLACK / src->stride + 1; }

/* The columns of row y where a kernel may read past their end: the last rows are copied to larger memory. */
static const uint8_t *padded_row(resize_scratch *s, const resize_source *src, int64_t y)
{
    const uint8_t *row = src->pixels + y * src->stride + s->x.origin * src->channels;
    size_t bytes = (size_t)(columns_read(&s->x) * src->channels);
    int64_t slot = src->height - 1 - y;
    if (slot >= last_rows(src)) return row;
    return memcpy((uint8_t *)s->row.data + (size_t)slot * (bytes + RESIZE_SLACK), row, bytes);
}

/* Rows [top, top + n) of the source resized to the window's columns, into out (packed). */
static cloob_status rows_across(cloob_ctx *ctx, const resize_kernels *k, resize_scratch *s, const resize_source *src,
                                const resize_plan *p, int64_t top, int64_t n, uint8_t *out)
{
    int64_t bytes = p->width * src->channels;
    int64_t row_bytes = columns_read(&s->x) * src->channels + RESIZE_SLACK;
    CLOOB_TRY(resize_reserve(ctx, &s->row, (size_t)(last_rows(src) * row_bytes)));
    for (int64_t y = 0; y < n; y += k->rows) {
        uint8_t *to[RESIZE_ROWS];
        const uint8_t *from[RESIZE_ROWS];
        for (int r = 0; r < k->rows; r++) { /* past the end the last row is recomputed, which changes nothing */
            to[r] = y + r < n ? out + (y + r) * bytes : to[r - 1];
            from[r] = y + r < n ? padded_row(s, src, top + y + r) : from[r - 1];
        }
        k->across(to, from, &s->x, src->channels);
    }
    return CLOOB_OK;
}

static void rows_copy(const resize_source *src, const resize_plan *p, uint8_t *out)
{
    size_t bytes = (size_t)(p->width * src->channels);
    const uint8_t *from = src->pixels + p->top * src->stride + p->left * src->channels;
    for (int64_t y = 0; y < p->height; y++) memcpy(out + (size_t)y * bytes, from + y * src->stride, bytes);
}

/* The weights of both axes, and the kernels that can use them. */
static cloob_status axes_build(cloob_ctx *ctx, const resize_kernels **k, resize_scratch *s, const resize_source *src,
                               const resize_plan *p)
{
    bool fits = true;
    if (needs_across(src, p)) {
        CLOOB_TRY(axis_build(ctx, &s->x, &s->axis[0], p, src->width, p->out_width, p->left, p->width));
        fits = (*k)->prepare(&s->x);
    }
    if (needs_down(src, p)) {
        CLOOB_TRY(axis_build(ctx, &s->y, &s->axis[1], p, src->height, p->out_height, p->top, p->height));
        fits = fits && (*k)->prepare(&s->y);
    }
    if (!fits) *k = &resize_plain;
    return CLOOB_OK;
}

static cloob_status pass_down(cloob_ctx *ctx, const resize_kernels *k, resize_scratch *s, const resize_source *src,
                              const resize_plan *p, uint8_t *out)
{
    int64_t bytes = p->width * src->channels, stride = src->stride;
    int64_t first = s->y.origin, rows = s->y.first[p->height - 1] + s->y.count[p->height - 1];
    const uint8_t *mid = src->pixels + first * src->stride + p->left * src->channels;
    if (needs_across(src, p)) {
        CLOOB_TRY(resize_reserve(ctx, &s->mid, (size_t)(rows * bytes)));
        CLOOB_TRY(rows_across(ctx, k, s, src, p, first, rows, s->mid.data));
        mid = s->mid.data;
        stride = bytes;
    }
    for (int64_t i = 0; i < p->height; i++) k->down(out + i * bytes, mid, stride, rows, &s->y, i, bytes);
    return CLOOB_OK;
}

/* The pass down first, so that the pass across computes only the rows of the output. */
static cloob_status down_and_across(cloob_ctx *ctx, const resize_kernels *k, resize_scratch *s,
                                    const resize_source *src, const resize_plan *p, uint8_t *out)
{
    int64_t columns = columns_read(&s->x), bytes = columns * src->channels;
    int64_t rows = s->y.first[p->height - 1] + s->y.count[p->height - 1];
    const uint8_t *in = src->pixels + s->y.origin * src->stride + s->x.origin * src->channels;
    CLOOB_TRY(resize_reserve(ctx, &s->mid, (size_t)(p->height * bytes)));
    uint8_t *mid = s->mid.data;
    for (int64_t i = 0; i < p->height; i++) k->down(mid + i * bytes, in, src->stride, rows, &s->y, i, bytes);
    s->x.origin = 0; /* mid begins there */
    return rows_across(ctx, k, s, &(resize_source){ mid, bytes, columns, p->height, src->channels }, p, 0, p->height,
                       out);
}

cloob_status resize_run_with(cloob_ctx *ctx, const resize_kernels *k, resize_scratch *s, const resize_source *src,
                             const resize_plan *p, uint8_t *out)
{
    CLOOB_TRY(axes_build(ctx, &k, s, src, p));
    if (p->down_first && needs_down(src, p) && needs_across(src, p)) return down_and_across(ctx, k, s, src, p, out);
    if (needs_down(src, p)) return pass_down(ctx, k, s, src, p, out);
    if (needs_across(src, p)) return rows_across(ctx, k, s, src, p, p->top, p->height, out);
    rows_copy(src, p, out);
    return CLOOB_OK;
}

cloob_status resize_run(cloob_ctx *ctx, resize_scratch *s, const resize_source *src, const resize_plan *p, uint8_t *out)
{
    return resize_run_with(ctx, fastest(), s, src, p, out);
}

/* --- nearest ----------------------------------------------------------------------------------------- */

/* The source coordinate of each output. Steps are added one by one, because Pillow does, and the rounding of the sum is
 * part of the result; except beyond a million steps, which Pillow does not reach. */
static void nearest_axis(int32_t *at, int64_t in, int64_t out, int64_t begin, int64_t n)
{
    double step = (double)in / (double)out, x = step * 0.5;
    if (begin > 1000000) x += step * (double)begin;
    else
        for (int64_t i = 0; i < begin; i++) x += step;
    for (int64_t i = 0; i < n; i++, x += step) {
        int64_t p = (int64_t)x;
        at[i] = (int32_t)(p < in ? p : in - 1);
    }
}

/* torch's "nearest-exact": the same pixel, but for the rounding of floats. */
static void nearest_torch(int32_t *at, int64_t in, int64_t out, int64_t begin, int64_t n)
{
    float scale = (float)in / (float)out;
    for (int64_t i = 0; i < n; i++) {
        int64_t p = (int64_t)floorf((float)(((double)(begin + i) + 0.5) * (double)scale));
        at[i] = (int32_t)(p < in ? p : in - 1);
    }
}

cloob_status resize_nearest(cloob_ctx *ctx, resize_scratch *s, const resize_source *src, const resize_plan *p,
                            uint8_t *out)
{
    size_t c = (size_t)src->channels;
    CLOOB_TRY(resize_reserve(ctx, &s->mid, (size_t)(p->width + p->height) * sizeof(int32_t)));
    int32_t *x = s->mid.data, *y = x + p->width;
    if (p->torch) {
        nearest_torch(x, src->width, p->out_width, p->left, p->width);
        nearest_torch(y, src->height, p->out_height, p->top, p->height);
    } else {
        nearest_axis(x, src->width, p->out_width, p->left, p->width);
        nearest_axis(y, src->height, p->out_height, p->top, p->height);
    }
    for (int64_t i = 0; i < p->height; i++) {
        const uint8_t *row = src->pixels + y[i] * src->stride;
        for (int64_t j = 0; j < p->width; j++, out += c) memcpy(out, row + (size_t)x[j] * c, c);
    }
    return CLOOB_OK;
}
