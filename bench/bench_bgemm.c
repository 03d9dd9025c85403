/* bf16 products on the CPU: RN50's convolutions and the text tower's matrices, one line per shape.
 *
 *     bench_bgemm [batch 8] [kernel]        kernel: plain, avx2, avx512_bf16, amx_bf16; the best without one */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/rng.h"
#include "tensor/cpu/bgemm.h"
#include "tensor/tensor.h"

static cloob_ctx *ctx;
static const bgemm_kernel *kernel;
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

/* Best of five, with packing of B where the engine packs it in every call. */
static double time_call(bgemm_call x)
{
    uint16_t *packed = aligned_alloc(64, bgemm_packed_bytes(x.K, x.N));
    double best = 1e30;
    x.c = malloc((size_t)(x.M * x.ldc) * 4);
    x.b_packed = packed;
    void *scratch = malloc(bgemm_scratch(ctx, kernel, &x));
    for (int i = 0; i < 6; i++) {
        double from = now_ms();
        if (x.packed) bgemm_pack_b(ctx, kernel, &x, packed);
        bgemm_run(ctx, kernel, &x, scratch);
        double ms = now_ms() - from;
        if (i && ms < best) best = ms;
    }
    free(x.c);
    free(packed);
    free(scratch);
    return best;
}

static void report(const char *what, int count, const bgemm_call call[3])
{
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
    bgemm_patches seen = { H, H, C, C, Ho, Ho, k, s, 1, -p, 1 }, back = { Ho, Ho, O, O, H, H, k, 1, -1, p, s };
    bgemm_view patches = { x, N * Ho * Ho, T * C, 0, 0, 0, &seen }, sent = { dy, N * H * H, T * O, 0, 0, 0, &back };
    if (k == 1) patches = bgemm_matrix(x, N * H * H, C, C), sent = bgemm_matrix(dy, N * H * H, O, O);
    bgemm_call call[] = {
        { .M = N * Ho * Ho,
          .N = O,
          .K = T * C,
          .a = patches,
          .b = bgemm_matrix(w, O, T * C, T * C),
          .tb = true,
          .ldc = O,
          .packed = true },
        { .M = N * H * H,
          .N = C,
          .K = T * O,
          .a = sent,
          .b = { w, T * O, C, T * C, O, C, NULL },
          .ldc = C,
          .packed = true },
        { .M = O,
          .N = T * C,
          .K = N * Ho * Ho,
          .a = bgemm_matrix(dy, N * Ho * Ho, O, O),
          .ta = true,
          .b = patches,
          .ldc = T * C,
          .c_float = true },
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
    bgemm_call call[] = {
        { .M = rows,
          .N = O,
          .K = K,
          .a = bgemm_matrix(x, rows, K, K),
          .b = bgemm_matrix(w, O, K, K),
          .tb = true,
          .ldc = O,
          .packed = true },
        { .M = rows,
          .N = K,
          .K = O,
          .a = bgemm_matrix(dy, rows, O, O),
          .b = bgemm_matrix(w, O, K, K),
          .ldc = K,
          .packed = true },
        { .M = O,
          .N = K,
          .K = rows,
          .a = bgemm_matrix(dy, rows, O, O),
          .ta = true,
          .b = bgemm_matrix(x, rows, K, K),
          .ldc = K,
          .c_float = true },
    };
    snprintf(what, sizeof what, "%lld: %lld -> %lld", (long long)rows, (long long)K, (long long)O);
    report(what, count, call);
    free(x);
    free(w);
    free(dy);
}

int main(int argc, char **argv)
{
    N = argc > 1 ? atoi(argv[1]) : 8;
    ctx = cloob_ctx_create(NULL);
    kernel = bgemm_best();
    const bgemm_kernel *choice[] = { &bgemm_plain, &bgemm_avx2, &bgemm_avx512, &bgemm_amx };
    for (int i = 0; argc > 2 && i < 4; i++)
        if (strcmp(choice[i]->name, argv[2]) == 0 && bgemm_usable(choice[i])) kernel = choice[i];
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
    cloob_ctx_destroy(ctx);
    return 0;
}
