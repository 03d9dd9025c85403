/* bf16 products: every kernel that this machine can run, and the AMX kernel's code on emulated tiles, against double
 * loops over the same bf16 factors. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/bgemm.h"
#include "tensor/tensor.h"
#include "tile_emulation.h"

static cloob_ctx *ctx;

static uint16_t *noise(int64_t n, const char *name)
{
    uint16_t *x = malloc((size_t)n * sizeof *x + 64);
    for (int64_t i = 0; i < n; i++) x[i] = bf16_from_float((float)rng_normal(rng_key(3, name), (uint64_t)i));
    return x;
}

/* Element (r, c) of a view, by its definition. */
static double at(const bgemm_view *v, int64_t r, int64_t c)
{
    const bgemm_patches *p = v->patches;
    if (!p)
        return (double)bf16_up(v->data[(v->inner ? r % v->inner * v->ld + r / v->inner * v->outer : r * v->ld) + c]);
    int64_t h = r / p->Gw % p->Gh * p->mul + c / p->C / p->k * p->sign + p->off,
            w = r % p->Gw * p->mul + c / p->C % p->k * p->sign + p->off;
    if (h < 0 || w < 0 || h % p->div || w % p->div || h / p->div >= p->H || w / p->div >= p->W) return 0;
    return (double)bf16_up(
        v->data[((r / p->Gw / p->Gh * p->H + h / p->div) * p->W + w / p->div) * p->pixel + c % p->C]);
}

static double expected(const bgemm_call *x, int64_t m, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < x->K; k++)
        sum += (x->ta ? at(&x->a, k, m) : at(&x->a, m, k)) * (x->tb ? at(&x->b, n, k) : at(&x->b, k, n));
    sum *= x->alpha != 0 ? (double)x->alpha : 1;
    if (x->bias) sum += (double)x->bias[n];
    if (x->res) sum += (double)bf16_up(x->res[m * x->ldc + n]);
    return x->relu && sum < 0 ? 0 : sum;
}

/* Norm-wise. Float sums of K bf16 products: 1e-6; a result in bf16 rounds by up to 2^-9. */
static void compare(const bgemm_kernel *kernel, const bgemm_call *x, const char *what)
{
    double diff = 0, norm = 0;
    int wild = 0;
    for (int64_t m = 0; m < x->M; m++)
        for (int64_t n = 0; n < x->ldc; n++) {
            int64_t i = m * x->ldc + n;
            double got = x->c_float ? (double)((float *)x->c)[i] : (double)bf16_up(((uint16_t *)x->c)[i]);
            if (n >= x->N) {
                wild += got != 7.0; /* between rows nothing is written */
                continue;
            }
            double want = expected(x, m, n);
            diff += (got - want) * (got - want), norm += want * want;
        }
    double error = sqrt(diff / (norm > 0 ? norm : 1));
    if (wild || !(error <= (x->c_float ? 2e-6 : 3e-3))) {
        printf("  %s, %s, M %lld N %lld K %lld: error %.3g, %d elements written between rows\n", kernel->name, what,
               (long long)x->M, (long long)x->N, (long long)x->K, error, wild);
        check_bad_here_++;
    }
}

static void run_and_compare(const bgemm_kernel *kernel, bgemm_call *x, const char *what)
{
    size_t bytes = bgemm_scratch(ctx, kernel, x), elements = (size_t)(x->M * x->ldc);
    char *scratch = malloc(bytes + 64);
    memset(scratch + bytes, 0x5A, 64);
    x->c = malloc(elements * 4);
    for (size_t i = 0; i < elements; i++)
        if (x->c_float) ((float *)x->c)[i] = 7;
        else ((uint16_t *)x->c)[i] = bf16_down(7);
    bgemm_run(ctx, kernel, x, scratch);
    compare(kernel, x, what);
    for (int i = 0; i < 64; i++) CHECK(scratch[bytes + (size_t)i] == 0x5A);
    free(x->c);
    free(scratch);
}

static void run_packed(const bgemm_kernel *kernel, bgemm_call x, const char *what)
{
    uint16_t *packed = aligned_alloc(64, bgemm_packed_bytes(x.K, x.N));
    bgemm_pack_b(ctx, kernel, &x, packed);
    x.packed = true, x.b_packed = packed;
    run_and_compare(kernel, &x, what);
    free(packed);
}

static const int64_t sizes[][3] = { { 1, 1, 1 },      { 16, 16, 32 }, { 33, 47, 65 },  { 15, 17, 31 },
                                    { 130, 35, 300 }, { 5, 600, 20 }, { 40, 40, 2500 } };

static void matrices(const bgemm_kernel *kernel)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 4; t++) {
            int64_t M = sizes[i][0], N = sizes[i][1], K = sizes[i][2];
            bool ta = t & 1, tb = t & 2;
            uint16_t *a = noise(M * K + K * 3 + M * 3, "a"), *b = noise(N * K + N * 3 + K * 3, "b");
            bgemm_call x = { .M = M, .N = N, .K = K, .ta = ta, .tb = tb, .ldc = N + 2, .c_float = t % 3 == 0 };
            x.a = ta ? bgemm_matrix(a, K, M, M + 3) : bgemm_matrix(a, M, K, K + 3);
            x.b = tb ? bgemm_matrix(b, N, K, K + 3) : bgemm_matrix(b, K, N, N + 3);
            run_and_compare(kernel, &x, "matrices");
            x.c_float = false;
            run_packed(kernel, x, "packed");
            free(a);
            free(b);
        }
}

static void epilogues(const bgemm_kernel *kernel)
{
    enum { M = 37, N = 41, K = 50 };
    uint16_t *a = noise(M * K, "a"), *b = noise(N * K, "b"), *res = noise(M * N, "res");
    float bias[N];
    for (int i = 0; i < N; i++) bias[i] = (float)i / 8 - 2;
    for (int t = 0; t < 16; t++) {
        bgemm_call x = {
            .M = M, .N = N, .K = K, .a = bgemm_matrix(a, M, K, K), .b = bgemm_matrix(b, N, K, K), .tb = true, .ldc = N
        };
        x.bias = t & 1 ? bias : NULL, x.res = t & 2 ? res : NULL, x.relu = t & 4, x.alpha = t & 8 ? 0.125f : 0;
        run_and_compare(kernel, &x, "epilogue");
    }
    free(a);
    free(b);
    free(res);
}

/* A convolution's three products: channels that fill tiles and channels that do not. */
static void convolution(const bgemm_kernel *kernel, int64_t C, int64_t O, int64_t k, int64_t s, int64_t p, int64_t H,
                        int64_t W)
{
    enum { N = 2 };
    int64_t Ho = (H + 2 * p - k) / s + 1, Wo = (W + 2 * p - k) / s + 1, T = k * k;
    uint16_t *x = noise(N * H * W * C, "x"), *w = noise(O * T * C, "w"), *dy = noise(N * Ho * Wo * O, "dy");
    bgemm_patches seen = { H, W, C, C, Ho, Wo, k, s, 1, -p, 1 }, back = { Ho, Wo, O, O, H, W, k, 1, -1, p, s };
    bgemm_view patches = { x, N * Ho * Wo, T * C, 0, 0, 0, &seen }, sent = { dy, N * H * W, T * O, 0, 0, 0, &back };
    bgemm_view by_tap = { w, T * O, C, T * C, O, C, NULL };
    bgemm_call forward = {
        .M = N * Ho * Wo, .N = O, .K = T * C, .a = patches, .b = bgemm_matrix(w, O, T * C, T * C), .tb = true, .ldc = O
    };
    bgemm_call dx = { .M = N * H * W, .N = C, .K = T * O, .a = sent, .b = by_tap, .ldc = C };
    bgemm_call dw = { .M = O,
                      .N = T * C,
                      .K = N * Ho * Wo,
                      .a = bgemm_matrix(dy, N * Ho * Wo, O, O),
                      .ta = true,
                      .b = patches,
                      .ldc = T * C,
                      .c_float = true };
    run_packed(kernel, forward, "conv");
    run_packed(kernel, dx, "conv dx");
    run_and_compare(kernel, &dw, "conv dw");
    free(x);
    free(w);
    free(dy);
}

static void all(const bgemm_kernel *kernel)
{
    if (!bgemm_usable(kernel) && kernel != &bgemm_emulated) SKIP("not on this machine");
    printf("  %s\n", kernel->name);
    matrices(kernel);
    epilogues(kernel);
    convolution(kernel, 32, 48, 3, 1, 1, 9, 7);
    convolution(kernel, 3, 16, 3, 2, 1, 9, 8);
    convolution(kernel, 20, 33, 1, 1, 0, 6, 5);
    convolution(kernel, 40, 17, 3, 2, 1, 10, 11);
    convolution(kernel, 3, 24, 4, 4, 0, 8, 8);
}

static void plain(void) { all(&bgemm_plain); }
static void emulated_amx(void) { all(&bgemm_emulated); }
#ifdef __x86_64__
static void avx2(void) { all(&bgemm_avx2); }
static void avx512(void) { all(&bgemm_avx512); }
static void amx(void) { all(&bgemm_amx); }
#else
static void avx2(void) { SKIP("another processor"); }
static void avx512(void) { SKIP("another processor"); }
static void amx(void) { SKIP("another processor"); }
#endif

/* One thread and three give the same bytes, also where K is summed in parts. */
static void threads_change_nothing(void)
{
    enum { M = 48, N = 80, K = 6000 };
    uint16_t *a = noise(M * K, "a"), *b = noise(N * K, "b");
    float *first = calloc(M * N, sizeof *first), *second = calloc(M * N, sizeof *second);
    bgemm_call x = { .M = M,
                     .N = N,
                     .K = K,
                     .a = bgemm_matrix(a, K, M, M),
                     .ta = true,
                     .b = bgemm_matrix(b, K, N, N),
                     .ldc = N,
                     .c_float = true };
    int before = ctx->threads;
    for (int t = 1; t <= 3; t += 2) {
        ctx->threads = t;
        void *scratch = malloc(bgemm_scratch(ctx, bgemm_best(), &x));
        x.c = t == 1 ? first : second;
        bgemm_run(ctx, bgemm_best(), &x, scratch);
        free(scratch);
    }
    ctx->threads = before;
    CHECK(memcmp(first, second, M * N * sizeof *first) == 0);
    free(a);
    free(b);
    free(first);
    free(second);
}

static void conversions_equal_the_definition(void)
{
    static const uint32_t odd[] = { 0x7F800000u,
                                    0xFF800000u,
                                    0x7F800001u,
                                    0x7FFFFFFFu,
                                    0xFFC00001u,
                                    0x7F7FFFFFu,
                                    0x3F808000u,
                                    0x3F818000u,
                                    0,
                                    0x80000000u,
                                    1 };
    for (uint64_t i = 0; i < 100000; i++) {
        uint32_t bits = i < sizeof odd / sizeof *odd ? odd[i] : (uint32_t)rng_below(9, i, (uint64_t)1 << 32);
        float x;
        memcpy(&x, &bits, sizeof x);
        if (isnan(x)) CHECK(isnan(bf16_up(bf16_down(x))));
        else CHECK(bf16_down(x) == bf16_from_float(x));
    }
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(conversions_equal_the_definition);
    RUN(plain);
    RUN(avx2);
    RUN(avx512);
    RUN(amx);
    RUN(emulated_amx);
    RUN(threads_change_nothing);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
