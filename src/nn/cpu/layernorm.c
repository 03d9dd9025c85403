/* Layer norm. Gain and bias gradients are summed over fixed chunks of rows and then in order. */
#include "nn/cpu/cpu.h"

enum { CHUNK = 64 };

typedef struct job {
    const float *dy, *x, *gain, *bias, *extra;
    float *y, *mean, *rstd, *dx, *part;
    int64_t R, C;
    float eps;
} job;

CPU_CLONES static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t C = j->C;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * C;
        float *y = j->y + r * C, sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < C; c++) sum += x[c];
        float mu = sum / (float)C;
#pragma omp simd reduction(+ : square)
        for (int64_t c = 0; c < C; c++) square += (x[c] - mu) * (x[c] - mu);
        float s = 1.0f / sqrtf(square / (float)C + j->eps);
        for (int64_t c = 0; c < C; c++) y[c] = (x[c] - mu) * s * j->gain[c] + j->bias[c];
        if (j->mean) j->mean[r] = mu;
        if (j->rstd) j->rstd[r] = s;
    }
}

cloob_status layernorm_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], layernorm_ref);
    job j = { .x = a->in[0].data, .gain = a->in[1].data, .bias = a->in[2].data, .y = a->out[0].data, .mean = a->out[1].data,
              .rstd = a->out[2].data, .R = tensor_rows(&a->in[0]), .C = tensor_cols(&a->in[0]), .eps = a->attr.eps };
    pool_for(env->ctx, j.R, 8, forward_range, &j);
    return CLOOB_OK;
}

static inline void row_backward(const job *j, int64_t r)
{
    int64_t C = j->C;
    const float *dy = j->dy + r * C, *x = j->x + r * C, *extra = j->extra ? j->extra + r * C : NULL;
    float *dx = j->dx + r * C, mu = j->mean[r], s = j->rstd[r], m1 = 0, m2 = 0;
#pragma omp simd reduction(+ : m1, m2)
    for (int64_t c = 0; c < C; c++) {
        float g = dy[c] * j->gain[c];
        m1 += g;
        m2 += g * (x[c] - mu) * s;
    }
    m1 /= (float)C;
    m2 /= (float)C;
    for (int64_t c = 0; c < C; c++) {
        float v = s * (dy[c] * j->gain[c] - m1 - (x[c] - mu) * s * m2);
        dx[c] = extra ? v + extra[c] : v;
    }
}

CPU_CLONES static void backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t C = j->C;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        float *gain = j->part + k * 2 * C, *bias = gain + C;
        int64_t last = (k + 1) * CHUNK < j->R ? (k + 1) * CHUNK : j->R;
        for (int64_t c = 0; c < 2 * C; c++) gain[c] = 0;
        for (int64_t r = k * CHUNK; r < last; r++) {
            const float *dy = j->dy + r * C, *x = j->x + r * C;
            float mu = j->mean[r], s = j->rstd[r];
            for (int64_t c = 0; c < C; c++) {
                gain[c] += dy[c] * (x[c] - mu) * s;
                bias[c] += dy[c];
            }
            if (j->dx) row_backward(j, r);
        }
    }
}

static int64_t chunks(int64_t rows) { return (rows + CHUNK - 1) / CHUNK; }

cloob_status layernorm_bwd_prepare(const op_env *env, op_args *a)
{
    (void)env;
    a->scratch_bytes = (size_t)(chunks(tensor_rows(&a->in[1])) * 2 * tensor_cols(&a->in[1])) * sizeof(float);
    return CLOOB_OK;
}

cloob_status layernorm_bwd_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[1], layernorm_bwd_ref);
    job j = { .dy = a->in[0].data, .x = a->in[1].data, .mean = a->in[2].data, .rstd = a->in[3].data, .gain = a->in[4].data,
              .extra = a->in[5].data, .dx = a->out[0].data, .part = a->scratch, .R = tensor_rows(&a->in[1]), .C = tensor_cols(&a->in[1]) };
    float *dgain = a->out[1].data, *dbias = a->out[2].data;
    int64_t K = chunks(j.R);
    pool_for(env->ctx, K, 1, backward_range, &j);
    for (int64_t c = 0; c < j.C; c++) {
        double gain = 0, bias = 0;
        for (int64_t k = 0; k < K; k++) gain += (double)j.part[k * 2 * j.C + c], bias += (double)j.part[(k * 2 + 1) * j.C + c];
        if (dgain) dgain[c] = (float)gain;
        if (dbias) dbias[c] = (float)bias;
    }
    op_args again = layernorm_again(a);
    return again.out[0].data ? layernorm_cpu(env, &again) : CLOOB_OK;
}
