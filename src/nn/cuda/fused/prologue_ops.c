/* Groups of batch norm's apply or backward apply and the 1 x 1 convolution that reads its result: by one GEMM that
 * computes its left operand (prologue_gemm.h), where that was faster when the plan was made. */
#include <stdio.h>
#include <stdlib.h>

#include "nn/cuda/fused/prologue_gemm.h"
#include "nn/cuda/groups.h"
#include "tensor/cuda/tune.h"

typedef struct prologue_state {
    int variant;            /* of the GEMM */
    size_t weight, partial; /* offsets in scratch: the transposed weight, partial sums */
} prologue_state;

/* ---- timing -------------------------------------------------------------------------------------- */

/* The first are read, the others written. */
enum { X, OTHER, X2, WEIGHT, NUMBERS, READ, SIDE = READ, Y, PARTIAL, BUFFERS };

typedef struct trial {
    cloob_ctx *ctx;
    device *d;
    prologue_gemm p;
    int sms;
    void *buffer[BUFFERS];
} trial;

static cloob_status trial_run(void *user)
{
    trial *t = user;
    return cuda_check(t->ctx, prologue_gemm_run(t->d->stream, &t->p, t->sms), "timing a fused GEMM");
}

/* Noise for everything the GEMM reads, and memory for what it writes. side: the operand is also written. */
static cloob_status trial_open(trial *t, bool side)
{
    prologue_gemm *p = &t->p;
    int64_t sums = p->dw ? p->k : 2; /* for each of n, from each part */
    int64_t rows = p->m * p->k, per_channel = p->k > p->n ? p->k : p->n;
    int64_t count[BUFFERS] = { rows,
                               p->prologue == PROLOGUE_APPLY ? 0 : rows,
                               p->dw ? p->m * p->n : 0,
                               p->n * p->k,
                               4 * per_channel,
                               side ? rows : 0,
                               p->m * p->n,
                               2 * sums * p->n * (t->sms + 1) };
    for (int i = 0; i < BUFFERS; i++) {
        if (!count[i]) continue;
        CLOOB_TRY(i < READ ? cuda_trial_noise(t->ctx, t->d, CLOOB_BF16, count[i], &t->buffer[i])
                           : cuda_trial_room(t->ctx, t->d, 2 * (size_t)count[i], &t->buffer[i]));
    }
    p->x = t->buffer[X], p->other = t->buffer[OTHER], p->b = t->buffer[WEIGHT], p->side = t->buffer[SIDE];
    p->x2 = t->buffer[X2], p->y = t->buffer[Y], p->partial = t->buffer[PARTIAL], p->count = 1.0f;
    p->mean = p->rstd = p->gain = p->bias = p->sums = p->pivot = t->buffer[NUMBERS];
    p->mean2 = p->rstd2 = p->gain2 = p->bias2 = t->buffer[NUMBERS];
    return CLOOB_OK;
}

typedef struct variant_choice {
    float ms;
    int32_t variant;
} variant_choice;

/* The next variant from v on that can do the sizes; PROLOGUE_VARIANTS: none. */
static int variant_from(prologue_gemm p, int v, int sms)
{
    for (p.variant = v; p.variant < PROLOGUE_VARIANTS; p.variant++)
        if (prologue_gemm_parts(&p, sms)) break;
    return p.variant;
}

/* False when there was no room to try. */
static bool try_variants(const op_env *env, const prologue_gemm *p, bool side, variant_choice *best)
{
    cuda_state *s = cuda_use(env->dev);
    trial t = { .ctx = env->ctx, .d = env->dev, .p = *p, .sms = s->sms };
    float ms;
    bool open = trial_open(&t, side) == CLOOB_OK;
    for (int v = variant_from(*p, 0, s->sms); v < PROLOGUE_VARIANTS && open; v = variant_from(*p, v + 1, s->sms)) {
        t.p.variant = v;
        if (cuda_time_against(env->ctx, env->dev, trial_run, &t, best->ms, &ms) == CLOOB_OK && ms < best->ms)
            *best = (variant_choice){ ms, v };
    }
    for (int i = 0; i < BUFFERS; i++) cuda_trial_free(env->dev, t.buffer[i]);
    return open;
}

/* The time of the GEMM, from the cache or by trials; ms is large when it cannot be tried. */
static variant_choice fused_time(const op_env *env, const prologue_gemm *p, bool side)
{
    char key[TUNE_KEY];
    variant_choice best = { 1e30f, -1 };
    tune_cache *cache = cuda_use(env->dev)->tune;
    if (variant_from(*p, 0, cuda_sms(env)) == PROLOGUE_VARIANTS) return best;
    snprintf(key, sizeof key, "prologue2-%d%s%s-%lldx%lldx%lld", (int)p->prologue, side ? "w" : "",
             p->plain ? "dwx"
             : p->dw  ? "dw"
                      : "",
             (long long)p->m, (long long)p->n, (long long)p->k);
    if (tune_get(cache, key, &best, sizeof best)) return best;
    if (try_variants(env, p, side, &best)) tune_put(cache, key, &best, sizeof best);
    return best;
}

/* ---- what both share ----------------------------------------------------------------------------- */

/* Asked for a fused GEMM: with one setting tiles of 128 rows where that works, with the other of 64; so that tests run
 * them all. */
static int asked_variant(const op_env *env, prologue_gemm p)
{
    static const int order[2][PROLOGUE_VARIANTS] = { { 5, 0, 3, 1, 2, 4 }, { 2, 4, 3, 1, 0, 5 } };
    const int *o = order[env->ctx->kernels.fused_gemm == FUSED_GEMM_2_CONSUMERS];
    for (int i = 0; i < PROLOGUE_VARIANTS; i++) {
        p.variant = o[i];
        if (prologue_gemm_parts(&p, cuda_sms(env))) return o[i];
    }
    return -1;
}

/* Which variant, or -1 when separate kernels are faster. *ms: in: their time; out: the time of the choice. extra_ms:
 * time needed in addition to the GEMM. */
static int variant_for(const op_env *env, const prologue_gemm *p, bool side, float *ms, float extra_ms)
{
    float separate_ms = *ms;
    fused_gemm_choice asked = env->ctx->kernels.fused_gemm;
    if (asked == FUSED_GEMM_NEVER || !cuda_has_hopper(env->dev)) return -1;
    if (asked != FUSED_GEMM_AUTO) return asked_variant(env, *p);
    variant_choice c = fused_time(env, p, side);
    ctx_log(env->ctx, CLOOB_LOG_DEBUG,
            "GEMM with prologue %d%s, %lld x %lld x %lld: %.4f ms by variant %d, one after the other %.4f",
            (int)p->prologue, p->dw ? " and dw" : "", (long long)p->m, (long long)p->n, (long long)p->k,
            (double)(c.ms + extra_ms), c.variant, (double)separate_ms);
    if (c.ms + extra_ms < separate_ms) *ms = c.ms + extra_ms;
    return c.ms + extra_ms < separate_ms ? c.variant : -1;
}

/* Claims the group where the GEMM helps, and lays out scratch: numbers for the end of batch norm's sums, the weight,
 * the sums. side: the operand is also written; extra_ms: time needed in addition to the GEMM. */
static cloob_status claim(const op_env *env, op_group *g, prologue_gemm p, bool side, float extra_ms, bool *claims)
{
    prologue_state s = { .variant = variant_for(env, &p, side, &g->ms, extra_ms) };
    if (s.variant < 0) return CLOOB_OK;
    p.variant = s.variant;
    size_t parts = (size_t)prologue_gemm_parts(&p, cuda_sms(env)), n = (size_t)p.n * sizeof(float);
    s.weight = cuda_align(3 * n);
    s.partial = s.weight + cuda_align((size_t)(p.n * p.k) * 2);
    g->scratch_bytes = s.partial + parts * (p.dw ? (size_t)p.k : 2) * n;
    return group_claim_cuda(env, g, &s, sizeof s, claims);
}

static cloob_status run_fused(const op_env *env, const op_group *g, const prologue_gemm *p)
{
    return cuda_check(env->ctx, prologue_gemm_run(env->stream, p, cuda_sms(env)), g->kernel->name);
}

/* ---- bn_apply, conv2d, bn_stats ------------------------------------------------------------------ */

/* Two members bn_apply: the first makes the residual of the second. */
static prologue_gemm apply_gemm(const op_group *g)
{
    bool both = g->member[1]->op == OP_BN_APPLY;
    const op_args *apply = g->member[both], *shortcut = g->member[0], *conv = group_find(g, OP_CONV2D),
                  *stats = group_find(g, OP_BN_STATS);
    prologue_gemm p = { .prologue = both                    ? PROLOGUE_BOTH
                                    : op_has(&apply->in[5]) ? PROLOGUE_ADD
                                                            : PROLOGUE_APPLY,
                        .stats = true,
                        .m = tensor_rows(&conv->out[0]),
                        .n = tensor_cols(&conv->out[0]),
                        .k = tensor_cols(&apply->in[0]),
                        .x = apply->in[0].data,
                        .other = both ? shortcut->in[0].data : apply->in[5].data,
                        .b = conv->in[1].data,
                        .mean = apply->in[1].data,
                        .rstd = apply->in[2].data,
                        .gain = apply->in[3].data,
                        .bias = apply->in[4].data,
                        .pivot = stats->in[1].data, /* the running mean is subtracted before summing */
                        .side = apply->out[0].data,
                        .y = conv->out[0].data };
    if (both) {
        p.mean2 = shortcut->in[1].data, p.rstd2 = shortcut->in[2].data;
        p.gain2 = shortcut->in[3].data, p.bias2 = shortcut->in[4].data;
    }
    return p;
}

cloob_status apply_conv_prepare_cuda(const op_env *env, op_group *g, bool *claims)
{
    bool both = g->member[1]->op == OP_BN_APPLY;
    const op_args *apply = g->member[both], *shortcut = both ? g->member[0] : NULL, *conv = group_find(g, OP_CONV2D);
    prologue_gemm p = apply_gemm(g);
    if (!group_is_point(conv) || group_inner(g, conv) || !apply->attr.relu || apply->attr.pool || p.m == 0 ||
        !group_inner(g, shortcut))
        return CLOOB_OK;
    return claim(env, g, p, !group_inner(g, apply), 0.0f, claims);
}

cloob_status apply_conv_cuda(const op_env *env, const op_group *g)
{
    const prologue_state *s = g->state;
    op_args stats = group_call(g, OP_BN_STATS);
    prologue_gemm p = apply_gemm(g);
    p.variant = s->variant, p.partial = group_scratch(g, s->partial);
    CLOOB_TRY(run_fused(env, g, &p));
    return bn_stats_finish(env, &stats, p.partial, prologue_gemm_parts(&p, cuda_sms(env)), p.pivot);
}

/* ---- bn_bwd_apply, conv2d_dx, and perhaps bn_apply, conv2d_dw ------------------------------------ */

/* With conv2d_dw also the weight's gradient, whose other factor is x2 or bn_apply of x2. */
static prologue_gemm dx_gemm(const op_env *env, const op_group *g)
{
    const op_args *back = group_find(g, OP_BN_BWD_APPLY), *dx = group_find(g, OP_CONV2D_DX),
                  *apply = group_find(g, OP_BN_APPLY), *dw = group_find(g, OP_CONV2D_DW);
    int64_t rows = tensor_rows(&back->in[1]);
    prologue_gemm p = { .prologue = PROLOGUE_DX,
                        .dw = dw != NULL,
                        .plain = dw && !apply,
                        .m = rows,
                        .n = tensor_cols(&dx->out[0]),
                        .k = tensor_cols(&back->in[1]),
                        .x = back->in[1].data,
                        .other = back->in[0].data,
                        .mean = back->in[2].data,
                        .rstd = back->in[3].data,
                        .gain = back->in[4].data,
                        .bias = back->in[5].data,
                        .sums = back->in[6].data,
                        .count = (float)rows * (float)(env->sum_ranks ? env->ranks : 1),
                        .side = dw ? NULL : back->out[0].data,
                        .y = dx->out[0].data };
    if (dw) p.x2 = apply ? apply->in[0].data : dw->in[1].data;
    if (apply) {
        p.mean2 = apply->in[1].data, p.rstd2 = apply->in[2].data;
        p.gain2 = apply->in[3].data, p.bias2 = apply->in[4].data;
    }
    return p;
}

cloob_status bn_bwd_conv_prepare_cuda(const op_env *env, op_group *g, bool *claims)
{
    const op_args *back = group_find(g, OP_BN_BWD_APPLY), *apply = group_find(g, OP_BN_APPLY),
                  *dx = group_find(g, OP_CONV2D_DX);
    prologue_gemm p = dx_gemm(env, g);
    float extra_ms = cuda_pass_ms(0.0); /* the weight is transposed, and partial sums are added */
    if (p.dw) extra_ms += cuda_pass_ms(2.0 * cuda_sms(env) * (double)(p.k * p.n) * sizeof(float));
    if (!group_is_point(dx) || group_inner(g, dx) || back->attr.relu || back->attr.pool || op_has(&back->in[7]) ||
        p.m == 0)
        return CLOOB_OK;
    if (p.dw && (!group_inner(g, back) || !group_inner(g, apply) || (apply && !apply->attr.relu))) return CLOOB_OK;
    return claim(env, g, p, !p.dw, extra_ms, claims);
}

cloob_status bn_bwd_conv_cuda(const op_env *env, const op_group *g)
{
    const prologue_state *s = g->state;
    prologue_gemm p = dx_gemm(env, g);
    p.variant = s->variant;
    p.b = group_scratch(g, s->weight), p.partial = group_scratch(g, s->partial);
    int parts = prologue_gemm_parts(&p, cuda_sms(env));
    CLOOB_TRY(group_transpose_weight(env, g, s->weight, OP_CONV2D_DX));
    CLOOB_TRY(run_fused(env, g, &p));
    if (!p.dw) return CLOOB_OK;
    return colsum_finish(env, g->kernel->name, group_find(g, OP_CONV2D_DW)->out[0].data, p.partial, parts, p.k * p.n);
}
