/* bf16 tensors rounded to 8 bits under a scale of their own, which follows their largest element (delayed scaling).
 *
 * A tensor is multiplied by a power of two that leaves its largest element of the steps before at most half of the
 * format's largest number; what has grown beyond that since is clamped. The first rounding looks at the tensor
 * itself. */
#ifndef NN_CUDA_LINEAR_QUANTIZE_H
#define NN_CUDA_LINEAR_QUANTIZE_H

#include "nn/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum quant_format { QUANT_E4M3, QUANT_E5M2 } quant_format;

/* In device memory, zero at first. */
typedef struct quant_scale {
    float inverse;    /* what the 8-bit numbers are to be multiplied by */
    float max;        /* largest element, of the steps before; fades by 5 % a step */
    unsigned current; /* bits of the largest element of this step */
    unsigned blocks;  /* that have finished */
} quant_scale;

/* to: count bytes = from: count bf16, a multiple of 16. fresh: the scale is taken from the tensor first. tail, where
 * given, takes the inverse scale, too. */
cloob_status quantize_cuda(const op_env *env, const char *op, void *to, const void *from, int64_t count,
                           quant_format format, quant_scale *scale, float *tail, bool fresh);
/* to (cols, rows) e4m3 = from (rows, cols); both are multiples of 16. */
cloob_status quantize_turned_cuda(const op_env *env, const char *op, void *to, const void *from, int64_t rows,
                                  int64_t cols, quant_scale *scale, bool fresh);

/* to (rows, k) bytes = from (rows, k) bf16 over inverse (rows); k is a multiple of 16. */
cloob_status quantize_rows_cuda(const op_env *env, const char *op, void *to, float *inverse, const void *from,
                                int64_t rows, int64_t k);

/* The state, or its beginning, of an op that writes an 8-bit copy of its output 0 (OP_ROUNDED_OUT); an op without other
 * state has none if the copy is not an output. */
typedef struct rounding {
    quant_scale *scale; /* device memory */
    bool fresh;         /* nothing was rounded yet */
} rounding;

cloob_status rounding_open(const op_env *env, rounding *r);
cuda_prepare_fn rounding_prepare_cuda; /* for an op without another state */
cuda_release_fn rounding_release_cuda;
/* The largest element of the steps before (op_kernel.history). */
cloob_status rounding_history_cuda(const op_env *env, const op_args *a, float max[OP_HISTORY], bool set);
/* The copy is wanted and can be written along with output 0: its scale is known. */
bool rounding_is_fused(const op_args *a);
/* Behind a kernel that wrote the copy and noted its largest element, but did not end the step (quantize.cuh). */
cloob_status rounding_end(const op_env *env, const char *op, const op_args *a, quant_format format);
/* The copy, where it is wanted, by a pass over output 0. */
cloob_status rounding_pass(const op_env *env, const char *op, const op_args *a, quant_format format);

#ifdef __cplusplus
}
#endif
#endif
