/* Groups of a GEMM and its activation, linear then act, or linear_dx then act_bwd: by one kernel (act_gemm.h), where
 * that was faster than cuBLASLt and a pass when the plan was made. */
#include <stdio.h>
#include <stdlib.h>

#include "nn/cuda/groups.h"
#include "nn/cuda/linear/act_gemm.h"
#include "tensor/cuda/tune.h"

enum { FEW_ROWS = 4096 }; /* with fewer the kernel does not help */

/* What timing found; kept in the tune file. */
typedef struct act_times {
    float ms, pass_ms; /* of the kernel; of the activation by itself */
} act_times;

static act_gemm gemm_of(const op_group *g)
{
    const op_args *gemm = g->member[0], *act = g->member[1];
    bool backward = act->op == OP_ACT_BWD;
    act_gemm j = { .m = tensor_rows(&gemm->in[0]),
                   .n = gemm->in[1].dim[backward],
                   .k = gemm->in[1].dim[!backward],
                   .backward = backward,
                   .act = act->attr.act,
                   .a = gemm->in[0].data,
                   .b = gemm->in[1].data,
                   .bias = act->in[backward ? 2 : 1].data,
                   .x = backward ? act->in[1].data : gemm->out[0].data,
                   .y = act->out[0].data };
    if (backward) j.recomputed = act->out[1].data, j.partial = act->out[2].data ? g->scratch : NULL;
    return j;
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
    CLOOB_TRY(cuda_check(env->ctx, act_gemm_run(env->stream, g, cuda_sms(env)), op));
    if (!g->partial) return CLOOB_OK;
    return colsum_finish(env, op, sums, g->partial, act_gemm_parts(g, cuda_sms(env)), g->n);
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
    int64_t big = g->m * g->n, parts = act_gemm_parts(g, cuda_sms(t->env));
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

/* ---- the group ----------------------------------------------------------------------------------- */

static bool faster_fused(const op_env *env, op_group *g, const act_gemm *j)
{
    if (j->m < FEW_ROWS) return false;
    act_times t = act_time(env, j, g->member[1], !j->backward && group_inner(g, g->member[0]));
    float apart = linear_plan_ms(g->member[0]) + t.pass_ms;
    ctx_log(env->ctx, CLOOB_LOG_DEBUG,
            "GEMM with an activation%s, %lld x %lld x %lld: %.4f ms, one after the other %.4f",
            j->backward ? ", backward" : "", (long long)j->m, (long long)j->n, (long long)j->k, (double)t.ms,
            (double)apart);
    g->ms = t.ms;
    return t.ms < apart;
}

/* By timing, or as the context asks. */
cloob_status linear_act_prepare_cuda(const op_env *env, op_group *g, bool *claims)
{
    const op_args *gemm = g->member[0], *act = g->member[1];
    act_gemm j = gemm_of(g);
    fused_gemm_choice asked = env->ctx->kernels.fused_gemm;
    bool plain = !gemm->attr.transposed && gemm->attr.fp8 == OP_FP8_NEVER && !op_has(&act->out[OP_ROUNDED_OUT]) &&
                 (j.backward ? group_inner(g, gemm) : !op_has(&gemm->in[2]) && !op_has(&gemm->in[3]));
    bool possible = asked != FUSED_GEMM_NEVER && cuda_has_hopper(env->dev) && plain &&
                    gemm->in[0].dtype == CLOOB_BF16 && act_gemm_parts(&j, cuda_sms(env)) > 0;
    *claims = possible && (asked != FUSED_GEMM_AUTO || faster_fused(env, g, &j));
    if (*claims && j.backward && op_has(&act->out[2]))
        g->scratch_bytes = (size_t)act_gemm_parts(&j, cuda_sms(env)) * (size_t)j.n * sizeof(float);
    return CLOOB_OK;
}

cloob_status linear_act_cuda(const op_env *env, const op_group *g)
{
    act_gemm j = gemm_of(g);
    return gemm_run(env, g->kernel->name, &j, j.backward ? g->member[1]->out[2].data : NULL);
}
