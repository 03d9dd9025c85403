/* Ranks on a GPU: one product and two counts per tile of similarities. */
#include "tensor/cuda/gemm.h" /* first: its vendor's header has arguments called rows */

#include "eval/retrieval.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "eval/cuda/kernels.h"

enum { TILE = 8192, SEND_ROWS = 16384 }; /* a tile of 256 MiB: products at full speed, counts bound by memory */

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

typedef struct gpu_ranks {
    cloob_ctx *ctx;
    device *d;
    const rank_pass *p;
    int64_t tile, D, ld;
    float *a, *b;       /* (rows, ld) on the device, up to a whole number of tiles */
    float *s, *staging; /* (tile, tile) on the device; (SEND_ROWS, ld) on the host */
    double *matched;
    unsigned long long *above[2];
    unsigned char *tied[2];
    gemm_plan *plan;
    void *workspace;
} gpu_ranks;

/* ---- rows to the device -------------------------------------------------------------------------- */

typedef struct reading {
    const unit_rows *u;
    float *to;
    int64_t first, ld;
} reading;

static void read_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const reading *r = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) unit_rows_read(r->u, r->first + i, 1, r->to + i * r->ld);
}

static cloob_status send(gpu_ranks *g, const unit_rows *u, float *to)
{
    for (int64_t at = 0; at < u->src.N; at += SEND_ROWS) {
        int64_t part = min64(SEND_ROWS, u->src.N - at);
        reading r = { u, g->staging, at, g->ld };
        pool_for(g->ctx, part, 64, read_range, &r);
        CLOOB_TRY(g->d->to_device(g->ctx, g->d, to + at * g->ld, g->staging, (size_t)(part * g->ld) * sizeof *to));
    }
    return CLOOB_OK;
}

/* ---- life cycle ---------------------------------------------------------------------------------- */

static cloob_status take(gpu_ranks *g, void **out, size_t bytes, const char *what)
{
    return g->d->alloc(g->ctx, g->d, bytes, what, out);
}

static size_t side_bytes(const gpu_ranks *g, const unit_rows *u)
{
    return (size_t)(up(u->src.N, g->tile) * g->ld) * sizeof(float);
}

static cloob_status plan_product(gpu_ranks *g)
{
    gemm_shape shape = { .m = g->tile,
                         .n = g->tile,
                         .k = g->D,
                         .tb = true,
                         .lda = g->ld,
                         .ldb = g->ld,
                         .in = CLOOB_F32,
                         .out = CLOOB_F32,
                         .alpha = 1 };
    CLOOB_TRY(gemm_plan_create(g->ctx, g->d, &shape, &g->plan));
    return take(g, &g->workspace, gemm_plan_workspace(g->plan), "a product");
}

static cloob_status create(gpu_ranks *g)
{
    int64_t n = g->p->a->src.N;
    size_t tile_bytes = (size_t)(g->tile * g->tile) * sizeof(float),
           staging = (size_t)(SEND_ROWS * g->ld) * sizeof(float);
    g->staging = calloc(1, staging); /* what pads a row stays 0 */
    if (!g->staging) return ctx_no_memory(g->ctx, staging, "embeddings on their way");
    CLOOB_TRY(plan_product(g));
    size_t sides = side_bytes(g, g->p->a) + side_bytes(g, g->p->b);
    ctx_log(g->ctx, CLOOB_LOG_INFO, "plan: %lld x %lld similarities in tiles of %lld x %lld on %s, %.2f GiB there",
            (long long)n, (long long)g->p->b->src.N, (long long)g->tile, (long long)g->tile, g->d->name,
            (double)(tile_bytes + (size_t)n * 26 + sides) / 1073741824.0);
    CLOOB_TRY(take(g, (void **)&g->s, tile_bytes, "similarities"));
    CLOOB_TRY(take(g, (void **)&g->matched, (size_t)n * sizeof *g->matched, "ranks"));
    for (int k = 0; k < 2; k++) {
        CLOOB_TRY(take(g, (void **)&g->above[k], (size_t)n * sizeof *g->above[k], "ranks"));
        CLOOB_TRY(take(g, (void **)&g->tied[k], (size_t)n, "ranks"));
    }
    CLOOB_TRY(g->d->to_device(g->ctx, g->d, g->matched, g->p->matched, (size_t)n * sizeof *g->matched));
    CLOOB_TRY(take(g, (void **)&g->a, side_bytes(g, g->p->a), "embeddings"));
    CLOOB_TRY(take(g, (void **)&g->b, side_bytes(g, g->p->b), "embeddings"));
    CLOOB_TRY(send(g, g->p->a, g->a));
    return send(g, g->p->b, g->b);
}

static void destroy(gpu_ranks *g)
{
    void *held[] = { g->a, g->b, g->s, g->matched, g->above[0], g->above[1], g->tied[0], g->tied[1], g->workspace };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (held[i]) g->d->free(g->d, held[i]);
    gemm_plan_destroy(g->plan);
    free(g->staging);
}

/* ---- counting ------------------------------------------------------------------------------------ */

static cloob_status count_tile(gpu_ranks *g, rank_tile *t)
{
    CLOOB_TRY(gemm_run(g->ctx, g->d, g->plan, g->d->stream, g->s, t->a, t->b, NULL, NULL, g->workspace));
    CLOOB_TRY(eval_rank_rows(g->ctx, g->d->stream, t));
    return g->p->both ? eval_rank_columns(g->ctx, g->d->stream, t) : CLOOB_OK;
}

static cloob_status count_all(gpu_ranks *g)
{
    int64_t na = g->p->a->src.N, nb = g->p->b->src.N;
    rank_tile t = { .s = g->s, .ld = g->tile, .ldx = g->ld, .D = g->D, .step = g->p->step, .matched = g->matched };
    memcpy(t.above, g->above, sizeof t.above);
    memcpy(t.tied, g->tied, sizeof t.tied);
    for (t.i0 = 0; t.i0 < na; t.i0 += g->tile) {
        t.ni = min64(g->tile, na - t.i0);
        t.a = g->a + t.i0 * g->ld;
        for (t.j0 = 0; t.j0 < nb; t.j0 += g->tile) {
            t.nj = min64(g->tile, nb - t.j0);
            t.b = g->b + t.j0 * g->ld;
            CLOOB_TRY(count_tile(g, &t));
        }
    }
    return CLOOB_OK;
}

static cloob_status bring_home(gpu_ranks *g)
{
    size_t n = (size_t)g->p->a->src.N;
    for (int k = 0; k < (g->p->both ? 2 : 1); k++) {
        CLOOB_TRY(g->d->to_host(g->ctx, g->d, g->p->above[k], g->above[k], n * sizeof *g->p->above[k]));
        CLOOB_TRY(g->d->to_host(g->ctx, g->d, g->p->tied[k], g->tied[k], n));
    }
    return CLOOB_OK;
}

cloob_status ranks_gpu(cloob_ctx *ctx, device *d, const rank_pass *p)
{
    int64_t D = p->a->src.D, largest = p->a->src.N > p->b->src.N ? p->a->src.N : p->b->src.N;
    gpu_ranks g = {
        .ctx = ctx, .d = d, .p = p, .D = D, .ld = up(D, 4), .tile = min64(TILE, up(largest, RANK_STRETCH))
    };
    cloob_status status = create(&g);
    if (status == CLOOB_OK) status = count_all(&g);
    if (status == CLOOB_OK) status = bring_home(&g);
    destroy(&g);
    return status;
}
