/* What benchmarks of GPU kernels share: tensors of noise on the device, and how far two of them are apart. */
#ifndef BENCH_GPU_TENSORS_H
#define BENCH_GPU_TENSORS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensor/cuda/cuda.h"

static void bench_fail(cloob_ctx *ctx, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, cloob_error(ctx));
    exit(1);
}
#define BENCH_TRY(ctx, call)                                                                                           \
    do {                                                                                                               \
        if ((call) != CLOOB_OK) bench_fail(ctx, #call);                                                                \
    } while (0)

/* On the device, which owns it until the program ends. */
static inline tensor bench_noise(cloob_ctx *ctx, device *dev, cloob_dtype type, int ndim, const int64_t *dim)
{
    tensor t = { .dtype = type, .ndim = ndim };
    for (int i = 0; i < ndim; i++) t.dim[i] = dim[i];
    BENCH_TRY(ctx, dev->alloc(ctx, dev, tensor_bytes(&t), "a tensor", &t.data));
    BENCH_TRY(ctx, cuda_fill_noise(ctx, dev->stream, t.data, type, tensor_count(&t)));
    return t;
}

/* Norm of the difference over the norm, at beginning, middle and end. */
static inline double bench_difference(cloob_ctx *ctx, device *dev, const tensor *a, const tensor *b)
{
    enum { PIECE = 1 << 20 };
    int64_t n = tensor_count(a), piece = n < PIECE ? n : PIECE;
    size_t size = dtype_size(a->dtype);
    char *p = malloc((size_t)piece * size), *q = malloc((size_t)piece * size);
    double *x = malloc((size_t)piece * sizeof *x), *y = malloc((size_t)piece * sizeof *y), diff = 0, norm = 0;
    for (int part = 0; part < 3; part++) {
        size_t at = (size_t)((n - piece) / 2 * part) * size;
        BENCH_TRY(ctx, dev->to_host(ctx, dev, p, (char *)a->data + at, (size_t)piece * size));
        BENCH_TRY(ctx, dev->to_host(ctx, dev, q, (char *)b->data + at, (size_t)piece * size));
        dtype_convert(CLOOB_F64, x, a->dtype, p, piece);
        dtype_convert(CLOOB_F64, y, b->dtype, q, piece);
        for (int64_t i = 0; i < piece; i++) diff += (x[i] - y[i]) * (x[i] - y[i]), norm += y[i] * y[i];
    }
    free(p), free(q), free(x), free(y);
    return sqrt(diff / norm);
}

#endif
