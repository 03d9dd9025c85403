/* Ops that are two others: by one GEMM whose epilogue does the second's work before the result leaves the registers
 * (fused_gemm.h), or one after the other, whichever was faster when the plan was made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/cuda/kernels.h"
#include "nn/cuda/fused_gemm_kernels.h"
#include "nn/cuda/stem/conv_small.h"
#include "tensor/cuda/tune.h"

typedef struct fused_state {
    op_args first, dw;      /* plans of the first op and of the weight's gradient, for when they run by themselves */
    size_t weight, partial; /* offsets in scratch: the transposed weight, partial sums */
    size_t dw_partial;      /* likewise, those of the weight's gradient */
    int teams;              /* of the GEMM; 0: not by one */
    bool takes_dw;          /* the GEMM does the weight's gradient as well */
    small_plan *small;      /* of a convolution with few channels; neither: one after the other */
    float ms;               /* of whichever was chosen */
} fused_state;

void fused_release_cuda(const op_env *env, op_args *a)
{
    fused_state *s = a->state;
    if (s && s->first.state) conv_release_cuda(env, &s->first);
    if (s) small_plan_destroy(s->small);
    if (s && s->dw.state) conv_release_cuda(env, &s->dw);
    free(s);
    a->state = NULL;
}

float conv_stats_plan_ms(const op_args *a) { return ((const fused_state *)a->state)->ms; }

static void *at(const op_args *a, size_t offset) { return (char *)a->scratch + offset; }

static int sms_of(const op_env *env) { return ((const cuda_state *)env->dev->state)->sms; }

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
    p->pooled = reads ? (char *)t->buffer[OTHER] + big : NULL; /* other leaves room for it */
    p->column = t->buffer[COLUMN], p->y = t->buffer[Y];
    p->partial = t->buffer[PARTIAL], p->dw_partial = t->buffer[DW_PARTIAL];
    return CLOOB_OK;
}

static void trial_close(trial *t)
{
    for (int i = 0; i < BUFFERS; i++) cuda_trial_free(t->d, t->buffer[i]);
}

typedef struct team_choice {
    float ms;
    int32_t teams;
} team_choice;

static void try_teams(trial *t, int teams, team_choice *best)
{
    const fused_gemm *p = &t->p;
    float ms;
    t->p.teams = teams;
    if (fused_gemm_parts(p, t->sms) == 0 || cuda_time_against(t->ctx, t->d, trial_run, t, best->ms, &ms) != CLOOB_OK)
        return;
    ctx_log(t->ctx, CLOOB_LOG_DEBUG, "fused GEMM of %lld x %lld, arrangement %d: %.4f ms", (long long)p->n,
            (long long)p->k, teams, (double)ms);
    if (ms < best->ms) *best = (team_choice){ ms, teams };
}

/* How fast a fused GEMM is, from the cache or by trials; ms large when it cannot be tried. */
static team_choice fused_time(const op_env *env, const fused_gemm *p)
{
    char key[TUNE_KEY];
    team_choice best = { 1e30f, 0 };
    tune_cache *cache = cuda_use(env->dev)->tune;
    snprintf(key, sizeof key, "fused3-%d%s%s%lld-%lldx%lldx%lld", (int)p->epilogue, p->dw ? "dw" : "",
             p->pools ? "p" : "", (long long)p->line, (long long)p->m, (long long)p->n, (long long)p->k);
    if (tune_get(cache, key, &best, sizeof best)) return best;
    trial t = { .ctx = env->ctx, .d = env->dev, .p = *p, .sms = sms_of(env) };
    bool room = trial_open(&t) == CLOOB_OK;
    for (int i = 2; i <= 4 && room; i++) try_teams(&t, i, &best);
    trial_close(&t);
    if (room) tune_put(cache, key, &best, sizeof best);
    return best;
}

/* ---- what both share ------------------------------------------------------------------------- */

static cloob_status state_make(const op_env *env, op_args *a, fused_state **out)
{
    a->state = *out = calloc(1, sizeof **out);
    return *out ? CLOOB_OK : ctx_no_memory(env->ctx, sizeof **out, "a fused GEMM's plan");
}

/* How many teams, or 0 when one after the other is better. *ms: in, of that; out, of what was chosen. */
static int teams_for(const op_env *env, const fused_gemm *p, float *ms)
{
    float separate_ms = *ms;
    cloob_fused_gemm asked = env->ctx->kernels.fused_gemm;
    if (asked == CLOOB_FUSED_GEMM_NEVER || !cuda_has_hopper(env->dev) || !fused_gemm_takes(p->n, p->k)) return 0;
    if (asked != CLOOB_FUSED_GEMM_AUTO) {
        fused_gemm wanted = *p;
        wanted.teams = asked == CLOOB_FUSED_GEMM_4_TEAMS ? 4 : p->n % 256 ? FUSED_GEMM_NARROW : 2; /* so all run */
        return fused_gemm_parts(&wanted, sms_of(env)) ? wanted.teams : 0;
    }
    team_choice c = fused_time(env, p);
    ctx_log(env->ctx, CLOOB_LOG_DEBUG,
            "fused GEMM %d%s, %lld x %lld x %lld: %.4f ms by %d teams, one after the other %.4f", (int)p->epilogue,
            p->dw ? " and dw" : "", (long long)p->m, (long long)p->n, (long long)p->k, (double)c.ms, c.teams,
            (double)separate_ms);
    if (c.ms < separate_ms) *ms = c.ms;
    return c.ms < separate_ms ? c.teams : 0;
}

/* Keeps what is faster and lays out scratch: for the two ops, which begin at its start, or the weight and the
 * sums. */
static void decide(const op_env *env, op_args *a, fused_state *s, fused_gemm *p, bool can, float separate_ms,
                   size_t second_scratch)
{
    s->ms = separate_ms;
    p->teams = s->teams = can ? teams_for(env, p, &s->ms) : 0;
    size_t separate = s->first.scratch_bytes > second_scratch ? s->first.scratch_bytes : second_scratch;
    s->weight = cuda_align(3 * (size_t)p->n * sizeof(float)); /* the ends of batch norm's sums use the start */
    s->partial = s->weight + cuda_align((size_t)(p->n * p->k) * 2);
    a->scratch_bytes = separate;
    if (s->teams)
        a->scratch_bytes = s->partial + (size_t)fused_gemm_parts(p, sms_of(env)) * 2 * (size_t)p->n * sizeof(float);
}

static cloob_status run_fused(const op_env *env, const char *op, const fused_gemm *p)
{
    return cuda_check(env->ctx, fused_gemm_run(env->stream, p, sms_of(env)), op);
}

/* The weight (rows, cols) as the GEMM wants it: (cols, rows), in scratch. */
static cloob_status turned(const op_env *env, const op_args *a, const fused_state *s, const tensor *w, int64_t rows,
                           int64_t cols, const void **out)
{
    *out = at(a, s->weight);
    return cuda_check(env->ctx, transpose_bf16(env->stream, at(a, s->weight), w->data, rows, cols), "a weight");
}

static bool is_point(const tensor *w, const tensor *x, const op_attr *attr)
{
    return w->dim[1] == 1 && attr->stride == 1 && attr->pad == 0 && w->dim[3] == x->dim[3] && x->dtype == CLOOB_BF16;
}

/* A call with scratch and data of the fused one, and its own plan. */
static op_args with_plan(op_args call, const op_args *plan)
{
    call.state = plan->state;
    return call;
}

/* ---- conv2d, then statistics --------------------------------------------------------------------- */

static fused_gemm stats_gemm(const op_args *a, int teams)
{
    return (fused_gemm){ .epilogue = EPILOGUE_STATS,
                         .teams = teams,
                         .m = tensor_rows(&a->out[0]),
                         .n = tensor_cols(&a->out[0]),
                         .k = a->in[0].dim[3],
                         .a = a->in[0].data,
                         .b = a->in[1].data,
                         .column = a->in[2].data,
                         .y = a->out[0].data };
}

/* A convolution with few channels, by a kernel of the stem. */
static cloob_status decide_small(const op_env *env, op_args *a, fused_state *s)
{
    dnn_shape shape = conv_shape(DNN_FORWARD, &a->in[0], &a->in[1], &a->out[0], &a->attr);
    CLOOB_TRY(small_plan_better(env->ctx, env->dev, &shape, a->in[1].dim[3], SMALL_STATS, &s->ms, &s->small));
    s->partial = s->weight; /* as it is */
    if (s->small) a->scratch_bytes = s->partial + small_plan_workspace(s->small);
    return CLOOB_OK;
}

static cloob_status run_small(const op_env *env, const op_args *a, const fused_state *s)
{
    op_args stats = fused_stats(a);
    small_data data = { .x = a->in[0].data,
                        .w = a->in[1].data,
                        .y = a->out[0].data,
                        .workspace = at(a, s->partial),
                        .pivot = a->in[2].data };
    CLOOB_TRY(small_run(env->ctx, env->dev, s->small, env->stream, &data));
    return bn_stats_finish(env, &stats, data.workspace, small_plan_parts(s->small), data.pivot);
}

cloob_status conv_stats_prepare_cuda(const op_env *env, op_args *a)
{
    fused_state *s;
    fused_gemm p = stats_gemm(a, 0);
    op_args stats = fused_stats(a);
    CLOOB_TRY(state_make(env, a, &s));
    s->first = fused_conv(a);
    CLOOB_TRY(conv2d_prepare_cuda(env, &s->first));
    CLOOB_TRY(bn_stats_prepare_cuda(env, &stats));
    bool point = is_point(&a->in[1], &a->in[0], &a->attr);
    decide(env, a, s, &p, point, conv_plan_ms(&s->first) + cuda_pass_ms((double)tensor_bytes(&a->out[0])),
           stats.scratch_bytes);
    return point ? CLOOB_OK : decide_small(env, a, s);
}

cloob_status conv_stats_cuda(const op_env *env, const op_args *a)
{
    const fused_state *s = a->state;
    op_args conv = with_plan(fused_conv(a), &s->first), stats = fused_stats(a);
    if (s->small) return run_small(env, a, s);
    if (!s->teams) {
        CLOOB_TRY(conv2d_cuda(env, &conv));
        return bn_stats_cuda(env, &stats);
    }
    fused_gemm p = stats_gemm(a, s->teams); /* the running mean is what is taken off before summing */
    p.partial = at(a, s->partial);
    CLOOB_TRY(run_fused(env, "conv_stats", &p));
    return bn_stats_finish(env, &stats, p.partial, fused_gemm_parts(&p, sms_of(env)), p.column);
}

/* ---- conv2d_dx, then batch norm's backward reduction --------------------------------------------- */

static fused_gemm reduce_gemm(const op_args *a, int teams)
{
    return (fused_gemm){ .epilogue = EPILOGUE_REDUCE,
                         .teams = teams,
                         .m = tensor_rows(&a->in[3]),
                         .n = tensor_cols(&a->in[3]),
                         .k = a->in[0].dim[3],
                         .line = a->attr.spread ? a->in[3].dim[2] : 0,
                         .pools = a->attr.spread && a->attr.pooled,
                         .pooled = a->out[6].data,
                         .a = a->in[0].data,
                         .x = a->in[3].data,
                         .other = a->in[2].data,
                         .mask = a->in[8].data,
                         .column = a->in[4].data,
                         .y = a->out[3].data };
}

/* Where the teams leave their sums. */
static void lay_out_sums(const op_env *env, op_args *a, fused_state *s, const fused_gemm *p)
{
    size_t parts = (size_t)fused_gemm_parts(p, sms_of(env));
    s->dw_partial = s->partial + cuda_align(parts * 2 * (size_t)p->n * sizeof(float));
    a->scratch_bytes = s->dw_partial + parts * (size_t)(p->k * p->n) * sizeof(float);
}

/* The weight's gradient: by the same GEMM where that is faster than both by themselves. */
static cloob_status dw_prepare(const op_env *env, op_args *a, fused_state *s, fused_gemm p)
{
    op_args dw = fused_conv_dw(a);
    CLOOB_TRY(conv2d_dw_prepare_cuda(env, &dw));
    s->dw = dw;
    s->ms += conv_plan_ms(&dw);
    p.dw = true;
    p.teams = is_point(&a->in[1], &a->in[3], &a->attr) && a->attr.relu ? teams_for(env, &p, &s->ms) : 0;
    if (!p.teams || fused_gemm_parts(&p, sms_of(env)) == 0) {
        if (dw.scratch_bytes > a->scratch_bytes) a->scratch_bytes = dw.scratch_bytes;
        return CLOOB_OK;
    }
    s->takes_dw = true;
    s->teams = p.teams;
    lay_out_sums(env, a, s, &p);
    return CLOOB_OK;
}

cloob_status conv_dx_reduce_prepare_cuda(const op_env *env, op_args *a)
{
    fused_state *s;
    fused_gemm p = reduce_gemm(a, 0);
    op_args reduce = fused_reduce(a);
    CLOOB_TRY(state_make(env, a, &s));
    s->first = fused_conv_dx(a);
    CLOOB_TRY(conv2d_dx_prepare_cuda(env, &s->first));
    CLOOB_TRY(bn_bwd_reduce_prepare_cuda(env, &reduce));
    decide(env, a, s, &p, is_point(&a->in[1], &a->in[3], &a->attr) && a->attr.relu,
           conv_plan_ms(&s->first) + cuda_pass_ms(5.0 * (double)tensor_bytes(&a->in[3])) +
               (float)(a->attr.spread + a->attr.pooled) * cuda_pass_ms(1.25 * (double)tensor_bytes(&a->in[3])),
           reduce.scratch_bytes);
    if (a->attr.dw) CLOOB_TRY(dw_prepare(env, a, s, p));
    if (s->teams && a->attr.alone) a->out[5] = ABSENT;
    return CLOOB_OK;
}

/* By the GEMM, and what is left to do behind it. */
static cloob_status reduce_fused(const op_env *env, const op_args *a, const fused_state *s, const op_args *reduce)
{
    fused_gemm p = reduce_gemm(a, s->teams);
    CLOOB_TRY(turned(env, a, s, &a->in[1], p.k, p.n, &p.b));
    p.partial = at(a, s->partial);
    p.dw = s->takes_dw, p.dw_partial = at(a, s->dw_partial);
    int parts = fused_gemm_parts(&p, sms_of(env));
    CLOOB_TRY(run_fused(env, "conv_dx_reduce", &p));
    if (s->takes_dw) CLOOB_TRY(colsum_finish(env, "conv_dx_reduce", a->out[4].data, p.dw_partial, parts, p.k * p.n));
    return bn_reduce_finish(env, reduce, p.partial, parts);
}

cloob_status conv_dx_reduce_cuda(const op_env *env, const op_args *a)
{
    const fused_state *s = a->state;
    op_args apart = *a;
    if (a->attr.pooled && (!s->teams || !a->attr.spread)) {
        op_args pooled = fused_pooled(a);
        CLOOB_TRY(avgpool2_cuda(env, &pooled));
    }
    if (a->attr.spread && (!s->teams || a->out[5].data)) { /* what the GEMM takes along others may want, too */
        op_args spread = fused_spread(a);
        CLOOB_TRY(avgpool2_bwd_cuda(env, &spread));
        if (!s->teams) apart = fused_spread_reduce(&apart);
    }
    op_args reduce = fused_reduce(&apart);
    op_args dx = with_plan(fused_conv_dx(&apart), &s->first), dw = with_plan(fused_conv_dw(&apart), &s->dw);
    if (a->attr.dw && !s->takes_dw) CLOOB_TRY(conv2d_dw_cuda(env, &dw));
    if (s->teams) return reduce_fused(env, &apart, s, &reduce);
    CLOOB_TRY(conv2d_dx_cuda(env, &dx));
    return bn_bwd_reduce_cuda(env, &reduce);
}
