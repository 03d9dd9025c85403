/* A GEMM with 8-bit weights: operands drawn at random, and what igemm.h and qgemm.h need beside them. */
#ifndef TESTS_TENSOR_INT8_PROBLEM_H
#define TESTS_TENSOR_INT8_PROBLEM_H

#include <stdlib.h>

#include "core/rng.h"
#include "tensor/cpu/igemm.h"

static float *floats(int64_t n, uint64_t key)
{
    float *x = aligned_alloc(256, (size_t)(n + 64) / 64 * 64 * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2 * rng_uniform(key, (uint64_t)i) - 1);
    return x;
}

static void *room(size_t bytes) { return aligned_alloc(256, (bytes + 511) / 256 * 256); }

typedef struct problem {
    float *x, *w, *bias, *res, *y, *want;
    void *packed, *scratch;
    igemm_call c;
} problem;

/* Sizes and packing of the GEMM under test. */
typedef struct packer {
    size_t (*packed_bytes)(int64_t N, int64_t K);
    size_t (*scratch)(const cloob_ctx *ctx, int64_t M, int64_t K);
    void (*pack)(cloob_ctx *ctx, const float *w, int64_t N, int64_t K, void *packed);
} packer;

static problem problem_make(cloob_ctx *ctx, const packer *g, int64_t M, int64_t N, int64_t K)
{
    problem p = { floats(M * K, 1),          floats(N * K, 2), floats(N, 3), floats(M * N, 4),
                  floats(M * N + 8, 5),      floats(M * N, 6), NULL,         NULL,
                  { .M = M, .N = N, .K = K } };
    p.packed = room(g->packed_bytes(N, K));
    p.scratch = room(g->scratch(ctx, M, K));
    g->pack(ctx, p.w, N, K, p.packed);
    p.c.x = p.x, p.c.packed = p.packed, p.c.scratch = p.scratch, p.c.bias = p.bias, p.c.res = p.res, p.c.y = p.y;
    return p;
}

static void destroy(problem *p)
{
    free(p->x), free(p->w), free(p->bias), free(p->res), free(p->y), free(p->want), free(p->packed), free(p->scratch);
}

#endif
