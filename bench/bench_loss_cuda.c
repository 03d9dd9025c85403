/* Time and memory of the objective on one GPU, by CUDA events: bench_loss_cuda N [D] [REPEATS] [f32|bf16]
 * [TILE] [plain]. Prints one JSON line. Inputs are fresh random unit rows; the run is checked to be finite.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loss/loss.h"
#include "tensor/cuda/vendor.h"
#include "tensor/tensor.h"

static void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

static uint64_t seed;

static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / 16777216.0f - 0.5f;
}

/* y is x with noise as large, when `base` is given. */
static void unit_rows(float *x, const float *base, int64_t n, int64_t d)
{
    seed++;
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        uint64_t state = (seed * 0x9e3779b97f4a7c15u) ^ ((uint64_t)(i + 1) * 0xbf58476d1ce4e5b9u);
        double sum = 0;
        for (int64_t k = i * d; k < (i + 1) * d; k++) {
            x[k] = noise(&state) + (base ? base[k] * sqrtf((float)d) * 0.29f : 0);
            sum += (double)x[k] * (double)x[k];
        }
        for (int64_t k = i * d; k < (i + 1) * d; k++) x[k] = (float)((double)x[k] / sqrt(sum));
    }
}

static void *upload(const float *rows, int64_t count, cloob_dtype dtype)
{
    void *p, *narrow = malloc((size_t)count * dtype_size(dtype));
    dtype_convert(dtype, narrow, CLOOB_F32, rows, count);
    must(cudaMalloc(&p, (size_t)count * dtype_size(dtype)), "embeddings");
    must(cudaMemcpy(p, narrow, (size_t)count * dtype_size(dtype), cudaMemcpyHostToDevice), "embeddings");
    free(narrow);
    return p;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static size_t used(void)
{
    size_t available, total;
    must(cudaMemGetInfo(&available, &total), "memory");
    return total - available;
}

typedef struct bench {
    int64_t n, d;
    int repeats;
    loss_options o;
    cloob_dtype dtype;
    cloob_ctx *ctx;
    loss_plan *plan;
    loss_inputs in;
    loss_outputs out;
} bench;

static void check(bench *b, cloob_status s)
{
    if (s == CLOOB_OK) return;
    fprintf(stderr, "%s\n", cloob_error(b->ctx));
    exit(1);
}

static void setup(bench *b)
{
    loss_shape s = { b->n, b->d, 0, 0, b->dtype };
    float *x = malloc((size_t)(b->n * b->d) * sizeof *x), *y = malloc((size_t)(b->n * b->d) * sizeof *y);
    if (!x || !y) exit(1);
    unit_rows(x, NULL, b->n, b->d);
    unit_rows(y, x, b->n, b->d);
    b->in = (loss_inputs){ upload(x, b->n * b->d, b->dtype), upload(y, b->n * b->d, b->dtype), NULL, NULL };
    free(x);
    free(y);
    must(cudaMalloc((void **)&b->out.dx, (size_t)(b->n * b->d) * sizeof(float)), "gradients");
    must(cudaMalloc((void **)&b->out.dy, (size_t)(b->n * b->d) * sizeof(float)), "gradients");
    check(b, loss_plan_create(b->ctx, &b->o, &s, NULL, &b->plan));
}

static float median_ms(bench *b, loss_result *r)
{
    float *ms = calloc((size_t)b->repeats, sizeof *ms);
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    for (int i = -1; i < b->repeats; i++) { /* the first is not counted */
        must(cudaEventRecord(begin, NULL), "event");
        check(b, loss_run(b->ctx, b->plan, &b->in, &b->out, NULL, r));
        must(cudaEventRecord(end, NULL), "event");
        must(cudaEventSynchronize(end), "event");
        if (i >= 0) must(cudaEventElapsedTime(&ms[i], begin, end), "event");
        if (b->repeats == 1 && b->n > 500000) { /* once is enough for the largest */
            must(cudaEventElapsedTime(&ms[0], begin, end), "event");
            break;
        }
    }
    qsort(ms, (size_t)b->repeats, sizeof *ms, by_value);
    float m = ms[b->repeats / 2];
    free(ms);
    return m;
}

int main(int argc, char **argv)
{
    bench b = { .n = argc > 1 ? atoll(argv[1]) : 4096,
                .d = argc > 2 ? atoll(argv[2]) : 1024,
                .repeats = argc > 3 ? atoi(argv[3]) : 10 };
    loss_result r;
    b.dtype = argc > 4 && strcmp(argv[4], "f32") == 0 ? CLOOB_F32 : CLOOB_BF16;
    loss_options_init(&b.o);
    b.o.backend = LOSS_CUDA;
    b.o.tile = argc > 5 ? atoll(argv[5]) : 0;
    b.o.plain = argc > 6 && strcmp(argv[6], "plain") == 0;
    b.ctx = cloob_ctx_create(NULL);
    seed = (uint64_t)time(NULL);
    must(cudaFree(NULL), "start");
    size_t before = used();
    setup(&b);
    float ms = median_ms(&b, &r);
    size_t grown = used() - before;
    double flops = 64.0 * (double)b.n * (double)b.n * (double)b.d; /* without the halves that symmetry saves */
    printf("{\"n\": %lld, \"dim\": %lld, \"precision\": \"%s\", \"plain\": %s, \"tile\": %lld, \"ms\": %.3f, "
           "\"gib\": %.3f, "
           "\"plan_gib\": %.3f, \"tflops_of_64nnd\": %.0f, \"loss\": %.6f}\n",
           (long long)b.n, (long long)b.d, b.dtype == CLOOB_F32 ? "fp32" : "bf16", b.o.plain ? "true" : "false",
           (long long)b.o.tile, (double)ms, (double)grown / 1073741824.0,
           (double)loss_plan_bytes(b.plan) / 1073741824.0, flops / (double)ms * 1e-9, r.loss);
    loss_plan_destroy(b.plan);
    cloob_ctx_destroy(b.ctx);
    return isfinite(r.loss) ? 0 : 1;
}
