/* Batch norm folded into the convolution before it. Runs once per model, but over all of its weights: it is part of how
 * fast a program starts. */
#include <math.h>

#include "nn/cpu/cpu.h"

typedef struct job {
    const float *w, *gain, *bias, *mean, *var;
    float *folded, *shift;
    int64_t K;
    float eps;
} job;

CPU_CLONES static void fold_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t o = begin; o < end; o++) {
        double s = (double)j->gain[o] / sqrt((double)j->var[o] + (double)j->eps);
        const float *w = j->w + o * j->K;
        float *folded = j->folded + o * j->K;
        for (int64_t k = 0; k < j->K; k++) folded[k] = (float)(s * (double)w[k]);
        j->shift[o] = (float)((double)j->bias[o] - s * (double)j->mean[o]);
    }
}

cloob_status fold_bn_cpu(const op_env *env, const op_args *a)
{
    if (a->in[0].dtype != CLOOB_F32) return fold_bn_ref(env, a);
    int64_t O = a->in[0].dim[0], K = tensor_count(&a->in[0]) / O;
    job j = { .w = a->in[0].data,
              .gain = a->in[1].data,
              .bias = a->in[2].data,
              .mean = a->in[3].data,
              .var = a->in[4].data,
              .folded = a->out[0].data,
              .shift = a->out[1].data,
              .K = K,
              .eps = a->attr.eps };
    pool_for(env->ctx, O, 1 + 32768 / K, fold_range, &j);
    return CLOOB_OK;
}
