/* Convolutions of either element type: F32 by oneDNN (conv_onednn.c) or, where it is missing, GEMMs (conv_gemm.c); bf16
 * by the packed GEMM (conv_bf16.c). In F32 inference a convolution whose windows do not overlap, a vision transformer's
 * first op, is a GEMM with packed weights here: patches are gathered as rows of a matrix, and a patch has the same
 * bytes in any batch. */
#include <string.h>

#include "nn/cpu/gemm_op.h"
#if CPU_HAS_ONEDNN
#    include "tensor/cpu/onednn.h"
#endif

/* ---- patches --------------------------------------------------------------------------------------- */

/* Whether it is one: frozen F32 weights, stride = kernel, no padding, plain layout. Decided by shapes alone. */
static bool patches_fit(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    return env->invariant && env->frozen_weights && x->dtype == CLOOB_F32 && w->dtype == CLOOB_F32 &&
           gemm_is_fast(GEMM_F32) && a->attr.pad == 0 && a->attr.stride == w->dim[1] && w->dim[1] == w->dim[2] &&
           x->dim[3] == w->dim[3] && y->dim[1] * w->dim[1] == x->dim[1] && y->dim[2] * w->dim[1] == x->dim[2] &&
           !a->attr.relu && !x->block && !y->block;
}

static gemm_call patches_call(const op_args *a, int64_t rows)
{
    const tensor *w = &a->in[1];
    int64_t N = w->dim[0], K = w->dim[1] * w->dim[2] * w->dim[3];
    return (gemm_call){ .M = rows,
                        .N = N,
                        .K = K,
                        .a = gemm_matrix(a->scratch, rows, K, K),
                        .b = gemm_matrix(w->data, N, K, K),
                        .tb = true,
                        .c = a->out[0].data,
                        .ldc = N,
                        .bias = a->in[2].data,
                        .res = a->in[3].data };
}

static size_t matrix_bytes(const op_args *a)
{
    gemm_call x = patches_call(a, tensor_rows(&a->out[0]));
    return ((size_t)(x.M * x.K) * sizeof(float) + 255) / 256 * 256;
}

static cloob_status patches_prepare(const op_env *env, op_args *a)
{
    gemm_call x = patches_call(a, tensor_rows(&a->out[0]));
    a->scratch_bytes = matrix_bytes(a) + gemm_op_scratch(env, gemm_best(GEMM_F32), &x);
    return CLOOB_OK;
}

/* Row r is the patch at (n, i, j): k runs of k C elements. */
static void gather_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t k = a->in[1].dim[1], run = k * x->dim[3], line = x->dim[2] * x->dim[3];
    float *to = a->scratch;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t j = r % y->dim[2], i = r / y->dim[2] % y->dim[1], n = r / (y->dim[1] * y->dim[2]);
        const float *from = (const float *)x->data + (n * x->dim[1] + i * k) * line + j * run;
        for (int64_t u = 0; u < k; u++) memcpy(to + (r * k + u) * run, from + u * line, (size_t)run * sizeof *to);
    }
}

static cloob_status patches_run(const op_env *env, const op_args *a)
{
    const gemm_kernel *kernel = gemm_best(GEMM_F32);
    gemm_call x = patches_call(a, op_live_rows(env, &a->out[0]));
    bool fresh = false;
    op_args gather = *a;
    void *packed = weight_cache_get(env->cache, x.b.data, gemm_packed_bytes(kernel, x.N, x.K), &fresh);
    if (packed && fresh) gemm_pack(env->ctx, kernel, &x, packed);
    pool_share(env->ctx, x.M, 8, gather_range, &gather);
    x.packed = packed;
    gemm_packed_run(env->ctx, kernel, &x, (char *)a->scratch + matrix_bytes(a));
    return CLOOB_OK;
}

/* ---- by element type ------------------------------------------------------------------------------- */

/* CPU_HAS_ONEDNN comes from the build; whether the library is on this machine shows in the first convolution. */
#if CPU_HAS_ONEDNN
static bool by_onednn(void) { return onednn_is_there(); }
static const conv_loops *const with_onednn = &conv_onednn;
#else
static bool by_onednn(void) { return false; }
static const conv_loops *const with_onednn = &conv_gemm;
#endif

static const conv_loops *loops_of(const tensor *t)
{
    return t->dtype == CLOOB_BF16 ? &conv_bf16 : by_onednn() ? with_onednn : &conv_gemm;
}

/* oneDNN's kernels for AVX-512 take blocks of 16, those for less take 8: with other blocks every convolution begins and
 * ends with a reorder. Only oneDNN takes blocks. */
int64_t op_image_block(void)
{
    if (!by_onednn()) return 0;
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx512f")) return 8;
#endif
    return 16;
}

cloob_status conv2d_prepare(const op_env *env, op_args *a)
{
    return patches_fit(env, a) ? patches_prepare(env, a) : loops_of(&a->in[0])->prepare(env, a);
}

cloob_status conv2d_dx_prepare(const op_env *env, op_args *a) { return loops_of(&a->in[0])->dx_prepare(env, a); }

cloob_status conv2d_dw_prepare(const op_env *env, op_args *a) { return loops_of(&a->in[0])->dw_prepare(env, a); }

cloob_status conv2d_cpu(const op_env *env, const op_args *a)
{
    return patches_fit(env, a) ? patches_run(env, a) : loops_of(&a->in[0])->run(env, a);
}

cloob_status conv2d_dx_cpu(const op_env *env, const op_args *a) { return loops_of(&a->in[0])->dx(env, a); }

cloob_status conv2d_dw_cpu(const op_env *env, const op_args *a) { return loops_of(&a->in[0])->dw(env, a); }

void conv2d_release(const op_env *env, op_args *a)
{
    cpu_release *release = a->state ? loops_of(&a->in[0])->release : NULL;
    if (release) release(env, a);
}
