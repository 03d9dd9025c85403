/* Groups of a 1 x 1 convolution and the pass over its result, conv2d then bn_stats, or conv2d_dx then bn_bwd_reduce: by
 * one GEMM whose epilogue does the second's work before the result leaves the registers (fused_gemm_kernels.h), where
 * that was faster when the plan was made. */
#include <stdio.h>
#include <stdlib.h>

#include "nn/cuda/groups.h"
#include "nn/cuda/fused_gemm_kernels.h"
#include "tensor/cuda/tune.h"

typedef struct fused_state {
    int consumers;                      /* of the GEMM */
    size_t weight, partial, dw_partial; /* offsets in scratch: the transposed weight, partial sums */
} fused_state;

/* ---- timing -------------------------------------------------------------------------------------- */

enum { A, B, X, OTHER, COLUMN, READ, Y = READ, PARTIAL, DW_PARTIAL, BUFFERS }; /* the first are read */

typedef struct trial {
    cloob_ctx *ctx;
    device *d;
    fused_gemm p;
    int sms;
    void *buffer[BUFFERS];
} trial;

static cloob_status trial_run(void *user)
{
    trial *t = user;
    return cuda_check(t->ctx, fused_gemm_run(t->d->stream, &t->p, t->sms), "timing a fused GEMM");
}

/* Buffers for every arrangement. */
static cloob_status trial_open(trial *t)
{
    fused_gemm *p = &t->p;
    int64_t big = p->m * p->n, reads = p->epilogue == EPILOGUE_REDUCE ? big : 0;
    int64_t sums = 2 * p->n * (t->sms + 1); /* floats, as bf16 */
    int64_t count[BUFFERS] = { p->m * p->k, p->n * p->k, reads,    2 * reads,
                               2 * p->n,    big,         2 * sums, p->dw ? p->k * sums : 0 };
    for (int i = 0; i < BUFFERS; i++) {
        if (!count[i]) continue;
        CLOOB_TRY(i < READ ? cuda_trial_noise(t->ctx, t->d, CLOOB_BF16, count[i], &t->buffer[i])
                           : cuda_trial_room(t->ctx, t->d, 2 * (size_t)count[i], &t->buffer[i]));
    }
    p->a = t->buffer[A], p->b = t->buffer[B], p->x = t->buffer[X], p->other = t->buffer[OTHER];
    p->mask = reads ? (char *)t->buffer[OTHER] + 2 * big : NULL;
    p->pooled = reads ? (char *)t->buffer[OTHER] + big : NULL; /* other is a fourth as large */
    p->column = t->buffer[COLUMN], p->y = t->buffer[Y];
    p->partial = t->buffer[PARTIAL], p->dw_partial = t->buffer[DW_PARTIAL];
    return CLOOB_OK;
}

static void trial_close(trial *t)
{
    for (int i = 0; i < BUFFERS; i++) cuda_trial_free(t->d, t->buffer[i]);
}

typedef struct consumer_choice {
    float ms;
    int32_t consumers;
} consumer_choice;

static void try_consumers(trial *t, int consumers, consumer_choice *best)
{
    const fused_gemm *p = &t->p;
    float ms;
    t->p.consumers = consumers;
    if (fused_gemm_parts(p, t->sms) == 0 || cuda_time_against(t->ctx, t->d, trial_run, t, best->ms, &ms) != CLOOB_OK)
        return;
    ctx_log(t->ctx, CLOOB_LOG_DEBUG, "fused GEMM of %lld x %lld, arrangement %d: %.4f ms", (long long)p->n,
            (long long)p->k, consumers, (double)ms);
    if (ms < best->ms) *best = (consumer_choice){ ms, consumers };
}

/* The time of a fused GEMM, from the cache or by trials; ms is large when it cannot be tried. */
static consumer_choice fused_time(const op_env *env, const fused_gemm *p)
{
    char key[TUNE_KEY];
    consumer_choice best = { 1e30f, 0 };
    tune_cache *cache = cuda_use(env->dev)->tune;
    snprintf(key, sizeof key, "fused3-%d%s%s%lld-%lldx%lldx%lld", (int)p->epilogue, p->dw ? "dw" : "",
             p->pools ? "p" : "", (long long)p->line, (long long)p->m, (long long)p->n, (long long)p->k);
    if (tune_get(cache, key, &best, sizeof best)) return best;
    trial t = { .ctx = env->ctx, .d = env->dev, .p = *p, .sms = cuda_sms(env) };
    bool opened = trial_open(&t) == CLOOB_OK;
    for (int i = 2; i <= 4 && opened; i++) try_consumers(&t, i, &best);
    trial_close(&t);
    if (opened) tune_put(cache, key, &best, sizeof best);
    return best;
}

/* ---- what both share ----------------------------------------------------------------------------- */

/* Number of consumers, or 0 if the fused GEMM does not help. *ms: in: the time of separate calls; out: of the
 * choice. */
static int consumers_for(const op_env *env, const fused_gemm *p, float *ms)
{
    float separate_ms = *ms;
    fused_gemm_choice asked = env->ctx->kernels.fused_gemm;
    if (asked == FUSED_GEMM_NEVER || !cuda_has_hopper(env->dev) || !fused_gemm_takes(p->n, p->k)) return 0;
    if (asked != FUSED_GEMM_AUTO) {
        fused_gemm wanted = *p;
        wanted.consumers = asked == FUSED_GEMM_4_CONSUMERS ? 4 : p->n % 256 ? FUSED_GEMM_NARROW : 2; /* so all run */
        return fused_gemm_parts(&wanted, cuda_sms(env)) ? wanted.consumers : 0;
    }
    consumer_choice c = fused_time(env, p);
    ctx_log(env->ctx, CLOOB_LOG_DEBUG,
            "fused GEMM %d%s, %lld x %lld x %lld: %.4f ms with %d consumers, separate calls %.4f", (int)p->epilogue,
            p->dw ? " and dw" : "", (long long)p->m, (long long)p->n, (long long)p->k, (double)c.ms, c.consumers,
            (double)separate_ms);
    if (c.ms < separate_ms) *ms = c.ms;
    return c.ms < separate_ms ? c.consumers : 0;
}

/* Claims the group where the GEMM helps, and lays out scratch: numbers for the end of batch norm's sums, the weight,
 * the sums. */
static cloob_status claim(const op_env *env, op_group *g, fused_gemm p, bool *claims)
{
    fused_state s = { .consumers = consumers_for(env, &p, &g->ms) };
    if (!s.consumers) return CLOOB_OK;
    p.consumers = s.consumers;
    size_t parts = (size_t)fused_gemm_parts(&p, cuda_sms(env));
    s.weight = cuda_align(3 * (size_t)p.n * sizeof(float));
    s.partial = s.weight + cuda_align((size_t)(p.n * p.k) * 2);
    s.dw_partial = s.partial + cuda_align(parts * 2 * (size_t)p.n * sizeof(float));
    g->scratch_bytes = p.dw ? s.dw_partial + parts * (size_t)(p.k * p.n) * sizeof(float)
                            : s.partial + parts * 2 * (size_t)p.n * sizeof(float);
    return group_claim_cuda(env, g, &s, sizeof s, claims);
}

static cloob_status run_fused(const op_env *env, const op_group *g, const fused_gemm *p)
{
    return cuda_check(env->ctx, fused_gemm_run(env->stream, p, cuda_sms(env)), g->kernel->name);
}

/* ---- conv2d, then statistics --------------------------------------------------------------------- */

static fused_gemm stats_gemm(const op_group *g)
{
    const op_args *conv = group_find(g, OP_CONV2D), *stats = group_find(g, OP_BN_STATS);
    return (fused_gemm){ .epilogue = EPILOGUE_STATS,
                         .m = tensor_rows(&conv->out[0]),
                         .n = tensor_cols(&conv->out[0]),
                         .k = conv->in[0].dim[3],
                         .a = conv->in[0].data,
                         .b = conv->in[1].data,
                         .column = stats->in[1].data, /* the running mean is subtracted before summing */
                         .y = conv->out[0].data };
}

cloob_status conv_stats_prepare_cuda(const op_env *env, op_group *g, bool *claims)
{
    const op_args *conv = group_find(g, OP_CONV2D);
    return group_is_point(conv) && !group_inner(g, conv) ? claim(env, g, stats_gemm(g), claims) : CLOOB_OK;
}

cloob_status conv_stats_cuda(const op_env *env, const op_group *g)
{
    const fused_state *s = g->state;
    op_args stats = group_call(g, OP_BN_STATS);
    fused_gemm p = stats_gemm(g);
    p.consumers = s->consumers, p.partial = group_scratch(g, s->partial);
    CLOOB_TRY(run_fused(env, g, &p));
    return bn_stats_finish(env, &stats, p.partial, fused_gemm_parts(&p, cuda_sms(env)), p.column);
}

/* ---- conv2d_dx, then batch norm's backward reduction --------------------------------------------- */

/* With the weight's gradient where conv2d_dw is a member; with avgpool2_bwd the other gradient is still behind a pool,
 * and with avgpool2 y is pooled, too. */
static fused_gemm reduce_gemm(const op_group *g)
{
    const op_args *dx = group_find(g, OP_CONV2D_DX), *reduce = group_find(g, OP_BN_BWD_REDUCE),
                  *spread = group_find(g, OP_AVGPOOL2_BWD), *pool = group_find(g, OP_AVGPOOL2);
    const tensor *x = &reduce->in[2], *other = &reduce->in[reduce->in[0].data == dx->out[0].data];
    return (fused_gemm){ .epilogue = EPILOGUE_REDUCE,
                         .dw = group_find(g, OP_CONV2D_DW) != NULL,
                         .m = tensor_rows(x),
                         .n = tensor_cols(x),
                         .k = dx->in[0].dim[3],
                         .line = spread ? x->dim[2] : 0,
                         .pools = spread && pool,
                         .pooled = pool ? pool->out[0].data : NULL,
                         .a = dx->in[0].data,
                         .x = x->data,
                         .other = spread ? spread->in[0].data : other->data,
                         .mask = reduce->in[7].data,
                         .column = reduce->in[3].data,
                         .y = reduce->out[3].data };
}

cloob_status conv_dx_reduce_prepare_cuda(const op_env *env, op_group *g, bool *claims)
{
    const op_args *dx = group_find(g, OP_CONV2D_DX), *reduce = group_find(g, OP_BN_BWD_REDUCE),
                  *spread = group_find(g, OP_AVGPOOL2_BWD), *pool = group_find(g, OP_AVGPOOL2);
    bool even = !spread || (reduce->in[2].dim[1] % 2 == 0 && reduce->in[2].dim[2] % 2 == 0);
    if (!group_is_point(dx) || !reduce->attr.relu || reduce->attr.pool || !op_has(&reduce->in[1]) ||
        !op_has(&reduce->in[7]) || !op_has(&reduce->out[3]) || op_has(&reduce->out[4]))
        return CLOOB_OK;
    if (!even || (pool && !spread) || !group_inner(g, dx) || !group_inner(g, spread)) return CLOOB_OK;
    return claim(env, g, reduce_gemm(g), claims);
}

cloob_status conv_dx_reduce_cuda(const op_env *env, const op_group *g)
{
    const fused_state *s = g->state;
    op_args reduce = group_call(g, OP_BN_BWD_REDUCE);
    fused_gemm p = reduce_gemm(g);
    p.consumers = s->consumers;
    p.b = group_scratch(g, s->weight), p.partial = group_scratch(g, s->partial);
    if (p.dw) p.dw_partial = group_scratch(g, s->dw_partial);
    int parts = fused_gemm_parts(&p, cuda_sms(env));
    CLOOB_TRY(group_transpose_weight(env, g, s->weight, OP_CONV2D_DX));
    CLOOB_TRY(run_fused(env, g, &p));
    if (p.dw)
        CLOOB_TRY(colsum_finish(env, g->kernel->name, group_find(g, OP_CONV2D_DW)->out[0].data, p.dw_partial, parts,
                                p.k * p.n));
    return bn_reduce_finish(env, &reduce, p.partial, parts);
}
