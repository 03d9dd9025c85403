/* Kernels between and instead of the attention pool's GEMMs (attnpool.c). */
#ifndef NN_CUDA_ATTNPOOL_H
#define NN_CUDA_ATTNPOOL_H

#include "nn/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

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
