/* Convolutions in F32 without oneDNN: patches as rows of a matrix, then one GEMM per image. */
#include <stdlib.h>
#include <string.h>

#include "nn/cpu/cpu.h"
#include "tensor/cpu/gemm.h"

typedef struct sizes {
    int64_t N, H, W, C, O, K, Ho, Wo, s, p, rows, width; /* rows Ho Wo of width K K C */
} sizes;

static sizes sizes_of(const tensor *x, const tensor *w, const tensor *y, const op_attr *at)
{
    return (sizes){ x->dim[0],
                    x->dim[1],
                    x->dim[2],
                    x->dim[3],
                    w->dim[0],
                    w->dim[1],
                    y->dim[1],
                    y->dim[2],
                    at->stride,
                    at->pad,
                    y->dim[1] * y->dim[2],
                    w->dim[1] * w->dim[1] * x->dim[3] };
}

static bool ours(const tensor *x, const tensor *w) { return x->dtype == CLOOB_F32 && x->dim[3] == w->dim[3]; }

/* One patch matrix per thread; weight gradients need a partial sum per thread as well. */
static cloob_status scratch_for(const op_env *env, op_args *a, const tensor *x, const tensor *w, const tensor *y,
                                bool sums)
{
    sizes z = sizes_of(x, w, y, &a->attr);
    int64_t each = z.rows * z.width + (sums ? z.O * z.width : 0);
    if (ours(x, w)) a->scratch_bytes = (size_t)(pool_ranges(env->ctx, z.N, 1) * each) * sizeof(float);
    return CLOOB_OK;
}

static cloob_status prepare_forward(const op_env *env, op_args *a)
{
    return scratch_for(env, a, &a->in[0], &a->in[1], &a->out[0], false);
}

static cloob_status prepare_dx(const op_env *env, op_args *a)
{
    return scratch_for(env, a, &a->out[0], &a->in[1], &a->in[0], false);
}

static cloob_status prepare_dw(const op_env *env, op_args *a)
{
    return scratch_for(env, a, &a->in[1], &a->out[0], &a->in[0], true);
}

/* Copies patches out of an image, or adds them back into it. */
static void patches(const sizes *z, float *matrix, const float *from, float *into)
{
    for (int64_t r = 0; r < z->rows; r++)
        for (int64_t k = 0; k < z->K * z->K; k++) {
            int64_t h = r / z->Wo * z->s + k / z->K - z->p, w = r % z->Wo * z->s + k % z->K - z->p;
            float *row = matrix + (r * z->K * z->K + k) * z->C;
            bool inside = h >= 0 && h < z->H && w >= 0 && w < z->W;
            int64_t at = (h * z->W + w) * z->C;
            if (from && inside) memcpy(row, from + at, (size_t)z->C * sizeof *row);
            else if (from) memset(row, 0, (size_t)z->C * sizeof *row);
            for (int64_t c = 0; into && inside && c < z->C; c++) into[at + c] += row[c];
        }
}

typedef struct job {
    sizes z;
    const op_args *a;
} job;

static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const sizes *z = &j->z;
    float *matrix = (float *)j->a->scratch + thread * z->rows * z->width;
    const float *bias = j->a->in[2].data, *res = j->a->in[3].data;
    for (int64_t n = begin; n < end; n++) {
        float *y = (float *)j->a->out[0].data + n * z->rows * z->O;
        patches(z, matrix, (const float *)j->a->in[0].data + n * z->H * z->W * z->C, NULL);
        bool in_place = res == j->a->out[0].data;
        gemm_tile(false, true, z->rows, z->O, z->width, 1.0f, matrix, z->width, j->a->in[1].data, z->width,
                  in_place ? 1.0f : 0.0f, y, z->O);
        for (int64_t i = 0; i < z->rows * z->O; i++) {
            float v = y[i] + (bias ? bias[i % z->O] : 0) + (res && !in_place ? res[n * z->rows * z->O + i] : 0);
            y[i] = j->a->attr.relu && v < 0 ? 0 : v;
        }
    }
}

static cloob_status run_forward(const op_env *env, const op_args *a)
{
    if (!ours(&a->in[0], &a->in[1])) return conv2d_ref(env, a);
    job j = { sizes_of(&a->in[0], &a->in[1], &a->out[0], &a->attr), a };
    pool_for(env->ctx, j.z.N, 1, forward_range, &j);
    return CLOOB_OK;
}

static void dx_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const sizes *z = &j->z;
    float *matrix = (float *)j->a->scratch + thread * z->rows * z->width;
    for (int64_t n = begin; n < end; n++) {
        const float *dy = (const float *)j->a->in[0].data + n * z->rows * z->O;
        float *dx = (float *)j->a->out[0].data + n * z->H * z->W * z->C;
        gemm_tile(false, false, z->rows, z->width, z->O, 1.0f, dy, z->O, j->a->in[1].data, z->width, 0.0f, matrix,
                  z->width);
        memset(dx, 0, (size_t)(z->H * z->W * z->C) * sizeof *dx);
        patches(z, matrix, NULL, dx);
    }
}

static cloob_status run_dx(const op_env *env, const op_args *a)
{
    if (!ours(&a->out[0], &a->in[1])) return conv2d_dx_ref(env, a);
    job j = { sizes_of(&a->out[0], &a->in[1], &a->in[0], &a->attr), a };
    pool_for(env->ctx, j.z.N, 1, dx_range, &j);
    return CLOOB_OK;
}

static void dw_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const sizes *z = &j->z;
    float *sum = (float *)j->a->scratch + thread * (z->rows + z->O) * z->width, *matrix = sum + z->O * z->width;
    for (int64_t n = begin; n < end; n++) {
        const float *dy = (const float *)j->a->in[0].data + n * z->rows * z->O;
        patches(z, matrix, (const float *)j->a->in[1].data + n * z->H * z->W * z->C, NULL);
        gemm_tile(true, false, z->O, z->width, z->rows, 1.0f, dy, z->O, matrix, z->width, n > begin ? 1.0f : 0.0f, sum,
                  z->width);
    }
}

static cloob_status run_dw(const op_env *env, const op_args *a)
{
    if (!ours(&a->in[1], &a->out[0])) return conv2d_dw_ref(env, a);
    job j = { sizes_of(&a->in[1], &a->out[0], &a->in[0], &a->attr), a };
    const sizes *z = &j.z;
    float *dw = a->out[0].data;
    pool_for(env->ctx, z->N, 1, dw_range, &j);
    for (int64_t i = 0; i < z->O * z->width; i++) {
        double total = 0;
        for (int t = 0; t < pool_ranges(env->ctx, z->N, 1); t++)
            total += (double)((float *)a->scratch)[t * (z->rows + z->O) * z->width + i];
        dw[i] = (float)total;
    }
    return CLOOB_OK;
}

const conv_loops conv_gemm = { .prepare = prepare_forward,
                               .dx_prepare = prepare_dx,
                               .dw_prepare = prepare_dw,
                               .run = run_forward,
                               .dx = run_dx,
                               .dw = run_dw };
