/* Convolutions as GEMMs of patches, which are gathered while they are packed:
 *
 *     y  (pixels, O)    = patches of x (pixels, k k C) times w^T
 *     dx (pixels, C)    = patches of dy, kernel elements backwards (pixels, k k O), times w sorted by kernel element
 *     dw (O, k k C)     = dy^T times patches of x
 *
 * Images are plain (N, H, W, C). A kernel of 1 x 1 without stride needs no patches. In F32, kernels of 3 x 3 go through
 * Winograd's algorithm where that helps (conv_winograd.h). */
#include <string.h>

#include "nn/cpu/conv_winograd.h"
#include "nn/cpu/gemm_op.h"

typedef struct sizes {
    int64_t N, H, W, C, O, k, c, Ho, Wo, s, p; /* c: channels of the weight, C: of x */
} sizes;

static sizes sizes_of(const tensor *x, const tensor *w, const tensor *y, const op_attr *at)
{
    return (sizes){ x->dim[0], x->dim[1], x->dim[2], x->dim[3],  w->dim[0], w->dim[1],
                    w->dim[3], y->dim[1], y->dim[2], at->stride, at->pad };
}

static bool is_matrix(const sizes *z) { return z->k == 1 && z->s == 1 && z->p == 0; }

static gemm_view patches_of_x(const sizes *z, const void *x, gemm_patches *p)
{
    *p = (gemm_patches){ z->H, z->W, z->C, z->c, z->Ho, z->Wo, z->k, z->s, 1, -z->p, 1 };
    if (is_matrix(z)) return gemm_matrix(x, z->N * z->H * z->W, z->c, z->C);
    return (gemm_view){ .data = x, .rows = z->N * z->Ho * z->Wo, .cols = z->k * z->k * z->c, .patches = p };
}

static gemm_view patches_of_dy(const sizes *z, const void *dy, gemm_patches *p)
{
    *p = (gemm_patches){ z->Ho, z->Wo, z->O, z->O, z->H, z->W, z->k, 1, -1, z->p, z->s };
    if (is_matrix(z)) return gemm_matrix(dy, z->N * z->H * z->W, z->O, z->O);
    return (gemm_view){ .data = dy, .rows = z->N * z->H * z->W, .cols = z->k * z->k * z->O, .patches = p };
}

static gemm_call forward_call(const op_args *a, gemm_patches *p)
{
    sizes z = sizes_of(&a->in[0], &a->in[1], &a->out[0], &a->attr);
    int64_t K = z.k * z.k * z.c;
    return (gemm_call){ .M = z.N * z.Ho * z.Wo,
                        .N = z.O,
                        .K = K,
                        .a = patches_of_x(&z, a->in[0].data, p),
                        .b = gemm_matrix(a->in[1].data, z.O, K, K),
                        .tb = true,
                        .c = a->out[0].data,
                        .c_bf16 = a->out[0].dtype == CLOOB_BF16,
                        .ldc = z.O,
                        .bias = a->in[2].data,
                        .res = a->in[3].data,
                        .relu = a->attr.relu };
}

static gemm_call dx_call(const op_args *a, gemm_patches *p)
{
    sizes z = sizes_of(&a->out[0], &a->in[1], &a->in[0], &a->attr);
    int64_t T = z.k * z.k, K = T * z.O;
    gemm_view w = { a->in[1].data, K, z.c, T * z.c, z.O, z.c, NULL }; /* row (u, v, o) */
    return (gemm_call){ .M = z.N * z.H * z.W,
                        .N = z.c,
                        .K = K,
                        .a = patches_of_dy(&z, a->in[0].data, p),
                        .b = w,
                        .c = a->out[0].data,
                        .c_bf16 = a->out[0].dtype == CLOOB_BF16,
                        .ldc = z.C };
}

static gemm_call dw_call(const op_args *a, gemm_patches *p)
{
    sizes z = sizes_of(&a->in[1], &a->out[0], &a->in[0], &a->attr);
    int64_t K = z.N * z.Ho * z.Wo, columns = z.k * z.k * z.c;
    return (gemm_call){ .M = z.O,
                        .N = columns,
                        .K = K,
                        .a = gemm_matrix(a->in[0].data, K, z.O, z.O),
                        .ta = true,
                        .b = patches_of_x(&z, a->in[1].data, p),
                        .c = a->out[0].data,
                        .ldc = columns };
}

typedef gemm_call call_fn(const op_args *a, gemm_patches *p);

static cloob_status prepare(const op_env *env, op_args *a, call_fn *call, bool weight)
{
    gemm_patches p;
    gemm_call x = call(a, &p);
    return gemm_op_prepare(env, a, &x, weight);
}

/* Winograd's algorithm takes 4 (tiles of 4 x 4) or 2.25 times fewer multiplications for a 3 x 3 kernel, at the price of
 * larger weights and of rounding (about 1e-6 of a row). */
static bool may_winograd(const op_args *a, const tensor *x, const tensor *w)
{
    return x->dtype == CLOOB_F32 && w->dim[1] == 3 && w->dim[2] == 3 && a->attr.stride == 1 && a->attr.pad == 1 &&
           x->dim[3] == w->dim[3] && !op_has(&a->in[3]);
}

cloob_status conv2d_prepare(const op_env *env, op_args *a)
{
    conv_winograd *winograd = NULL;
    if (may_winograd(a, &a->in[0], &a->in[1])) CLOOB_TRY(conv_winograd_create(env, a, false, &winograd));
    a->state = winograd;
    return winograd ? CLOOB_OK : prepare(env, a, forward_call, true);
}

cloob_status conv2d_dx_prepare(const op_env *env, op_args *a)
{
    conv_winograd *winograd = NULL;
    if (may_winograd(a, &a->out[0], &a->in[1])) CLOOB_TRY(conv_winograd_create(env, a, true, &winograd));
    a->state = winograd;
    return winograd ? CLOOB_OK : prepare(env, a, dx_call, true);
}

cloob_status conv2d_dw_prepare(const op_env *env, op_args *a)
{
    if (may_winograd(a, &a->in[1], &a->out[0]) && conv_winograd_dw_prepare(env, a)) return CLOOB_OK;
    return prepare(env, a, dw_call, false);
}

void conv2d_release(const op_env *env, op_args *a)
{
    (void)env;
    conv_winograd_destroy(a->state);
    a->state = NULL;
}

/* Of a batch that is filled in part, the images that are there. */
cloob_status conv2d_cpu(const op_env *env, const op_args *a)
{
    if (a->state) return conv_winograd_run(env, a, a->state);
    gemm_patches p;
    gemm_call x = forward_call(a, &p);
    gemm_op_rounding(a, &x);
    x.M = x.a.rows = op_live_rows(env, &a->out[0]);
    return gemm_op_run(env, a, &x, true);
}

cloob_status conv2d_dw_cpu(const op_env *env, const op_args *a)
{
    if (may_winograd(a, &a->in[1], &a->out[0]) && conv_winograd_dw_run(env, a)) return CLOOB_OK;
    gemm_patches p;
    gemm_call x = dw_call(a, &p);
    return gemm_op_run(env, a, &x, false);
}

cloob_status conv2d_dx_cpu(const op_env *env, const op_args *a)
{
    if (a->state) return conv_winograd_run(env, a, a->state);
    gemm_patches p;
    gemm_call x = dx_call(a, &p);
    if (x.N < x.ldc) memset(a->out[0].data, 0, tensor_bytes(&a->out[0])); /* channels that the weight does not have */
    return gemm_op_run(env, a, &x, true);
}
