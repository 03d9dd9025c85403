/* The attention pool in one launch: scores, softmax and what they mix, a block to an image or text.
 *
 * bf16, widths that are multiples of 32; tokens and heads as far as shared memory goes. cuda/attnpool.c has GEMMs for
 * the rest, and for packed sequences plain kernels. */
#ifndef NN_CUDA_POOL_POOL_KERNEL_H
#define NN_CUDA_POOL_POOL_KERNEL_H

#include "nn/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Warps of a block; more of them leave fewer images on the GPU at a time, whose rows then stay in the L2 cache. */
enum { POOL_FORWARD_WARPS = 8, POOL_BACKWARD_WARPS = 16 };

/* Whether a block of so many warps (4, 8 or 16) can do it; T: the most tokens of a sequence. */
bool pool_kernel_fits(const device *d, int warps, cloob_dtype dtype, int64_t T, int64_t C, int64_t H);

/* The warps to take for N sequences: those wanted, or, with up to 16 heads, the fewest that fill the chip; fewer where
 * they do not fit. 0: no number fits. */
int pool_kernel_warps(const device *d, int wanted, cloob_dtype dtype, int64_t N, int64_t T, int64_t C, int64_t H);

/* The ops of op_list.h, without padding rows; p of the first may be absent, and either result of the second. */
cloob_status pool_kernel(const op_env *env, const op_args *a, int warps);
cloob_status pool_kernel_bwd(const op_env *env, const op_args *a, int warps);

/* Which tokens the queries see, for kernels: at most T each. */
typedef struct pool_seen {
    const int32_t *index, *start; /* as in op_list.h; NULL: absent */
    int64_t T, H;
} pool_seen;

/* The softmax between GEMMs. p (N, H, T) F32 in place, 0 for tokens that are not seen; half: (N, H, ld) copy in the
 * compute type, whose columns from T on are 0. */
cloob_status pool_softmax(const op_env *env, float *p, void *half, cloob_dtype dtype, const pool_seen *seen, int64_t N,
                          int64_t ld);
/* dz = p (dp - sum p dp) and p itself, both in the compute type with ld columns. */
cloob_status pool_softmax_bwd(const op_env *env, void *dz, void *half, cloob_dtype dtype, const float *p,
                              const float *dp, const pool_seen *seen, int64_t N, int64_t ld);

/* What the GEMMs do, for packed rows. score (N, H, T) F32 = a (N, H, C) t^T. */
cloob_status pool_packed_score(const op_env *env, float *score, const void *a, const tensor *t, const pool_seen *seen,
                               int64_t N);
/* y (N, H, C) = p t, with p (N, H, ld). */
cloob_status pool_packed_mix(const op_env *env, void *y, const void *p, const tensor *t, const pool_seen *seen,
                             int64_t N, int64_t ld);
/* dt (R, C) = p^T ds + dz^T u; padding rows are skipped. */
cloob_status pool_packed_back(const op_env *env, const tensor *dt, const void *p, const void *ds, const void *dz,
                              const void *u, const pool_seen *seen, int64_t N, int64_t ld);

#ifdef __cplusplus
}
#endif
#endif
