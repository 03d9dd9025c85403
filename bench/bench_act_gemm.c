/* GEMMs of a transformer's MLP with the activation inside (nn/cuda/linear/act_gemm.h) beside the ops one after the
 * other, at the sizes of the towers: times, and how far the results are from those of the ops.
 *
 *     bench_act_gemm [WORD]      shapes whose name contains WORD
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_tensors.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/linear/act_gemm.h"

static const double bytes_per_ms = 4.2e9, flops_per_ms = 7e11;

static cloob_ctx *ctx;
static device *dev;
static int sms;

#define TRY(call) BENCH_TRY(ctx, call)

typedef struct shape {
    const char *name;
    int64_t rows, width;
    bool backward, recomputed;
    op_act act;
    int calls; /* in a step */
} shape;

static const shape shapes[] = {
    { "RN50 text forward", 39424, 512, false, false, OP_ACT_QUICKGELU, 11 },
    { "RN50 text backward", 39424, 512, true, false, OP_ACT_QUICKGELU, 0 },
    { "RN50 text backward, recomputed", 39424, 512, true, true, OP_ACT_QUICKGELU, 11 },
    { "ViT-B-32 text forward", 78848, 512, false, false, OP_ACT_QUICKGELU, 11 },
    { "ViT-B-32 text backward", 78848, 512, true, false, OP_ACT_QUICKGELU, 11 },
    { "ViT-B-32 image forward", 51200, 768, false, false, OP_ACT_QUICKGELU, 11 },
    { "ViT-B-32 image backward", 51200, 768, true, false, OP_ACT_QUICKGELU, 11 },
    { "ViT-B-16 image forward", 25216, 768, false, false, OP_ACT_QUICKGELU, 11 },
    { "ViT-B-16 image backward", 25216, 768, true, false, OP_ACT_QUICKGELU, 11 },
    { "RN50x4 text forward", 9856, 640, false, false, OP_ACT_QUICKGELU, 11 },
    { "RN50x4 text backward, recomputed", 9856, 640, true, true, OP_ACT_QUICKGELU, 11 },
    { "gelu forward", 25216, 768, false, false, OP_ACT_GELU, 0 },
    { "gelu backward", 25216, 512, true, true, OP_ACT_GELU, 0 },
    { "odd forward", 1003, 512, false, false, OP_ACT_GELU, 0 },
    { "odd backward", 1003, 512, true, true, OP_ACT_GELU_TANH, 0 },
    { "odd few forward", 77, 768, false, false, OP_ACT_GELU_TANH, 0 },
    { "odd few backward", 77, 768, true, true, OP_ACT_GELU, 0 },
};

/* ---- memory -------------------------------------------------------------------------------------- */

static tensor rows_of(int64_t rows, int64_t columns)
{
    return bench_noise(ctx, dev, CLOOB_BF16, 2, (int64_t[]){ rows, columns });
}

/* Smaller numbers, so that the activation sees its curve. */
static void shrink(tensor *t, float by)
{
    int64_t n = tensor_count(t);
    uint16_t *host = malloc((size_t)n * sizeof *host);
    TRY(dev->to_host(ctx, dev, host, t->data, (size_t)n * sizeof *host));
    for (int64_t i = 0; i < n; i++) host[i] = bf16_from_float(bf16_to_float(host[i]) * by);
    TRY(dev->to_device(ctx, dev, t->data, host, (size_t)n * sizeof *host));
    free(host);
}

static double difference(const tensor *a, const tensor *b) { return bench_difference(ctx, dev, a, b); }

/* ---- one shape ----------------------------------------------------------------------------------- */

typedef struct job {
    op_env env;
    op_id first, second;
    op_args a, b; /* the two ops */
    act_gemm g;
    tensor in, w, bias, x, y, again, sums, x2, y2, again2, sums2, partial;
} job;

static cloob_status run_first(void *user)
{
    job *j = user;
    return op_kernels_cuda[j->first].run(&j->env, &j->a);
}
static cloob_status run_second(void *user)
{
    job *j = user;
    return op_kernels_cuda[j->second].run(&j->env, &j->b);
}
static cloob_status run_both(void *user)
{
    CLOOB_TRY(run_first(user));
    return run_second(user);
}

static cloob_status run_fused(void *user)
{
    job *j = user;
    CLOOB_TRY(cuda_check(ctx, act_gemm_run(dev->stream, &j->g, sms), "a GEMM with an activation"));
    if (!j->g.backward) return CLOOB_OK;
    return colsum_finish(&j->env, "sums", j->sums2.data, j->partial.data, act_gemm_parts(&j->g, sms), j->g.n);
}

static float time_of(cloob_status (*run)(void *), job *j)
{
    float ms = -1;
    TRY(cuda_time(ctx, dev, run, j, &ms));
    return ms;
}

static void prepare(job *j, op_id op, op_args *a)
{
    if (op_kernels_cuda[op].prepare) TRY(op_kernels_cuda[op].prepare(&j->env, a));
    if (a->scratch_bytes) TRY(dev->alloc(ctx, dev, a->scratch_bytes, "scratch", &a->scratch));
}

/* Forward: in (rows, W) by w (4 W, W). Backward: in (rows, W) by w (W, 4 W), x of the forward pass at hand. */
static void make_operands(job *j, const shape *s)
{
    int64_t n = 4 * s->width;
    j->in = rows_of(s->rows, s->width);
    j->w = s->backward ? rows_of(s->width, n) : rows_of(n, s->width);
    j->bias = bench_noise(ctx, dev, CLOOB_BF16, 1, &n);
    j->x = rows_of(s->rows, n), j->y = rows_of(s->rows, n), j->y2 = rows_of(s->rows, n);
    j->x2 = s->backward ? j->x : rows_of(s->rows, n);
    j->again = s->recomputed ? rows_of(s->rows, n) : ABSENT, j->again2 = s->recomputed ? rows_of(s->rows, n) : ABSENT;
    j->sums = bench_noise(ctx, dev, CLOOB_F32, 1, &n), j->sums2 = bench_noise(ctx, dev, CLOOB_F32, 1, &n);
    j->partial = bench_noise(ctx, dev, CLOOB_F32, 2, (int64_t[]){ sms, n });
    shrink(&j->w, (float)(1 / sqrt((double)s->width)));
}

static void prepare_separate(job *j, const shape *s)
{
    static const tensor none = { .ndim = -1 };
    for (int k = 0; k < OP_INPUTS; k++) j->a.in[k] = j->b.in[k] = none;
    for (int k = 0; k < OP_OUTPUTS; k++) j->a.out[k] = j->b.out[k] = none;
    j->a.in[0] = j->in, j->a.in[1] = j->w;
    j->b.attr = (op_attr){ .act = s->act, .sums = s->backward };
    if (s->backward) {
        j->first = OP_LINEAR_DX, j->second = OP_ACT_BWD;
        j->a.in[2] = j->x, j->a.out[0] = j->y;
        j->b.in[0] = j->y, j->b.in[1] = j->x, j->b.in[2] = j->bias;
        j->b.out[0] = j->y, j->b.out[1] = j->again, j->b.out[2] = j->sums;
    } else {
        j->first = OP_LINEAR, j->second = OP_ACT;
        j->a.out[0] = j->b.in[0] = j->x;
        j->b.in[1] = j->bias, j->b.out[0] = j->y;
    }
    prepare(j, j->first, &j->a);
    prepare(j, j->second, &j->b);
    j->g = (act_gemm){ .m = s->rows,
                       .n = 4 * s->width,
                       .k = s->width,
                       .backward = s->backward,
                       .act = s->act,
                       .a = j->in.data,
                       .b = j->w.data,
                       .bias = j->bias.data,
                       .x = j->x2.data,
                       .y = j->y2.data,
                       .recomputed = s->recomputed ? j->again2.data : NULL,
                       .partial = s->backward ? j->partial.data : NULL };
}

/* Times it and compares its results with those of the separate ops. */
static float try_fused(job *j, const shape *s)
{
    double e[4] = { 0 };
    TRY(dev->sync(ctx, dev));
    TRY(cuda_check(ctx, cudaMemset(j->y2.data, 0xff, tensor_bytes(&j->y2)), "poison"));
    if (!s->backward) TRY(cuda_check(ctx, cudaMemset(j->x2.data, 0xff, tensor_bytes(&j->x2)), "poison"));
    if (s->recomputed) TRY(cuda_check(ctx, cudaMemset(j->again2.data, 0xff, tensor_bytes(&j->y2)), "poison"));
    TRY(cuda_check(ctx, cudaMemset(j->partial.data, 0xff, tensor_bytes(&j->partial)), "poison"));
    float ms = time_of(run_fused, j);
    e[0] = difference(&j->y2, &j->y);
    if (!s->backward) e[1] = difference(&j->x2, &j->x);
    if (s->recomputed) e[2] = difference(&j->again2, &j->again);
    if (s->backward) e[3] = difference(&j->sums2, &j->sums);
    for (int i = 0; i < 4; i++)
        if (!(e[i] < 2e-3)) {
            printf(" WRONG %.1e %.1e %.1e %.1e", e[0], e[1], e[2], e[3]);
            break;
        }
    return ms;
}

static void release(job *j)
{
    tensor *all[] = { &j->in,   &j->w,  &j->bias,   &j->x,     &j->y,      &j->again,
                      &j->sums, &j->y2, &j->again2, &j->sums2, &j->partial };
    if (j->x2.data != j->x.data) dev->free(dev, j->x2.data);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->ndim > 0) dev->free(dev, all[i]->data);
    op_kernels_cuda[j->first].release(&j->env, &j->a);
    if (op_kernels_cuda[j->second].release) op_kernels_cuda[j->second].release(&j->env, &j->b);
    if (j->a.scratch) dev->free(dev, j->a.scratch);
    if (j->b.scratch) dev->free(dev, j->b.scratch);
}

static void bench(const shape *s)
{
    job j = { .env = { .ctx = ctx, .dev = dev, .stream = dev->stream, .ranks = 1 } };
    make_operands(&j, s);
    prepare_separate(&j, s);
    float both = time_of(run_both, &j), first = time_of(run_first, &j);
    TRY(run_both(&j)); /* act_bwd works in place */
    double rows = (double)s->rows, n = (double)j.g.n, k = (double)j.g.k;
    double bytes = 2 * (rows * k + n * k + rows * n * (2 + s->recomputed)), flops = 2 * rows * n * k;
    printf("%-33s %6lld x %4lld x %3lld: floor %.3f, apart %.4f (GEMM %.4f);", s->name, (long long)s->rows,
           (long long)j.g.n, (long long)j.g.k, fmax(bytes / bytes_per_ms, flops / flops_per_ms), (double)both,
           (double)first);
    float ms = try_fused(&j, s);
    printf(" fused %.4f, x%d saves %.3f\n", (double)ms, s->calls, (double)(both - ms) * s->calls);
    fflush(stdout);
    release(&j);
}

int main(int argc, char **argv)
{
    ctx = cloob_ctx_create(NULL);
    TRY(device_open(ctx, "cuda", &dev));
    sms = ((const cuda_state *)dev->state)->sms;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (argc < 2 || strstr(shapes[i].name, argv[1])) bench(&shapes[i]);
    device_close(dev);
    return 0;
}
