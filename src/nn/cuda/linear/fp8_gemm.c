/* GEMMs of bf16 matrices by way of 8-bit copies in scratch: in training with a scale per matrix, in inference with
 * one per row. */
#include "nn/cuda/linear/fp8_gemm.h"

#include <stdlib.h>

#include "nn/cuda/linear/quantize.h"

struct fp8_gemm {
    gemm_plan *plan;
    gemm_shape g;       /* of the bf16 factors */
    bool rows;          /* a scale per row, in inference */
    size_t left, right; /* offsets in scratch, behind the library's: copies of A and B; by rows: of A, and its scales */
    quant_scale *scale; /* of A, of B; device memory */
    quant_format format; /* of A */
    bool fresh;          /* nothing was rounded yet */
    bool given;          /* A comes rounded (OP_ROUNDED_IN) */
    void *weights;       /* by rows: device memory, B's copy and behind it its scales */
    bool rounded;        /* by rows: B was */
};

/* Milliseconds of a pass that reads two bytes and writes one, at a bandwidth we reach, and of writing one along. */
static float round_ms(int64_t elements) { return (float)(3.0 * (double)elements / 3.8e9) + 0.004f; }
static float along_ms(int64_t elements) { return (float)((double)elements / 3.8e9); }

static bool fits(const op_env *env, const gemm_shape *g, bool rows)
{
    return (rows ? env->dev->fp8_rows && g->tb : env->dev->fp8) && g->in == CLOOB_BF16 && g->out == CLOOB_BF16 &&
           !g->ta && g->m % 16 == 0 && g->n % 16 == 0 && g->k % 16 == 0 && g->alpha == 1.0f;
}

static size_t weight_bytes(const fp8_gemm *p) { return cuda_align((size_t)(p->g.n * p->g.k)); }

/* Device memory of its own: B's copy and scales by rows, else both scales. */
static cloob_status take_memory(const op_env *env, fp8_gemm *p)
{
    void *place;
    if (p->rows)
        return env->dev->alloc(env->ctx, env->dev, weight_bytes(p) + (size_t)p->g.n * sizeof(float), "8-bit weights",
                               &p->weights);
    CLOOB_TRY(env->dev->alloc(env->ctx, env->dev, 2 * sizeof *p->scale, "8-bit scales", &place));
    p->scale = place;
    gemm_plan_scales(p->plan, &p->scale[0].inverse, &p->scale[1].inverse);
    return CLOOB_OK;
}

/* What rounding costs in addition to the GEMM; by rows B is rounded once. */
static float rounding_ms(const fp8_gemm *p)
{
    int64_t A = p->g.m * p->g.k, B = p->g.n * p->g.k;
    if (p->rows) return cuda_pass_ms(3.0 * (double)A);
    return (p->given ? along_ms(A) : round_ms(A)) + round_ms(B);
}

/* *taken false: it is slower, or not supported. */
static cloob_status fill(const op_env *env, fp8_gemm *p, bool always, float ms, bool *taken)
{
    const gemm_shape *g = &p->g;
    gemm_shape eight = { .m = g->m,
                         .n = g->n,
                         .k = g->k,
                         .in = g->in,
                         .out = g->out,
                         .fp8 = p->format == QUANT_E4M3 ? GEMM_E4M3 : GEMM_E5M2,
                         .row_scales = p->rows,
                         .add = g->add,
                         .extra = g->extra,
                         .alpha = 1.0f };
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &eight, &p->plan));
    if (!p->plan) return CLOOB_OK;
    float own = gemm_plan_ms(p->plan) + rounding_ms(p);
    ctx_log(env->ctx, CLOOB_LOG_DEBUG, "fp8%s %lld x %lld x %lld: %.4f ms, %.4f with its rounding, bf16 %.4f",
            p->rows ? " by rows" : "", (long long)g->m, (long long)g->n, (long long)g->k, (double)gemm_plan_ms(p->plan),
            (double)own, (double)ms);
    *taken = always || own < ms;
    if (!*taken) return CLOOB_OK;
    p->left = cuda_align(gemm_plan_workspace(p->plan));
    p->right = p->left + (p->given ? 0 : cuda_align((size_t)(g->m * g->k)));
    return take_memory(env, p);
}

cloob_status fp8_gemm_create(const op_env *env, const gemm_shape *g, bool gradient, bool given, op_fp8 fp8, float ms,
                             fp8_gemm **out)
{
    bool taken = false, rows = op_fp8_by_rows(fp8);
    *out = NULL;
    if (fp8 == OP_FP8_NEVER || !fits(env, g, rows)) return CLOOB_OK;
    fp8_gemm *p = calloc(1, sizeof *p);
    if (!p) return ctx_no_memory(env->ctx, sizeof *p, "an 8-bit GEMM");
    p->g = *g;
    p->rows = rows;
    p->format = gradient ? QUANT_E5M2 : QUANT_E4M3;
    p->fresh = true;
    p->given = given && !rows;
    cloob_status status = fill(env, p, fp8 == OP_FP8_ALWAYS || fp8 == OP_FP8_ROWS_ALWAYS, ms, &taken);
    if (status == CLOOB_OK && taken) *out = p;
    else fp8_gemm_destroy(env, p);
    return status;
}

void fp8_gemm_destroy(const op_env *env, fp8_gemm *p)
{
    if (!p) return;
    if (p->scale) env->dev->free(env->dev, p->scale);
    if (p->weights) env->dev->free(env->dev, p->weights);
    gemm_plan_destroy(p->plan);
    free(p);
}

size_t fp8_gemm_scratch(const fp8_gemm *p)
{
    return p->right + (p->rows ? (size_t)p->g.m * sizeof(float) : weight_bytes(p));
}

/* B is read in the first run, and in later ones where weights are not frozen. */
static cloob_status run_rows(const op_env *env, const char *op, fp8_gemm *p, void *D, const void *A, const void *B,
                             const void *C, void *vector, void *scratch)
{
    void *left = (char *)scratch + p->left;
    float *of_left = (float *)((char *)scratch + p->right), *of_right = (float *)((char *)p->weights + weight_bytes(p));
    if (!p->rounded) CLOOB_TRY(quantize_rows_cuda(env, op, p->weights, of_right, B, p->g.n, p->g.k));
    p->rounded = env->frozen_weights;
    CLOOB_TRY(quantize_rows_cuda(env, op, left, of_left, A, p->g.m, p->g.k));
    gemm_plan_scales(p->plan, of_left, of_right);
    return gemm_run(env->ctx, env->dev, p->plan, env->stream, D, left, p->weights, C, vector, scratch);
}

/* The left factor's bytes and the address of their inverse scale. */
static cloob_status left_factor(const op_env *env, const char *op, fp8_gemm *p, const void *A, const tensor *rounded,
                                void *scratch, const void **left)
{
    int64_t count = p->g.m * p->g.k;
    char *own = (char *)scratch + p->left;
    *left = p->given ? rounded->data : own;
    if (!p->given) return quantize_cuda(env, op, own, A, count, p->format, &p->scale[0], NULL, p->fresh);
    gemm_plan_scales(p->plan, (const float *)((const char *)rounded->data + count), &p->scale[1].inverse);
    return CLOOB_OK;
}

cloob_status fp8_gemm_run(const op_env *env, const char *op, fp8_gemm *p, void *D, const void *A, const tensor *rounded,
                          const void *B, const void *C, void *vector, void *scratch)
{
    const gemm_shape *g = &p->g;
    const void *left;
    void *right = (char *)scratch + p->right;
    if (p->rows) return run_rows(env, op, p, D, A, B, C, vector, scratch);
    CLOOB_TRY(left_factor(env, op, p, A, rounded, scratch, &left));
    if (g->tb) CLOOB_TRY(quantize_cuda(env, op, right, B, g->n * g->k, QUANT_E4M3, &p->scale[1], NULL, p->fresh));
    else CLOOB_TRY(quantize_turned_cuda(env, op, right, B, g->k, g->n, &p->scale[1], p->fresh));
    p->fresh = false;
    return gemm_run(env->ctx, env->dev, p->plan, env->stream, D, left, right, C, vector, scratch);
}

/* ---- history ------------------------------------------------------------------------------------- */

/* Below 0: nothing was rounded yet, or is to be taken as such. */
static cloob_status scale_history(const op_env *env, quant_scale *scale, float *max, bool *fresh, bool set)
{
    device *d = env->dev;
    if (!set && *fresh) *max = -1;
    if (!set) return *fresh ? CLOOB_OK : d->to_host(env->ctx, d, max, &scale->max, sizeof *max);
    if (!(*max >= 0)) return CLOOB_OK;
    *fresh = false;
    return d->to_device(env->ctx, d, &scale->max, max, sizeof *max);
}

cloob_status fp8_gemm_history(const op_env *env, fp8_gemm *p, float max[OP_HISTORY], bool set)
{
    bool fresh = p->fresh;
    for (int i = 0; i < OP_HISTORY && p->rows && !set; i++) max[i] = -1;
    if (p->rows) return CLOOB_OK;
    if (set && (!(max[0] >= 0) || !(max[1] >= 0))) return CLOOB_OK; /* the next run looks at the factors themselves */
    CLOOB_TRY(scale_history(env, &p->scale[0], &max[0], &fresh, set));
    return scale_history(env, &p->scale[1], &max[1], &p->fresh, set);
}

cloob_status rounding_history_cuda(const op_env *env, const op_args *a, float max[OP_HISTORY], bool set)
{
    rounding *r = a->state;
    for (int i = 0; i < OP_HISTORY && !set; i++) max[i] = -1;
    return r && r->scale ? scale_history(env, r->scale, &max[0], &r->fresh, set) : CLOOB_OK;
}
