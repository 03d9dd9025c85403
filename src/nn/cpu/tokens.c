/* Pictures, token embeddings, and the grid of an attention pool, which may come in blocks of channels. */
#include <string.h>

#include "nn/cpu/cpu.h"

typedef struct job {
    const op_args *a;
} job;

CPU_CLONES static void input_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = ((const job *)arg)->a;
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t HW = y->dim[1] * y->dim[2], C = y->dim[3];
    (void)thread;
    for (int64_t n = begin; n < end; n++) {
        float *out = (float *)y->data + n * HW * C;
        for (int64_t c = 0; c < C; c++) {
            const uint8_t *bytes = (const uint8_t *)x->data + n * HW * 3;
            const float *floats = (const float *)x->data + (n * 3 + c) * HW;
            float scale = c < 3 ? 1.0f / (255.0f * a->attr.std[c]) : 0, shift = c < 3 ? -a->attr.mean[c] / a->attr.std[c] : 0;
            if (c >= 3)
                for (int64_t p = 0; p < HW; p++) out[p * C + c] = 0;
            else if (x->dtype == CLOOB_U8)
                for (int64_t p = 0; p < HW; p++) out[p * C + c] = (float)bytes[p * 3 + c] * scale + shift;
            else
                for (int64_t p = 0; p < HW; p++) out[p * C + c] = floats[p];
        }
    }
}

cloob_status image_input_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->out[0], image_input_ref);
    job j = { a };
    pool_for(env->ctx, a->out[0].dim[0], 1, input_range, &j);
    return CLOOB_OK;
}

CPU_CLONES static void embed_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = ((const job *)arg)->a;
    const int32_t *token = a->in[0].data;
    const float *table = a->in[1].data, *pos = a->in[2].data;
    int64_t T = a->out[0].dim[1], C = a->out[0].dim[2];
    float *y = a->out[0].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < C; c++) y[i * C + c] = table[token[i] * C + c] + pos[i % T * C + c];
}

cloob_status embed_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->out[0], embed_ref);
    job j = { a };
    pool_for(env->ctx, tensor_rows(&a->out[0]), 64, embed_range, &j);
    return CLOOB_OK;
}

/* Threads share the columns: every sum is taken in the order of the rows. */
CPU_CLONES static void embed_bwd_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = ((const job *)arg)->a;
    const int32_t *token = a->in[1].data;
    const float *dy = a->in[0].data;
    float *dtable = a->out[0].data, *dpos = a->out[1].data;
    int64_t R = tensor_rows(&a->in[0]), T = a->in[0].dim[1], C = a->in[0].dim[2], V = a->in[2].dim[0], width = end - begin;
    (void)thread;
    for (int64_t v = 0; dtable && v < V; v++) memset(dtable + v * C + begin, 0, (size_t)width * sizeof *dtable);
    for (int64_t t = 0; dpos && t < T; t++) memset(dpos + t * C + begin, 0, (size_t)width * sizeof *dpos);
    for (int64_t r = 0; r < R; r++) {
        const float *g = dy + r * C;
        for (int64_t c = begin; dtable && c < end; c++) dtable[token[r] * C + c] += g[c];
        for (int64_t c = begin; dpos && c < end; c++) dpos[r % T * C + c] += g[c];
    }
}

cloob_status embed_bwd_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], embed_bwd_ref);
    job j = { a };
    pool_for(env->ctx, a->in[0].dim[2], 16, embed_bwd_range, &j);
    return CLOOB_OK;
}

static int64_t row_of(const tensor *index, int64_t n) { return index->data ? ((const int32_t *)index->data)[n] : 0; }

cloob_status take_rows_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], take_rows_ref);
    int64_t N = a->in[0].dim[0], T = a->in[0].dim[1], C = a->in[0].dim[2];
    const float *x = a->in[0].data;
    float *y = a->out[0].data;
    for (int64_t n = 0; n < N; n++) memcpy(y + n * C, x + (n * T + row_of(&a->in[1], n)) * C, (size_t)C * sizeof *y);
    return CLOOB_OK;
}

cloob_status take_rows_bwd_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], take_rows_bwd_ref);
    int64_t N = a->out[0].dim[0], T = a->out[0].dim[1], C = a->out[0].dim[2];
    const float *dy = a->in[0].data, *extra = a->in[3].data;
    float *dx = a->out[0].data;
    if (extra && extra != dx) memcpy(dx, extra, tensor_bytes(&a->out[0]));
    if (!extra) memset(dx, 0, tensor_bytes(&a->out[0]));
    for (int64_t n = 0; n < N; n++) {
        float *row = dx + (n * T + row_of(&a->in[1], n)) * C;
        for (int64_t c = 0; c < C; c++) row[c] += dy[n * C + c];
    }
    return CLOOB_OK;
}

/* ---- grid to tokens ------------------------------------------------------------------------------ */

CPU_CLONES static void mean_tokens_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = ((const job *)arg)->a;
    planes z = planes_of(&a->in[0]);
    const float *pos = a->in[1].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) { /* one block of channels of one picture */
        int64_t n = i / z.blocks, first = i % z.blocks * z.b, T = z.HW + 1;
        const float *x = (const float *)a->in[0].data + i * z.HW * z.b;
        float *y = (float *)a->out[0].data + n * T * z.C + first;
        for (int64_t c = 0; c < z.b; c++) y[c] = 0;
        for (int64_t p = 0; p < z.HW; p++)
            for (int64_t c = 0; c < z.b; c++) {
                y[c] += x[p * z.b + c];
                y[(p + 1) * z.C + c] = x[p * z.b + c] + pos[(p + 1) * z.C + first + c];
            }
        for (int64_t c = 0; c < z.b; c++) y[c] = y[c] / (float)z.HW + pos[first + c];
    }
}

cloob_status mean_tokens_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], mean_tokens_ref);
    planes z = planes_of(&a->in[0]);
    job j = { a };
    pool_for(env->ctx, z.N * z.blocks, 1, mean_tokens_range, &j);
    return CLOOB_OK;
}

CPU_CLONES static void mean_tokens_dx_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = ((const job *)arg)->a;
    planes z = planes_of(&a->out[0]);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / z.blocks, first = i % z.blocks * z.b;
        const float *dy = (const float *)a->in[0].data + n * (z.HW + 1) * z.C + first;
        float *dx = (float *)a->out[0].data + i * z.HW * z.b, share = 1.0f / (float)z.HW;
        for (int64_t p = 0; p < z.HW; p++)
            for (int64_t c = 0; c < z.b; c++) dx[p * z.b + c] = dy[(p + 1) * z.C + c] + dy[c] * share;
    }
}

CPU_CLONES static void batch_sum_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = ((const job *)arg)->a;
    const float *dy = a->in[0].data;
    int64_t N = a->in[0].dim[0], TC = a->in[0].dim[1] * a->in[0].dim[2];
    float *dpos = a->out[1].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) dpos[i] = 0;
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = begin; i < end; i++) dpos[i] += dy[n * TC + i];
}

cloob_status mean_tokens_bwd_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], mean_tokens_bwd_ref);
    job j = { a };
    if (a->out[0].data) {
        planes z = planes_of(&a->out[0]);
        pool_for(env->ctx, z.N * z.blocks, 1, mean_tokens_dx_range, &j);
    }
    if (a->out[1].data) pool_for(env->ctx, tensor_count(&a->out[1]), 1024, batch_sum_range, &j);
    return CLOOB_OK;
}
