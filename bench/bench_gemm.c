/* Packed GEMMs on the CPU.
 *
 *     bench_gemm train [batch 8] [kernel]     bf16: RN50's convolutions and the text tower's matrices with their
 *                                             gradients, one line per shape
 *     bench_gemm embed [threads 1] [rows 1600]   weights of transformers in every kernel of inference: billions of
 *                                             operations a second and core, by CPU time, best of seven
 *
 * kernel: a name of the table (bf16_plain, bf16_avx2, bf16_avx512, bf16_amx); the fastest without one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/rng.h"
#include "tensor/cpu/gemm_kernels.h"
#include "tensor/tensor.h"

static cloob_ctx *ctx;
static const gemm_kernel *kernel;
static int64_t N;
static double total_ms[3], total_flops[3];

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static uint16_t *noise(int64_t n)
{
    uint16_t *x = aligned_alloc(64, ((size_t)n * sizeof *x + 127) / 64 * 64);
    for (int64_t i = 0; i < n; i++) x[i] = bf16_from_float((float)((i * 7919) % 1001) / 1000 - 0.5f);
    return x;
}

/* Best of five, with packing of B where the engine packs it in every call: forward and dx, whose C is bf16. */
static double time_call(gemm_call x)
{
    void *packed = aligned_alloc(64, gemm_packed_bytes(kernel, x.N, x.K));
    double best = 1e30;
    x.c = malloc((size_t)(x.M * x.ldc) * 4);
    void *scratch = malloc(gemm_scratch(ctx, kernel, &x, x.c_bf16));
    for (int i = 0; i < 6; i++) {
        double from = now_ms();
        if (x.c_bf16) gemm_pack(ctx, kernel, &x, packed), x.packed = packed;
        gemm_packed_run(ctx, kernel, &x, scratch);
        double ms = now_ms() - from;
        if (i && ms < best) best = ms;
    }
    free(x.c);
    free(packed);
    free(scratch);
    return best;
}

static void report(const char *what, int count, gemm_call call[3])
{
    call[0].c_bf16 = call[1].c_bf16 = true;
    printf("%-26s x%-2d", what, count);
    for (int i = 0; i < 3; i++) {
        double ms = time_call(call[i]), flops = 2.0 * (double)call[i].M * (double)call[i].N * (double)call[i].K;
        printf("  %8.2f ms %5.0f", ms, flops / ms / 1e6);
        total_ms[i] += count * ms, total_flops[i] += count * flops;
    }
    printf("\n");
    fflush(stdout);
}

static void conv(int count, int64_t H, int64_t C, int64_t O, int64_t k, int64_t s)
{
    char what[64];
    int64_t p = k / 2, Ho = H / s, T = k * k;
    uint16_t *x = noise(N * H * H * C), *w = noise(O * T * C), *dy = noise(N * Ho * Ho * O);
    gemm_patches seen = { H, H, C, C, Ho, Ho, k, s, 1, -p, 1 }, back = { Ho, Ho, O, O, H, H, k, 1, -1, p, s };
    gemm_view patches = { x, N * Ho * Ho, T * C, 0, 0, 0, &seen }, sent = { dy, N * H * H, T * O, 0, 0, 0, &back };
    if (k == 1) patches = gemm_matrix(x, N * H * H, C, C), sent = gemm_matrix(dy, N * H * H, O, O);
    gemm_call call[] = {
        {
            .M = N * Ho * Ho,
            .N = O,
            .K = T * C,
            .a = patches,
            .b = gemm_matrix(w, O, T * C, T * C),
            .tb = true,
            .ldc = O,
        },
        {
            .M = N * H * H,
            .N = C,
            .K = T * O,
            .a = sent,
            .b = { w, T * O, C, T * C, O, C, NULL },
            .ldc = C,
        },
        { .M = O,
          .N = T * C,
          .K = N * Ho * Ho,
          .a = gemm_matrix(dy, N * Ho * Ho, O, O),
          .ta = true,
          .b = patches,
          .ldc = T * C },
    };
    snprintf(what, sizeof what, "%lldx%lld %lld -> %lld @%lld", (long long)k, (long long)k, (long long)C, (long long)O,
             (long long)H);
    report(what, count, call);
    free(x);
    free(w);
    free(dy);
}

static void linear(int count, int64_t rows, int64_t K, int64_t O)
{
    char what[64];
    uint16_t *x = noise(rows * K), *w = noise(O * K), *dy = noise(rows * O);
    gemm_call call[] = {
        {
            .M = rows,
            .N = O,
            .K = K,
            .a = gemm_matrix(x, rows, K, K),
            .b = gemm_matrix(w, O, K, K),
            .tb = true,
            .ldc = O,
        },
        {
            .M = rows,
            .N = K,
            .K = O,
            .a = gemm_matrix(dy, rows, O, O),
            .b = gemm_matrix(w, O, K, K),
            .ldc = K,
        },
        { .M = O,
          .N = K,
          .K = rows,
          .a = gemm_matrix(dy, rows, O, O),
          .ta = true,
          .b = gemm_matrix(x, rows, K, K),
          .ldc = K },
    };
    snprintf(what, sizeof what, "%lld: %lld -> %lld", (long long)rows, (long long)K, (long long)O);
    report(what, count, call);
    free(x);
    free(w);
    free(dy);
}

static void train(int argc, char **argv)
{
    N = argc > 2 ? atoi(argv[2]) : 8;
    ctx = cloob_ctx_create(NULL);
    kernel = gemm_best(GEMM_BF16);
    for (int i = 0; argc > 3 && gemm_kernel_at(i); i++)
        if (strcmp(gemm_kernel_at(i)->name, argv[3]) == 0 && gemm_usable(gemm_kernel_at(i))) kernel = gemm_kernel_at(i);
    printf("%s, %d threads, batch %lld; forward, dx, dw: ms and GFLOP/s\n", kernel->name, ctx->threads, (long long)N);
    conv(1, 224, 3, 32, 3, 2);
    conv(1, 112, 32, 32, 3, 1);
    conv(1, 112, 32, 64, 3, 1);
    conv(3, 56, 64, 64, 3, 1);
    conv(4, 56, 64, 256, 1, 1);
    conv(2, 56, 256, 64, 1, 1);
    conv(1, 56, 256, 128, 1, 1);
    conv(1, 56, 128, 128, 3, 1);
    conv(4, 28, 128, 512, 1, 1);
    conv(3, 28, 512, 128, 1, 1);
    conv(3, 28, 128, 128, 3, 1);
    conv(1, 28, 256, 256, 3, 1);
    conv(6, 14, 256, 1024, 1, 1);
    conv(5, 14, 1024, 256, 1, 1);
    conv(5, 14, 256, 256, 3, 1);
    conv(1, 14, 512, 512, 3, 1);
    conv(3, 7, 512, 2048, 1, 1);
    conv(2, 7, 2048, 512, 1, 1);
    conv(2, 7, 512, 512, 3, 1);
    linear(12, 77 * N, 512, 1536);
    linear(12, 77 * N, 512, 512);
    linear(12, 77 * N, 512, 2048);
    linear(12, 77 * N, 2048, 512);
    for (int i = 0; i < 3; i++)
        printf("%-8s %8.1f ms %6.0f GFLOP/s\n",
               i == 0   ? "forward"
               : i == 1 ? "dx"
                        : "dw",
               total_ms[i], total_flops[i] / total_ms[i] / 1e6);
}

/* ---- inference ------------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *float_noise(int64_t n)
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 127) / 64 * 64);
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7919) % 1001) / 1000 - 0.5f;
    return x;
}

static double gigaops(const gemm_kernel *k, gemm_call x)
{
    void *packed = aligned_alloc(64, gemm_packed_bytes(k, x.N, x.K)), *scratch = malloc(gemm_scratch(ctx, k, &x, true));
    double best = 1e30;
    gemm_pack(ctx, k, &x, packed);
    x.packed = packed;
    for (int i = 0; i < 8; i++) {
        double from = cpu_seconds();
        gemm_packed_run(ctx, k, &x, scratch);
        double s = cpu_seconds() - from;
        if (i && s < best) best = s;
    }
    free(packed);
    free(scratch);
    return 2e-9 * (double)x.M * (double)x.N * (double)x.K / best;
}

static void *half(const float *x, int64_t n)
{
    uint16_t *h = aligned_alloc(64, ((size_t)n * sizeof *h + 127) / 64 * 64);
    for (int64_t i = 0; i < n; i++) h[i] = bf16_from_float(x[i]);
    return h;
}

static void embed_shape(int64_t M, int64_t cols, int64_t K)
{
    float *a = float_noise(M * K), *b = float_noise(cols * K), *bias = float_noise(cols), *c = float_noise(M * cols);
    gemm_call x = { .M = M,
                    .N = cols,
                    .K = K,
                    .a = gemm_matrix(a, M, K, K),
                    .b = gemm_matrix(b, cols, K, K),
                    .tb = true,
                    .c = c,
                    .ldc = cols,
                    .bias = bias };
    void *ha = half(a, M * K), *hb = half(b, cols * K);
    printf("%5lld x %4lld x %4lld", (long long)M, (long long)cols, (long long)K);
    for (int i = 0; gemm_kernel_at(i); i++) {
        const gemm_kernel *k = gemm_kernel_at(i);
        gemm_call y = x;
        if (k->kind == GEMM_BF16 || k->kind == GEMM_U8) y.a.data = ha, y.b.data = hb, y.c_bf16 = true;
        if (k->usable && gemm_usable(k)) printf("  %s %.0f", k->name, gigaops(k, y));
    }
    printf("\n");
    free(ha), free(hb);
    free(a), free(b), free(bias), free(c);
}

static void embed(int argc, char **argv)
{
    static const int64_t shapes[][2] = { { 2304, 768 }, { 768, 768 }, { 3072, 768 }, { 768, 3072 }, { 2048, 512 } };
    int64_t M = argc > 3 ? atoll(argv[3]) : 1600;
    ctx = cloob_ctx_create(
        &(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = argc > 2 ? atoi(argv[2]) : 1 });
    printf("billions of operations a second of CPU time (threads spin while they wait: use 1 on a busy machine)\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) embed_shape(M, shapes[i][0], shapes[i][1]);
    embed_shape(50, 3072, 768);
    embed_shape(7, 2048, 512);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "train") == 0) train(argc, argv);
    else if (argc > 1 && strcmp(argv[1], "embed") == 0) embed(argc, argv);
    else return puts("bench_gemm train|embed ..."), 2;
    cloob_ctx_destroy(ctx);
    return 0;
}
