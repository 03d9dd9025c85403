/* Convolutions in bf16 as GEMMs of patches, which are gathered while they are packed:
 *
 *     y  (pixels, O)    = patches of x (pixels, k k C) times w^T
 *     dx (pixels, C)    = patches of dy, kernel elements backwards (pixels, k k O), times w sorted by kernel element
 *     dw (O, k k C)     = dy^T times patches of x
 *
 * Images are plain (N, H, W, C). A kernel of 1 x 1 without stride needs no patches. */
#include "nn/cpu/gemm_bf16.h"

typedef struct sizes {
    int64_t N, H, W, C, O, k, c, Ho, Wo, s, p; /* c: channels of the weight, C: of x */
} sizes;

static sizes sizes_of(const tensor *x, const tensor *w, const tensor *y, const op_attr *at)
{
    return (sizes){ x->dim[0], x->dim[1], x->dim[2], x->dim[3],  w->dim[0], w->dim[1],
                    w->dim[3], y->dim[1], y->dim[2], at->stride, at->pad };
}

static bool is_matrix(const sizes *z) { return z->k == 1 && z->s == 1 && z->p == 0; }

static bgemm_view patches_of_x(const sizes *z, const void *x, bgemm_patches *p)
{
    *p = (bgemm_patches){ z->H, z->W, z->C, z->c, z->Ho, z->Wo, z->k, z->s, 1, -z->p, 1 };
    if (is_matrix(z)) return bgemm_matrix(x, z->N * z->H * z->W, z->c, z->C);
    return (bgemm_view){ .data = x, .rows = z->N * z->Ho * z->Wo, .cols = z->k * z->k * z->c, .patches = p };
}

static bgemm_view patches_of_dy(const sizes *z, const void *dy, bgemm_patches *p)
{
    *p = (bgemm_patches){ z->Ho, z->Wo, z->O, z->O, z->H, z->W, z->k, 1, -1, z->p, z->s };
    if (is_matrix(z)) return bgemm_matrix(dy, z->N * z->H * z->W, z->O, z->O);
    return (bgemm_view){ .data = dy, .rows = z->N * z->H * z->W, .cols = z->k * z->k * z->O, .patches = p };
}

static bgemm_call forward_call(const op_args *a, bgemm_patches *p)
{
    sizes z = sizes_of(&a->in[0], &a->in[1], &a->out[0], &a->attr);
    int64_t K = z.k * z.k * z.c;
    return (bgemm_call){ .M = z.N * z.Ho * z.Wo,
                         .N = z.O,
                         .K = K,
                         .a = patches_of_x(&z, a->in[0].data, p),
                         .b = bgemm_matrix(a->in[1].data, z.O, K, K),
                         .tb = true,
                         .packed = true,
                         .c = a->out[0].data,
                         .ldc = z.O,
                         .bias = a->in[2].data,
                         .res = a->in[3].data,
                         .relu = a->attr.relu };
}

static bgemm_call dx_call(const op_args *a, bgemm_patches *p)
{
    sizes z = sizes_of(&a->out[0], &a->in[1], &a->in[0], &a->attr);
    int64_t T = z.k * z.k, K = T * z.O;
    bgemm_view w = { a->in[1].data, K, z.c, T * z.c, z.O, z.c, NULL }; /* row (u, v, o) */
    return (bgemm_call){ .M = z.N * z.H * z.W,
                         .N = z.c,
                         .K = K,
                         .a = patches_of_dy(&z, a->in[0].data, p),
                         .b = w,
                         .packed = true,
                         .c = a->out[0].data,
                         .ldc = z.C };
}

static bgemm_call dw_call(const op_args *a, bgemm_patches *p)
{
    sizes z = sizes_of(&a->in[1], &a->out[0], &a->in[0], &a->attr);
    int64_t K = z.N * z.Ho * z.Wo, columns = z.k * z.k * z.c;
    return (bgemm_call){ .M = z.O,
                         .N = columns,
                         .K = K,
                         .a = bgemm_matrix(a->in[0].data, K, z.O, z.O),
                         .ta = true,
                         .b = patches_of_x(&z, a->in[1].data, p),
                         .c = a->out[0].data,
                         .ldc = columns,
                         .c_float = true };
}

typedef bgemm_call call_fn(const op_args *a, bgemm_patches *p);

static cloob_status prepare(const op_env *env, op_args *a, call_fn *call)
{
    bgemm_patches p;
    bgemm_call x = call(a, &p);
    return gemm_bf16_prepare(env, a, &x);
}

static cloob_status run(const op_env *env, const op_args *a, call_fn *call)
{
    bgemm_patches p;
    bgemm_call x = call(a, &p);
    gemm_bf16_run(env, a, &x);
    return CLOOB_OK;
}

cloob_status conv2d_prepare_of_bf16(const op_env *env, op_args *a) { return prepare(env, a, forward_call); }
cloob_status conv2d_dx_prepare_of_bf16(const op_env *env, op_args *a) { return prepare(env, a, dx_call); }
cloob_status conv2d_dw_prepare_of_bf16(const op_env *env, op_args *a) { return prepare(env, a, dw_call); }
cloob_status conv2d_bf16(const op_env *env, const op_args *a) { return run(env, a, forward_call); }
cloob_status conv2d_dw_bf16(const op_env *env, const op_args *a) { return run(env, a, dw_call); }

cloob_status conv2d_dx_bf16(const op_env *env, const op_args *a)
{
    bgemm_patches p;
    bgemm_call x = dx_call(a, &p);
    uint16_t *dx = a->out[0].data;
    for (int64_t i = 0; x.N < x.ldc && i < x.M * x.ldc; i++) dx[i] = 0; /* channels that the weight does not have */
    gemm_bf16_run(env, a, &x);
    return CLOOB_OK;
}
