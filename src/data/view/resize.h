/* Pillow's antialiased resize of 8-bit pixels, to the last bit.
 *
 * Two passes, across and down, each a weighted sum of neighbouring pixels with weights in 22-bit fixed
 * point:
 *
 *     out[i] = clip((2^21 + sum_t k[i][t] in[first[i] + t]) >> 22)
 *
 * The filter is stretched by the reduction (that is the antialiasing), so a pixel far from the edges sees
 * 2 * support * in / out neighbours. Between the passes pixels are 8 bit again, so the order matters: across
 * first, but for tall images that shrink (resize_down_first). */
#ifndef DATA_VIEW_RESIZE_H
#define DATA_VIEW_RESIZE_H

#include "core/ctx.h"
#include "io/image/image_view.h"

/* One axis of a resize: for each output i in [0, n), taps weights for the inputs from first[i] on. Weights
 * beyond count[i] are 0; taps is a multiple of 4. */
typedef struct resize_axis {
    int64_t n, taps;
    int64_t origin;         /* the input that first counts from */
    int32_t *first, *count; /* (n) */
    int32_t *k;             /* (n, taps) */
    int32_t *half;          /* (n, taps / 2, 2): the low or high part of two weights each; see resize_avx2.c */
} resize_axis;

/* What to make: the source becomes out_width x out_height, of which the window is computed. */
typedef struct resize_plan {
    resize_filter filter; /* RESIZE_NEAREST: resize_nearest alone */
    bool torch;           /* weights rounded to 16 bits, as torch's resize of bytes has them */
    int64_t out_width, out_height;
    int64_t left, top, width, height; /* the window */
} resize_plan;

/* width x height, all of it. */
static inline resize_plan resize_plan_whole(int64_t width, int64_t height, resize_filter filter)
{
    return (resize_plan){ filter, false, width, height, 0, 0, width, height };
}

/* Buffers kept from call to call; zero-initialised is empty. */
typedef struct resize_buffer {
    void *data; /* aligned to 64 bytes */
    size_t cap;
    void *base; /* what is freed */
} resize_buffer;

typedef struct resize_scratch {
    resize_axis x, y;
    resize_buffer axis[2], mid, row;
} resize_scratch;

void resize_scratch_release(resize_scratch *s);
void resize_buffer_release(resize_buffer *b);
/* At least so many bytes, zero at first, and RESIZE_SLACK readable ones behind them. Content is lost when it
 * grows. */
cloob_status resize_reserve(cloob_ctx *ctx, resize_buffer *b, size_t bytes);

/* src: (height, width, channels), rows src_stride bytes apart, channels 3 or 4. out: (plan window, channels),
 * packed. */
typedef struct resize_source {
    const uint8_t *pixels;
    int64_t stride, width, height;
    int channels;
} resize_source;

cloob_status resize_run(cloob_ctx *ctx, resize_scratch *s, const resize_source *src, const resize_plan *p,
                        uint8_t *out);

/* The nearest pixel instead, as Pillow picks it: for palettes and 1-bit images. */
cloob_status resize_nearest(cloob_ctx *ctx, resize_scratch *s, const resize_source *src, const resize_plan *p,
                            uint8_t *out);

/* --- kernels: the plain ones are the definition; the others give the same bytes ---------------------- */

typedef struct resize_kernels {
    const char *name;
    bool (*usable)(void); /* on this processor */
    /* Makes half from k. False: these weights are beyond the kernels, take the plain ones. */
    bool (*prepare)(resize_axis *a);
    int rows; /* how many rows across does at once, up to RESIZE_ROWS */
    /* `rows` rows across. Reads up to RESIZE_SLACK bytes past a row. */
    void (*across)(uint8_t *const *out, const uint8_t *const *row, const resize_axis *x, int channels);
    /* Output i of the axis down: n bytes, from `rows` rows `stride` apart. */
    void (*down)(uint8_t *out, const uint8_t *src, int64_t stride, int64_t rows, const resize_axis *y, int64_t i,
                 int64_t n);
} resize_kernels;

enum { RESIZE_SLACK = 64, RESIZE_ROWS = 2 };

extern const resize_kernels resize_plain;
extern const resize_kernels resize_avx2; /* in x86-64 builds */
extern const resize_kernels resize_neon; /* in AArch64 builds */

/* Fastest first, ending with the plain one; NULL ends. */
extern const resize_kernels *const resize_all_kernels[];

cloob_status resize_run_with(cloob_ctx *ctx, const resize_kernels *k, resize_scratch *s, const resize_source *src,
                             const resize_plan *p, uint8_t *out);

#endif
