/* cuBLASLt: descriptors, candidates, timing. The library is column-major: D^T = op(B)^T op(A)^T, so its A is
 * our B. */
#include "tensor/cuda/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/libraries.h"
#include "tensor/cuda/tune.h"

enum { CANDIDATES = 10, MAX_CANDIDATES = 32, WORKSPACE = 32 << 20 };

struct gemm_plan {
    gemm_shape shape;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d; /* of our A, B, D */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    float ms;
    bool none; /* the library has no algorithm */
};

typedef struct choice {
    cublasLtMatmulAlgo_t algo; /* 64 bytes, meant to be stored for one library version */
    uint64_t workspace;
    float ms;
    int32_t none;
} choice;

static cudaDataType_t type_of(cloob_dtype d) { return d == CLOOB_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

static cudaDataType_t factor_type(const gemm_shape *g) { return g->fp8 ? CUDA_R_8F_E4M3 : type_of(g->in); }

static gemm_shape packed(const gemm_shape *shape)
{
    gemm_shape g = *shape;
    if (g.fp8) g.ta = false, g.tb = true;
    if (!g.lda) g.lda = g.ta ? g.m : g.k;
    if (!g.ldb) g.ldb = g.tb ? g.k : g.n;
    if (!g.ldd) g.ldd = g.n;
    if (!g.batch) g.batch = 1;
    return g;
}

static void key_of(const gemm_shape *g, char key[TUNE_KEY])
{
    snprintf(key, TUNE_KEY, "gemm-%lldx%lldx%lld-%d%d-%lld,%lld,%lld-%lld:%lld,%lld,%lld-%d%d%d%d", (long long)g->m,
             (long long)g->n, (long long)g->k, g->ta, g->tb, (long long)g->lda, (long long)g->ldb, (long long)g->ldd,
             (long long)g->batch, (long long)g->step_a, (long long)g->step_b, (long long)g->step_d, (int)g->in,
             (int)g->out, g->add, (int)g->extra);
    if (g->fp8) strcat(key, "-e4m3-rows");
}

/* A stored row-major matrix is rows x cols in column-major order. */
static cublasStatus_t layout(cublasLtMatrixLayout_t *l, cudaDataType_t t, int64_t rows, int64_t cols, int64_t ld,
                             int64_t batch, int64_t step)
{
    int32_t n = (int32_t)batch;
    cublasStatus_t s = cuda_lib.cublasLtMatrixLayoutCreate(l, t, (uint64_t)rows, (uint64_t)cols, ld);
    if (s != CUBLAS_STATUS_SUCCESS || batch == 1) return s;
    s = cuda_lib.cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    return cuda_lib.cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                                     sizeof step);
}

static cublasStatus_t set_vector(const gemm_plan *p, const void *vector)
{
    return cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
}

/* The library's A is our B. */
void gemm_plan_scales(gemm_plan *p, const float *a, const float *b)
{
    cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a, sizeof a);
    cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b, sizeof b);
}

static cublasLtEpilogue_t epilogue_of(gemm_extra e)
{
    switch (e) {
    case GEMM_RELU: return CUBLASLT_EPILOGUE_RELU;
    case GEMM_BIAS: return CUBLASLT_EPILOGUE_BIAS;
    case GEMM_BIAS_RELU: return CUBLASLT_EPILOGUE_RELU_BIAS;
    case GEMM_SUM_A: return CUBLASLT_EPILOGUE_BGRADB; /* our A is its B */
    case GEMM_SUM_B: return CUBLASLT_EPILOGUE_BGRADA;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

static bool has_vector(gemm_extra e) { return e != GEMM_PLAIN && e != GEMM_RELU; }

/* Scales of rows since cuBLAS 12.9. Candidates are asked for with scales in place. */
static cublasStatus_t describe_fp8(gemm_plan *p)
{
    if (!p->shape.fp8) return CUBLAS_STATUS_SUCCESS;
#if CUBLAS_VERSION >= 120900
    int8_t fast = 1;
    int32_t rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const float *nowhere = (const float *)256;
    gemm_plan_scales(p, nowhere, nowhere);
    cublasStatus_t s =
        cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &rows, sizeof rows);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &rows, sizeof rows);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    return cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
#else
    return CUBLAS_STATUS_NOT_SUPPORTED;
#endif
}

static cublasStatus_t describe(gemm_plan *p)
{
    const gemm_shape *g = &p->shape;
    cublasOperation_t ta = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N, tb = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(g->extra);
    cudaDataType_t vector_type = type_of(g->out);
    cublasStatus_t s = cuda_lib.cublasLtMatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (s == CUBLAS_STATUS_SUCCESS && has_vector(g->extra)) {
        s = cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &vector_type,
                                                    sizeof vector_type);
        if (s == CUBLAS_STATUS_SUCCESS) s = set_vector(p, (void *)256); /* candidates are asked for with one in place */
    }
    if (s == CUBLAS_STATUS_SUCCESS) s = describe_fp8(p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = layout(&p->b, factor_type(g), g->tb ? g->k : g->n, g->tb ? g->n : g->k, g->ldb, g->batch, g->step_b);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = layout(&p->a, factor_type(g), g->ta ? g->m : g->k, g->ta ? g->k : g->m, g->lda, g->batch, g->step_a);
    if (s == CUBLAS_STATUS_SUCCESS) s = layout(&p->d, type_of(g->out), g->n, g->m, g->ldd, g->batch, g->step_d);
    return s;
}

static int candidates(cuda_state *s, const gemm_plan *p, cublasLtMatmulHeuristicResult_t found[MAX_CANDIDATES])
{
    cublasLtMatmulPreference_t pref = NULL;
    uint64_t workspace = WORKSPACE;
    uint32_t align = 16;
    /* The best split of a weight gradient's long sum is hard to predict. */
    int count = 0, wanted = p->shape.ta ? MAX_CANDIDATES : CANDIDATES;
    if (cuda_lib.cublasLtMatmulPreferenceCreate(&pref) != CUBLAS_STATUS_SUCCESS) return 0;
    cuda_lib.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                  sizeof workspace);
    for (int k = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; k <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; k++)
        cuda_lib.cublasLtMatmulPreferenceSetAttribute(pref, (cublasLtMatmulPreferenceAttributes_t)k, &align,
                                                      sizeof align);
    if (cuda_lib.cublasLtMatmulAlgoGetHeuristic(s->lt, p->op, p->b, p->a, p->d, p->d, pref, wanted, found, &count) !=
        CUBLAS_STATUS_SUCCESS)
        count = 0;
    cuda_lib.cublasLtMatmulPreferenceDestroy(pref);
    return count;
}

/* ---- timing on buffers of its own ---------------------------------------------------------------- */

typedef struct trial {
    cloob_ctx *ctx;
    device *d;
    gemm_plan *p;
    void *A, *B, *D, *vector, *workspace, *scale;
} trial;

static int64_t elements(int64_t rows, int64_t ld, int64_t batch, int64_t step)
{
    return rows * ld + (batch - 1) * step;
}

static cloob_status trial_run(void *user)
{
    trial *t = user;
    return gemm_run(t->ctx, t->d, t->p, t->d->stream, t->D, t->A, t->B, t->D, t->vector, t->workspace);
}

static cloob_status noise(trial *t, void **out, cloob_dtype type, int64_t n)
{
    return cuda_trial_noise(t->ctx, t->d, type, n, out);
}

static cloob_status trial_open(trial *t)
{
    const gemm_shape *g = &t->p->shape;
    CLOOB_TRY(noise(t, &t->A, g->in, elements(g->ta ? g->k : g->m, g->lda, g->batch, g->step_a)));
    CLOOB_TRY(noise(t, &t->B, g->in, elements(g->tb ? g->n : g->k, g->ldb, g->batch, g->step_b)));
    if (g->fp8) {
        CLOOB_TRY(noise(t, &t->scale, CLOOB_F32, g->m + g->n));
        gemm_plan_scales(t->p, t->scale, t->scale);
    }
    CLOOB_TRY(noise(t, &t->D, g->out, elements(g->m, g->ldd, g->batch, g->step_d)));
    CLOOB_TRY(noise(t, &t->vector, g->out, g->m + g->n));
    return cuda_trial_room(t->ctx, t->d, WORKSPACE, &t->workspace);
}

static void trial_close(trial *t)
{
    void *all[] = { t->A, t->B, t->D, t->vector, t->workspace, t->scale };
    for (int i = 0; i < 6; i++) cuda_trial_free(t->d, all[i]);
}

/* The fastest candidate that runs; the first one when there is no room to time. */
static void choose(cloob_ctx *ctx, device *d, gemm_plan *p)
{
    cublasLtMatmulHeuristicResult_t found[MAX_CANDIDATES];
    trial t = { .ctx = ctx, .d = d, .p = p };
    int count = candidates(cuda_use(d), p, found);
    bool room = count > 0 && trial_open(&t) == CLOOB_OK;
    choice best = { .none = 1, .ms = 1e30f };
    for (int i = 0; i < count; i++) {
        float ms = 1e9f;
        if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
        p->algo = found[i].algo;
        p->workspace = found[i].workspaceSize;
        p->none = false;
        if (room && cuda_time_against(ctx, d, trial_run, &t, best.ms, &ms) != CLOOB_OK) continue;
        if (best.none || ms < best.ms) best = (choice){ found[i].algo, found[i].workspaceSize, ms, 0 };
        if (!room) break;
    }
    trial_close(&t);
    p->algo = best.algo;
    p->workspace = (size_t)best.workspace;
    p->ms = best.ms;
    p->none = best.none != 0;
}

static bool recall(device *d, gemm_plan *p)
{
    char key[TUNE_KEY];
    choice c;
    cublasLtMatmulHeuristicResult_t checked;
    cuda_state *s = cuda_use(d);
    key_of(&p->shape, key);
    if (!tune_get(s->tune, key, &c, sizeof c)) return false;
    if (!c.none && (cuda_lib.cublasLtMatmulAlgoCheck(s->lt, p->op, p->b, p->a, p->d, p->d, &c.algo, &checked) !=
                        CUBLAS_STATUS_SUCCESS ||
                    checked.workspaceSize > WORKSPACE))
        return false;
    p->algo = c.algo;
    p->workspace = c.none ? 0 : checked.workspaceSize;
    p->ms = c.ms;
    p->none = c.none != 0;
    return true;
}

cloob_status gemm_plan_create(cloob_ctx *ctx, device *d, const gemm_shape *shape, gemm_plan **out)
{
    char key[TUNE_KEY];
    gemm_plan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return ctx_no_memory(ctx, sizeof *p, "a GEMM's plan");
    p->shape = packed(shape);
    p->none = true;
    p->ms = 1e30f;
    if (describe(p) == CUBLAS_STATUS_SUCCESS && !recall(d, p)) {
        choose(ctx, d, p);
        choice c = { p->algo, p->workspace, p->ms, p->none };
        key_of(&p->shape, key);
        tune_put(cuda_use(d)->tune, key, &c, sizeof c);
        p->algo = c.algo, p->workspace = (size_t)c.workspace, p->ms = c.ms, p->none = c.none != 0;
    }
    if (!p->none) {
        *out = p;
        return CLOOB_OK;
    }
    gemm_plan_destroy(p);
    if (shape->extra == GEMM_SUM_A || shape->extra == GEMM_SUM_B || shape->fp8) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "GEMM (%lld, %lld, %lld): cuBLASLt has no algorithm for it",
                    (long long)shape->m, (long long)shape->n, (long long)shape->k);
}

void gemm_plan_destroy(gemm_plan *p)
{
    if (!p) return;
    if (p->op) cuda_lib.cublasLtMatmulDescDestroy(p->op);
    if (p->a) cuda_lib.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) cuda_lib.cublasLtMatrixLayoutDestroy(p->b);
    if (p->d) cuda_lib.cublasLtMatrixLayoutDestroy(p->d);
    free(p);
}

size_t gemm_plan_workspace(const gemm_plan *p) { return p ? p->workspace : 0; }
float gemm_plan_ms(const gemm_plan *p) { return p->ms; }

cloob_status gemm_run(cloob_ctx *ctx, device *d, const gemm_plan *p, void *stream, void *D, const void *A,
                      const void *B, const void *C, void *vector, void *workspace)
{
    const gemm_shape *g = &p->shape;
    cuda_state *s = cuda_use(d);
    float beta = g->add ? 1.0f : 0.0f;
    if (has_vector(g->extra) && set_vector(p, vector) != CUBLAS_STATUS_SUCCESS)
        return ctx_fail(ctx, CLOOB_ERR_DEVICE, "GEMM: cuBLASLt refuses the bias");
    cublasStatus_t st = cuda_lib.cublasLtMatmul(s->lt, p->op, &g->alpha, B, p->b, A, p->a, &beta, g->add ? C : D, p->d,
                                                D, p->d, &p->algo, workspace, p->workspace, stream);
    if (st == CUBLAS_STATUS_SUCCESS) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_DEVICE, "GEMM (%lld, %lld, %lld): cuBLASLt error %d", (long long)g->m,
                    (long long)g->n, (long long)g->k, (int)st);
}
