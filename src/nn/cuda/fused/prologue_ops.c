/* Batch norm's apply or backward apply and the 1 x 1 convolution that reads its result: by one GEMM that makes its left
 * factor itself (prologue_gemm.h), or one after the other, whichever was faster when the plan was made. */
#include <stdio.h>
#include <stdlib.h>

#include "nn/cuda/fused/prologue_gemm.h"
#include "nn/cuda/fused_gemm_kernels.h"
#include "nn/cuda/kernels.h"
#include "tensor/cuda/tune.h"

typedef struct prologue_state {
    op_args second, dw, reduce; /* plans of the convolution, of its weight's gradient and of the reduction behind it,
                                   for when they run by themselves */
    size_t weight, partial, reduced; /* offsets in scratch: the transposed weight, partial sums */
    int32_t variant;                 /* of the GEMM; -1: one after the other */
    bool takes_dw, reduces;          /* the GEMM does the weight's gradient as well; and the reduction */
    bool pools;                      /* the GEMM does the pool as well */
} prologue_state;

static void release(const op_env *env, op_args *a, cuda_release_fn *second)
{
    prologue_state *s = a->state;
    if (s && s->second.state) second(env, &s->second);
    if (s && s->dw.state) conv_release_cuda(env, &s->dw);
    free(s);
    a->state = NULL;
}

void apply_conv_release_cuda(const op_env *env, op_args *a) { release(env, a, fused_release_cuda); }
void bn_bwd_conv_release_cuda(const op_env *env, op_args *a) { release(env, a, conv_release_cuda); }

static void *at(const op_args *a, size_t offset) { return (char *)a->scratch + offset; }

static int sms_of(const op_env *env) { return ((const cuda_state *)env->dev->state)->sms; }

/* ---- timing -------------------------------------------------------------------------------------- */

/* The first are read, the others written. */
enum { X, OTHER, X2, WEIGHT, NUMBERS, READ, SIDE = READ, Y, PARTIAL, REDUCED, POOLED, BUFFERS };

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

/* Noise for everything the GEMM reads, and room for what it writes. side: the factor is written out. */
static cloob_status trial_open(trial *t, bool side)
{
    prologue_gemm *p = &t->p;
    int64_t sums = p->dw ? p->k : 2; /* for each of n, from each part */
    int64_t rows = p->m * p->k, numbers = p->k > p->n ? p->k : p->n;
    int64_t count[BUFFERS] = { rows,
                               p->prologue == PROLOGUE_APPLY ? 0 : rows,
                               p->dw ? p->m * p->n : 0,
                               p->n * p->k,
                               4 * numbers,
                               side ? rows : 0,
                               p->m * p->n,
                               2 * sums * p->n * (t->sms + 1),
                               p->reduce ? 4 * REDUCED_PARTS * p->n * t->sms : 0,
                               p->pools ? rows / 4 : 0 };
    for (int i = 0; i < BUFFERS; i++) {
        if (!count[i]) continue;
        CLOOB_TRY(i < READ ? cuda_trial_noise(t->ctx, t->d, CLOOB_BF16, count[i], &t->buffer[i])
                           : cuda_trial_room(t->ctx, t->d, 2 * (size_t)count[i], &t->buffer[i]));
    }
    p->x = t->buffer[X], p->other = t->buffer[OTHER], p->b = t->buffer[WEIGHT], p->side = t->buffer[SIDE];
    p->x2 = t->buffer[X2], p->y = t->buffer[Y], p->partial = t->buffer[PARTIAL], p->count = 1.0f;
    p->reduced = t->buffer[REDUCED], p->pooled = t->buffer[POOLED];
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

/* How fast the GEMM is, from the cache or by trials; ms large when it cannot be tried. */
static variant_choice fused_time(const op_env *env, const prologue_gemm *p, bool side)
{
    char key[TUNE_KEY];
    variant_choice best = { 1e30f, -1 };
    tune_cache *cache = cuda_use(env->dev)->tune;
    if (variant_from(*p, 0, sms_of(env)) == PROLOGUE_VARIANTS) return best;
    snprintf(key, sizeof key, "prologue2-%d%s%s-%lldx%lldx%lld", (int)p->prologue, side ? "w" : "",
             p->plain    ? "dwx"
             : p->reduce ? "dwr"
             : p->dw     ? "dw"
             : p->pools  ? "pool"
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
    const int *o = order[env->ctx->kernels.fused_gemm == CLOOB_FUSED_GEMM_2_TEAMS];
    for (int i = 0; i < PROLOGUE_VARIANTS; i++) {
        p.variant = o[i];
        if (prologue_gemm_parts(&p, sms_of(env))) return o[i];
    }
    return -1;
}

/* Which variant, or -1 when one after the other is better. *ms: in, of that; out, of what was chosen. extra_ms: what
 * the GEMM needs beside itself. */
static int variant_for(const op_env *env, const prologue_gemm *p, bool side, float *ms, float extra_ms)
{
    float separate_ms = *ms;
    cloob_fused_gemm asked = env->ctx->kernels.fused_gemm;
    if (asked == CLOOB_FUSED_GEMM_NEVER || !cuda_has_hopper(env->dev)) return -1;
    if (asked != CLOOB_FUSED_GEMM_AUTO) return asked_variant(env, *p);
    variant_choice c = fused_time(env, p, side);
    ctx_log(env->ctx, CLOOB_LOG_DEBUG,
            "GEMM with prologue %d%s, %lld x %lld x %lld: %.4f ms by variant %d, one after the other %.4f",
            (int)p->prologue,
            p->reduce  ? ", dw and reduction"
            : p->dw    ? " and dw"
            : p->pools ? " and pool"
                       : "",
            (long long)p->m, (long long)p->n, (long long)p->k, (double)(c.ms + extra_ms), c.variant,
            (double)separate_ms);
    if (c.ms + extra_ms < separate_ms) *ms = c.ms + extra_ms;
    return c.ms + extra_ms < separate_ms ? c.variant : -1;
}

static cloob_status state_make(const op_env *env, op_args *a, prologue_state **out)
{
    a->state = *out = calloc(1, sizeof **out);
    return *out ? CLOOB_OK : ctx_no_memory(env->ctx, sizeof **out, "a fused GEMM's plan");
}

/* Lays out scratch: for the ops by themselves, which begin at its start, or the weight and the sums. */
static void lay_out(const op_env *env, op_args *a, prologue_state *s, prologue_gemm p)
{
    p.variant = s->variant, p.dw = s->takes_dw, p.reduce = s->reduces, p.pools = s->pools;
    size_t parts = s->variant < 0 ? 0 : (size_t)prologue_gemm_parts(&p, sms_of(env)), n = (size_t)p.n * sizeof(float);
    s->weight = cuda_align(3 * (size_t)p.n * sizeof(float)); /* the end of batch norm's sums uses the start */
    s->partial = s->weight + cuda_align((size_t)(p.n * p.k) * 2);
    s->reduced = s->partial + cuda_align(parts * (p.dw ? (size_t)p.k : 2) * n);
    a->scratch_bytes = s->second.scratch_bytes;
    if (s->variant >= 0) a->scratch_bytes = s->reduced + (p.reduce ? parts * REDUCED_PARTS * 2 * n : 0);
    if (!s->takes_dw && s->dw.scratch_bytes > a->scratch_bytes) a->scratch_bytes = s->dw.scratch_bytes;
    if (!s->reduces && s->reduce.scratch_bytes > a->scratch_bytes) a->scratch_bytes = s->reduce.scratch_bytes;
}

/* A call with scratch and data of the fused one, and its own plan. */
static op_args with_plan(op_args call, const op_args *plan)
{
    call.state = plan->state;
    return call;
}

static cloob_status run_fused(const op_env *env, const char *op, const prologue_gemm *p)
{
    return cuda_check(env->ctx, prologue_gemm_run(env->stream, p, sms_of(env)), op);
}

/* ---- bn_apply, then conv_stats ------------------------------------------------------------------- */

static prologue_gemm apply_gemm(const op_args *a, int variant)
{
    return (prologue_gemm){ .prologue = op_has(&a->in[9])   ? PROLOGUE_BOTH
                                        : op_has(&a->in[5]) ? PROLOGUE_ADD
                                                            : PROLOGUE_APPLY,
                            .stats = true,
                            .variant = variant,
                            .m = tensor_rows(&a->out[0]),
                            .n = tensor_cols(&a->out[0]),
                            .k = tensor_cols(&a->in[0]),
                            .x = a->in[0].data,
                            .other = a->in[5].data,
                            .b = a->in[6].data,
                            .mean = a->in[1].data,
                            .rstd = a->in[2].data,
                            .gain = a->in[3].data,
                            .bias = a->in[4].data,
                            .mean2 = a->in[9].data,
                            .rstd2 = a->in[10].data,
                            .gain2 = a->in[11].data,
                            .bias2 = a->in[12].data,
                            .pivot = a->in[7].data, /* the running mean is what is taken off before summing */
                            .side = a->attr.alone ? NULL : a->out[3].data,
                            .pooled = a->out[4].data,
                            .line = a->in[0].dim[2],
                            .y = a->out[0].data };
}

/* Whether the GEMM also pools; ms: without that. */
static void pool_prepare(const op_env *env, const op_args *a, prologue_state *s, float ms)
{
    prologue_gemm p = apply_gemm(a, 0);
    p.pools = true;
    ms += cuda_pass_ms(1.25 * (double)tensor_bytes(&a->in[0]));
    int variant = variant_for(env, &p, true, &ms, 0.0f);
    s->pools = variant >= 0;
    if (s->pools) s->variant = variant;
}

cloob_status apply_conv_stats_prepare_cuda(const op_env *env, op_args *a)
{
    prologue_state *s;
    prologue_gemm p = apply_gemm(a, 0);
    double passes = p.prologue == PROLOGUE_APPLY ? 2.0 : 3.0;
    float ms;
    CLOOB_TRY(state_make(env, a, &s));
    s->variant = -1;
    s->second = fused_applied_conv(a);
    CLOOB_TRY(conv_stats_prepare_cuda(env, &s->second));
    ms = conv_stats_plan_ms(&s->second) + cuda_pass_ms(passes * (double)tensor_bytes(&a->in[0]));
    if (a->in[0].dtype == CLOOB_BF16 && p.m > 0) {
        s->variant = variant_for(env, &p, !a->attr.alone, &ms, 0.0f);
        if (a->attr.pooled) pool_prepare(env, a, s, ms);
    }
    lay_out(env, a, s, p);
    return CLOOB_OK;
}

cloob_status apply_conv_stats_cuda(const op_env *env, const op_args *a)
{
    const prologue_state *s = a->state;
    op_args apply = fused_apply(a), conv = with_plan(fused_applied_conv(a), &s->second), stats = fused_stats(&conv);
    op_args pool = fused_applied_pool(a);
    prologue_gemm p = apply_gemm(a, s->variant);
    p.partial = at(a, s->partial), p.pools = s->pools;
    if (s->variant >= 0) CLOOB_TRY(run_fused(env, "apply_conv_stats", &p));
    else CLOOB_TRY(p.prologue == PROLOGUE_BOTH ? bn_apply_both_cuda(env, &apply) : bn_apply_cuda(env, &apply));
    if (a->attr.pooled && !s->pools) CLOOB_TRY(avgpool2_cuda(env, &pool));
    if (s->variant < 0) return conv_stats_cuda(env, &conv);
    return bn_stats_finish(env, &stats, p.partial, prologue_gemm_parts(&p, sms_of(env)), p.pivot);
}

/* ---- bn_bwd_apply, then conv2d_dx ---------------------------------------------------------------- */

static prologue_gemm dx_gemm(const op_env *env, const op_args *a, int variant)
{
    int64_t rows = tensor_rows(&a->in[1]);
    return (prologue_gemm){ .prologue = PROLOGUE_DX,
                            .variant = variant,
                            .m = rows,
                            .n = tensor_cols(&a->out[1]),
                            .k = tensor_cols(&a->in[1]),
                            .x = a->in[1].data,
                            .other = a->in[0].data,
                            .mean = a->in[2].data,
                            .rstd = a->in[3].data,
                            .gain = a->in[4].data,
                            .bias = a->in[5].data,
                            .sums = a->in[6].data,
                            .count = (float)rows * (float)(env->sum_ranks ? env->ranks : 1),
                            .side = a->out[0].data,
                            .y = a->out[1].data };
}

/* The same GEMM with the weight's gradient. */
static prologue_gemm gradients_gemm(const op_env *env, const op_args *a, int variant)
{
    prologue_gemm p = dx_gemm(env, a, variant);
    p.dw = true, p.plain = !op_has(&a->in[9]);
    p.x2 = a->in[8].data;
    p.mean2 = a->in[9].data, p.rstd2 = a->in[10].data, p.gain2 = a->in[11].data, p.bias2 = a->in[12].data;
    p.side = NULL;
    return p;
}

/* Whether the GEMM also reduces, s->variant of which takes ms without. extra_ms: what it needs beside itself. */
static void reduce_prepare(const op_env *env, const op_args *a, prologue_state *s, float ms, float extra_ms)
{
    prologue_gemm p = gradients_gemm(env, a, 0);
    p.reduce = true;
    ms += cuda_pass_ms(2.0 * (double)tensor_bytes(&a->in[8]));
    int variant = variant_for(env, &p, false, &ms, extra_ms);
    s->reduces = variant >= 0;
    if (s->reduces) s->variant = variant;
}

/* ms: of dx by itself. */
static cloob_status dw_prepare(const op_env *env, op_args *a, prologue_state *s, float ms)
{
    prologue_gemm p = gradients_gemm(env, a, 0);
    float extra_ms = cuda_pass_ms(0.0) + cuda_pass_ms(2.0 * sms_of(env) * (double)(p.k * p.n) * sizeof(float));
    s->dw = fused_applied_dw(a);
    CLOOB_TRY(conv2d_dw_prepare_cuda(env, &s->dw));
    ms += conv_plan_ms(&s->dw) + (p.plain ? 0.0f : cuda_pass_ms(2.0 * (double)tensor_bytes(&a->in[8])));
    int variant =
        a->in[1].dtype == CLOOB_BF16 && p.m > 0 && a->attr.alone ? variant_for(env, &p, false, &ms, extra_ms) : -1;
    if (variant < 0) return CLOOB_OK;
    s->variant = variant;
    s->takes_dw = true;
    a->out[0] = a->out[3] = ABSENT;
    if (a->attr.reduce) reduce_prepare(env, a, s, ms, extra_ms);
    return CLOOB_OK;
}

cloob_status bn_bwd_conv_dx_prepare_cuda(const op_env *env, op_args *a)
{
    prologue_state *s;
    prologue_gemm p = dx_gemm(env, a, 0);
    float ms;
    CLOOB_TRY(state_make(env, a, &s));
    s->variant = -1;
    s->second = fused_applied_dx(a);
    CLOOB_TRY(conv2d_dx_prepare_cuda(env, &s->second));
    ms = conv_plan_ms(&s->second) + cuda_pass_ms(3.0 * (double)tensor_bytes(&a->in[1]));
    if (a->in[1].dtype == CLOOB_BF16 && p.m > 0) s->variant = variant_for(env, &p, true, &ms, cuda_pass_ms(0.0));
    if (a->attr.reduce) {
        s->reduce = fused_second_reduce(a);
        CLOOB_TRY(bn_bwd_reduce_prepare_cuda(env, &s->reduce));
    }
    if (op_has(&a->in[8])) CLOOB_TRY(dw_prepare(env, a, s, ms));
    lay_out(env, a, s, p);
    return CLOOB_OK;
}

/* By the GEMM: dx, and the weight's gradient where it takes that along. */
static cloob_status dx_fused(const op_env *env, const op_args *a, const prologue_state *s)
{
    prologue_gemm p = s->takes_dw ? gradients_gemm(env, a, s->variant) : dx_gemm(env, a, s->variant);
    op_args reduce = fused_second_reduce(a);
    p.reduce = s->reduces;
    p.b = at(a, s->weight), p.partial = at(a, s->partial), p.reduced = at(a, s->reduced);
    int parts = prologue_gemm_parts(&p, sms_of(env));
    CLOOB_TRY(cuda_check(env->ctx, transpose_bf16(env->stream, at(a, s->weight), a->in[7].data, p.k, p.n), "a weight"));
    CLOOB_TRY(run_fused(env, "bn_bwd_conv_dx", &p));
    if (s->reduces) CLOOB_TRY(bn_reduce_finish(env, &reduce, p.reduced, parts * REDUCED_PARTS));
    if (!s->takes_dw) return CLOOB_OK;
    return colsum_finish(env, "bn_bwd_conv_dx", a->out[2].data, p.partial, parts, p.k * p.n);
}

cloob_status bn_bwd_conv_dx_cuda(const op_env *env, const op_args *a)
{
    const prologue_state *s = a->state;
    op_args apply = fused_bwd_apply(a), dx = with_plan(fused_applied_dx(a), &s->second), second = fused_second_apply(a),
            dw = with_plan(fused_applied_dw(a), &s->dw), reduce = fused_second_reduce(a);
    if (s->variant < 0) {
        CLOOB_TRY(bn_bwd_apply_cuda(env, &apply));
        CLOOB_TRY(conv2d_dx_cuda(env, &dx));
    } else CLOOB_TRY(dx_fused(env, a, s));
    if (a->attr.reduce && !s->reduces) CLOOB_TRY(bn_bwd_reduce_cuda(env, &reduce)); /* and a2 */
    if (s->takes_dw || !op_has(&a->in[8])) return CLOOB_OK;
    if (op_has(&a->in[9]) && !a->attr.reduce) CLOOB_TRY(bn_apply_cuda(env, &second));
    return conv2d_dw_cuda(env, &dw);
}
