/* The MLP's GEMMs with their activation (op_list.h: linear_act, linear_dx_act): by one kernel (act_gemm.h), or by
 * cuBLASLt and a pass of its own, whichever was faster when the plan was made. */
#include <stdio.h>
#include <stdlib.h>

#include "nn/cuda/kernels.h"
#include "nn/cuda/linear/act_gemm.h"
#include "tensor/cuda/tune.h"

enum { FEW_ROWS = 4096 }; /* of fewer nothing is to be gained */

/* What timing found; kept in the tune file. */
typedef struct act_times {
    float ms, pass_ms; /* of the kernel; of the activation by itself */
} act_times;

typedef struct act_state {
    op_args first; /* plan of the GEMM, for when it runs by itself */
    bool fused;
} act_state;

void linear_act_release_cuda(const op_env *env, op_args *a)
{
    act_state *s = a->state;
    if (s && s->first.state) linear_release_cuda(env, &s->first);
    free(s);
    a->state = NULL;
}

static int sms_of(const op_env *env) { return ((const cuda_state *)env->dev->state)->sms; }

static cloob_status state_make(const op_env *env, op_args *a, act_state **out)
{
    a->state = *out = calloc(1, sizeof **out);
    return *out ? CLOOB_OK : ctx_no_memory(env->ctx, sizeof **out, "the plan of a GEMM with an activation");
}

static act_gemm forward_gemm(const op_args *a)
{
    return (act_gemm){ .m = tensor_rows(&a->in[0]),
                       .n = a->in[1].dim[0],
                       .k = a->in[1].dim[1],
                       .act = a->attr.act,
                       .a = a->in[0].data,
                       .b = a->in[1].data,
                       .bias = a->in[2].data,
                       .x = a->out[0].data,
                       .y = a->out[1].data };
}

static act_gemm backward_gemm(const op_args *a)
{
    return (act_gemm){ .m = tensor_rows(&a->in[0]),
                       .n = a->in[1].dim[1],
                       .k = a->in[1].dim[0],
                       .backward = true,
                       .act = a->attr.act,
                       .a = a->in[0].data,
                       .b = a->in[1].data,
                       .bias = a->in[3].data,
                       .x = a->in[2].data,
                       .y = a->out[0].data,
                       .recomputed = a->out[1].data,
                       .partial = a->out[2].data ? a->scratch : NULL };
}

/* ---- timing -------------------------------------------------------------------------------------- */

enum { A, B, BIAS, X, Y, AGAIN, PARTIAL, SUMS, BUFFERS };

/* One set of operands for the kernel and for the activation by itself. */
typedef struct trial {
    const op_env *env;
    act_gemm g;
    op_args pass; /* act, or act_bwd */
    bool no_x;    /* forward: nobody wants it */
    void *buffer[BUFFERS];
} trial;

/* The kernel, and what adds its partial sums. */
static cloob_status gemm_run(const op_env *env, const char *op, const act_gemm *g, float *sums)
{
    CLOOB_TRY(cuda_check(env->ctx, act_gemm_run(env->stream, g, sms_of(env)), op));
    if (!g->partial) return CLOOB_OK;
    return colsum_finish(env, op, sums, g->partial, act_gemm_parts(g, sms_of(env)), g->n);
}

static cloob_status trial_run(void *user)
{
    trial *t = user;
    return gemm_run(t->env, "timing a GEMM", &t->g, t->pass.out[2].data);
}

static cloob_status pass_run(void *user)
{
    trial *t = user;
    return t->g.backward ? act_bwd_cuda(t->env, &t->pass) : act_cuda(t->env, &t->pass);
}

static cloob_status trial_open(trial *t)
{
    cloob_ctx *ctx = t->env->ctx;
    act_gemm *g = &t->g;
    int64_t big = g->m * g->n, parts = act_gemm_parts(g, sms_of(t->env));
    bool sums = g->backward && op_has(&t->pass.out[2]), again = g->backward && op_has(&t->pass.out[1]);
    int64_t scratch = (int64_t)t->pass.scratch_bytes / 2, partial = 2 * parts * g->n; /* F32, as bf16 */
    if (scratch > partial) partial = scratch;
    int64_t count[BUFFERS] = { [A] = g->m * g->k,
                               [B] = g->n * g->k,
                               [BIAS] = g->n,
                               [X] = big,
                               [Y] = big,
                               [AGAIN] = again ? big : 0,
                               [PARTIAL] = g->backward ? partial : 0,
                               [SUMS] = sums ? 2 * g->n : 0 };
    for (int i = 0; i < BUFFERS; i++) {
        if (!count[i]) continue;
        CLOOB_TRY(cuda_trial_noise(ctx, t->env->dev, CLOOB_BF16, count[i], &t->buffer[i]));
    }
    g->a = t->buffer[A], g->b = t->buffer[B];
    g->bias = op_has(&t->pass.in[g->backward ? 2 : 1]) ? t->buffer[BIAS] : NULL;
    g->x = t->no_x ? NULL : t->buffer[X], g->y = t->buffer[Y], g->recomputed = t->buffer[AGAIN];
    g->partial = sums ? t->buffer[PARTIAL] : NULL;
    t->pass.scratch = t->buffer[PARTIAL];
    t->pass.in[g->backward ? 2 : 1].data = (void *)g->bias;
    t->pass.in[0].data = g->backward || t->no_x ? g->y : g->x;
    if (g->backward) t->pass.in[1].data = g->x;
    t->pass.out[0].data = g->y, t->pass.out[1].data = t->buffer[AGAIN], t->pass.out[2].data = t->buffer[SUMS];
    return CLOOB_OK;
}

/* From the cache or by trials; ms large where nothing could be tried. pass: act or act_bwd, prepared. */
static act_times act_time(const op_env *env, const act_gemm *g, const op_args *pass, bool no_x)
{
    char key[TUNE_KEY];
    act_times found = { .ms = 1e30f };
    tune_cache *cache = cuda_use(env->dev)->tune;
    op_env own = *env;
    trial t = { .env = &own, .g = *g, .pass = *pass, .no_x = no_x };
    const char *kind = g->backward && op_has(&pass->out[1]) ? "r" : no_x ? "y" : "";
    snprintf(key, sizeof key, "act2-%s%d%s%s-%lldx%lldx%lld", g->backward ? "b" : "f", g->act, kind,
             g->backward && op_has(&pass->out[2]) ? "s" : "", (long long)g->m, (long long)g->n, (long long)g->k);
    if (tune_get(cache, key, &found, sizeof found)) return found;
    own.stream = cuda_use(env->dev)->stream;
    bool timed = trial_open(&t) == CLOOB_OK &&
                 cuda_time(env->ctx, env->dev, pass_run, &t, &found.pass_ms) == CLOOB_OK &&
                 cuda_time(env->ctx, env->dev, trial_run, &t, &found.ms) == CLOOB_OK;
    for (int i = 0; i < BUFFERS; i++) cuda_trial_free(env->dev, t.buffer[i]);
    if (!timed) return (act_times){ .ms = 1e30f };
    tune_put(cache, key, &found, sizeof found);
    return found;
}

/* ---- what both share ----------------------------------------------------------------------------- */

static bool faster_fused(const op_env *env, const op_args *a, const act_state *s, const act_gemm *g,
                         const op_args *pass)
{
    if (g->m < FEW_ROWS) return false;
    act_times t = act_time(env, g, pass, !g->backward && !op_has(&a->out[0]));
    float apart = linear_plan_ms(&s->first) + t.pass_ms;
    ctx_log(env->ctx, CLOOB_LOG_DEBUG,
            "GEMM with an activation%s, %lld x %lld x %lld: %.4f ms, one after the other %.4f",
            g->backward ? ", backward" : "", (long long)g->m, (long long)g->n, (long long)g->k, (double)t.ms,
            (double)apart);
    return t.ms < apart;
}

/* By timing, or as the context asks. */
static void decide(const op_env *env, op_args *a, act_state *s, const act_gemm *g, const op_args *pass)
{
    cloob_fused_gemm asked = env->ctx->kernels.fused_gemm;
    bool possible = asked != CLOOB_FUSED_GEMM_NEVER && cuda_has_hopper(env->dev) && a->in[0].dtype == CLOOB_BF16 &&
                    act_gemm_parts(g, sms_of(env)) > 0;
    s->fused = possible && (asked != CLOOB_FUSED_GEMM_AUTO || faster_fused(env, a, s, g, pass));
    a->scratch_bytes = s->first.scratch_bytes > pass->scratch_bytes ? s->first.scratch_bytes : pass->scratch_bytes;
    if (!s->fused) return;
    a->scratch_bytes = 0;
    if (g->backward && op_has(&a->out[2]))
        a->scratch_bytes = (size_t)act_gemm_parts(g, sms_of(env)) * (size_t)g->n * sizeof(float);
}

/* ---- forward ------------------------------------------------------------------------------------- */

cloob_status linear_act_prepare_cuda(const op_env *env, op_args *a)
{
    act_state *s;
    act_gemm g = forward_gemm(a);
    op_args pass = fused_act(a);
    CLOOB_TRY(state_make(env, a, &s));
    s->first = fused_linear(a);
    CLOOB_TRY(linear_prepare_cuda(env, &s->first));
    decide(env, a, s, &g, &pass);
    return CLOOB_OK;
}

cloob_status linear_act_cuda(const op_env *env, const op_args *a)
{
    const act_state *s = a->state;
    act_gemm g = forward_gemm(a);
    if (s->fused) return gemm_run(env, "linear_act", &g, NULL);
    op_args linear = fused_linear(a), act = fused_act(a);
    linear.state = s->first.state;
    CLOOB_TRY(linear_cuda(env, &linear));
    return act_cuda(env, &act);
}

/* ---- backward ------------------------------------------------------------------------------------ */

cloob_status linear_dx_act_prepare_cuda(const op_env *env, op_args *a)
{
    act_state *s;
    act_gemm g = backward_gemm(a);
    op_args pass = fused_act_bwd(a);
    CLOOB_TRY(state_make(env, a, &s));
    s->first = fused_linear_dx(a);
    CLOOB_TRY(linear_dx_prepare_cuda(env, &s->first));
    CLOOB_TRY(act_bwd_prepare_cuda(env, &pass));
    decide(env, a, s, &g, &pass);
    return CLOOB_OK;
}

cloob_status linear_dx_act_cuda(const op_env *env, const op_args *a)
{
    const act_state *s = a->state;
    op_args dx = fused_linear_dx(a), act = fused_act_bwd(a);
    if (s->fused) {
        act_gemm g = backward_gemm(a);
        return gemm_run(env, "linear_dx_act", &g, a->out[2].data);
    }
    dx.state = s->first.state;
    CLOOB_TRY(linear_dx_cuda(env, &dx));
    return act_bwd_cuda(env, &act);
}
