/* Packed GEMMs: every kernel of the table that this machine can run, and the AMX kernel's code on emulated tiles, at
 * odd sizes against double loops (f32, bf16), or byte by byte against the definition or the plain kernel (int8). */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/gemm_kernels.h"
#include "tensor/tensor.h"
#include "tile_emulation.h"

static cloob_ctx *ctx;

static void *room(size_t bytes) { return aligned_alloc(256, (bytes + 511) / 256 * 256); }

static uint16_t *noise(int64_t n, const char *name)
{
    uint16_t *x = room((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = bf16_from_float((float)rng_normal(rng_key(3, name), (uint64_t)i));
    return x;
}

static float *floats(int64_t n, uint64_t key)
{
    float *x = room((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2 * rng_uniform(key, (uint64_t)i) - 1);
    return x;
}

typedef void kernel_test(const gemm_kernel *kernel);

/* The kernels of a kind that can run here. */
static int each_kernel(gemm_kind kind, kernel_test *test)
{
    int ran = 0;
    for (int i = 0; gemm_kernel_at(i); i++) {
        const gemm_kernel *kernel = gemm_kernel_at(i);
        if (kernel->kind != kind || !gemm_usable(kernel)) continue;
        printf("  %s\n", kernel->name);
        test(kernel);
        ran++;
    }
    CHECK(ran > 0);
    return ran;
}

/* gemm_packed_run with scratch of the planned size, and a guard behind it. */
static void run(const gemm_kernel *kernel, const gemm_call *x)
{
    size_t bytes = gemm_scratch(ctx, kernel, x, x->packed != NULL);
    char *scratch = malloc(bytes + 64);
    memset(scratch + bytes, 0x5A, 64);
    gemm_packed_run(ctx, kernel, x, scratch);
    for (int i = 0; i < 64; i++) CHECK(scratch[bytes + (size_t)i] == 0x5A);
    free(scratch);
}

static void *packed_of(const gemm_kernel *kernel, const gemm_call *x)
{
    size_t bytes = gemm_packed_bytes(kernel, x->N, x->K);
    char *packed = room(bytes + 64);
    memset(packed + bytes, 0x5A, 64);
    gemm_pack(ctx, kernel, x, packed);
    for (int i = 0; i < 64; i++) CHECK(packed[bytes + (size_t)i] == 0x5A);
    return packed;
}

/* ---- f32 and bf16 against double loops --------------------------------------------------------------- */

static bool takes_bf16(const gemm_kernel *kernel) { return kernel->kind == GEMM_BF16 || kernel->kind == GEMM_U8; }

static double stored(const gemm_kernel *kernel, const gemm_view *v, int64_t i)
{
    return takes_bf16(kernel) ? (double)bf16_up(((const uint16_t *)v->data)[i]) : (double)((const float *)v->data)[i];
}

/* Element (r, c) of a view, by its definition. */
static double at(const gemm_kernel *kernel, const gemm_view *v, int64_t r, int64_t c)
{
    const gemm_patches *p = v->patches;
    if (!p) return stored(kernel, v, (v->inner ? r % v->inner * v->ld + r / v->inner * v->outer : r * v->ld) + c);
    int64_t h = r / p->Gw % p->Gh * p->mul + c / p->C / p->k * p->sign + p->off,
            w = r % p->Gw * p->mul + c / p->C % p->k * p->sign + p->off;
    if (h < 0 || w < 0 || h % p->div || w % p->div || h / p->div >= p->H || w / p->div >= p->W) return 0;
    return stored(kernel, v, ((r / p->Gw / p->Gh * p->H + h / p->div) * p->W + w / p->div) * p->pixel + c % p->C);
}

static double read_c(const gemm_call *x, const void *c, int64_t i)
{
    return x->c_bf16 ? (double)bf16_up(((const uint16_t *)c)[i]) : (double)((const float *)c)[i];
}

static double expected(const gemm_kernel *kernel, const gemm_call *x, int64_t m, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < x->K; k++)
        sum += (x->ta ? at(kernel, &x->a, k, m) : at(kernel, &x->a, m, k)) *
               (x->tb ? at(kernel, &x->b, n, k) : at(kernel, &x->b, k, n));
    sum *= x->alpha != 0 ? (double)x->alpha : 1;
    if (x->bias) sum += (double)x->bias[n];
    if (x->res) sum += read_c(x, x->res, m * x->ldc + n);
    return x->relu && sum < 0 ? 0 : sum;
}

/* Norm-wise. Float sums of K products: 1e-6; a result in bf16 rounds by up to 2^-9. 8 bits by 8 bits: of normal numbers
 * the largest of 64 is about 2.7, so that rounding is off by 2.7 / 127 / sqrt(12) = 0.6 % for either factor. */
static void compare(const gemm_kernel *kernel, const gemm_call *x, const char *what)
{
    double diff = 0, norm = 0;
    int wild = 0;
    for (int64_t m = 0; m < x->M; m++)
        for (int64_t n = 0; n < x->ldc; n++) {
            double got = read_c(x, x->c, m * x->ldc + n);
            if (n >= x->N) {
                wild += got != 7.0; /* between rows nothing is written */
                continue;
            }
            double want = expected(kernel, x, m, n);
            diff += (got - want) * (got - want), norm += want * want;
        }
    double error = sqrt(diff / (norm > 0 ? norm : 1));
    if (wild || !(error <= (kernel->kind == GEMM_U8 ? 0.015 : x->c_bf16 ? 3e-3 : 2e-6))) {
        printf("  %s, %s, M %lld N %lld K %lld: error %.3g, %d elements written between rows\n", kernel->name, what,
               (long long)x->M, (long long)x->N, (long long)x->K, error, wild);
        check_bad_here_++;
    }
}

static size_t c_bytes(const gemm_call *x) { return (size_t)(x->M * x->ldc) * (x->c_bf16 ? 2 : 4); }

static void *new_c(const gemm_call *x)
{
    void *c = malloc(c_bytes(x));
    for (int64_t i = 0; i < x->M * x->ldc; i++)
        if (x->c_bf16) ((uint16_t *)c)[i] = bf16_down(7);
        else ((float *)c)[i] = 7;
    return c;
}

/* Packed before and on the way: both right, and the same bytes unless K is summed in parts. */
static void check_call(const gemm_kernel *kernel, gemm_call x, const char *what)
{
    void *packed = packed_of(kernel, &x), *first = x.c = new_c(&x);
    run(kernel, &x);
    compare(kernel, &x, what);
    x.packed = packed, x.c = new_c(&x);
    run(kernel, &x);
    compare(kernel, &x, what);
    if ((kernel->kind == GEMM_F32 && !x.ta) || x.c_bf16) CHECK(memcmp(first, x.c, c_bytes(&x)) == 0);
    if (x.res) { /* in place */
        memcpy(x.c, x.res, c_bytes(&x));
        x.res = x.c;
        run(kernel, &x);
        CHECK(kernel->kind != GEMM_F32 || memcmp(first, x.c, c_bytes(&x)) == 0);
    }
    free(x.c), free(first), free(packed);
}

static const int64_t sizes[][3] = { { 1, 1, 1 },      { 16, 16, 32 },  { 33, 47, 65 },   { 15, 17, 31 },
                                    { 130, 35, 300 }, { 5, 600, 20 },  { 77, 100, 1 },   { 40, 40, 2500 },
                                    { 300, 40, 500 }, { 29, 70, 130 }, { 160, 18, 900 }, { 2, 9, 1601 } };
enum { SIZES = sizeof sizes / sizeof *sizes };

static gemm_view view_of(const gemm_kernel *kernel, int64_t rows, int64_t cols, uint64_t key)
{
    int64_t n = rows * (cols + 3);
    void *data = takes_bf16(kernel) ? (void *)noise(n, key == 1 ? "a" : "b") : (void *)floats(n, key);
    return gemm_matrix(data, rows, cols, cols + 3);
}

static void matrices(const gemm_kernel *kernel)
{
    bool bf16 = kernel->kind == GEMM_BF16;
    for (int i = 0; i < SIZES * 4; i++) {
        int64_t M = sizes[i / 4][0], N = sizes[i / 4][1], K = sizes[i / 4][2];
        bool ta = i & 1, tb = i & 2;
        gemm_call x = { .M = M, .N = N, .K = K, .ta = ta, .tb = tb, .ldc = N + 2, .c_bf16 = bf16 && i % 3 };
        x.a = ta ? view_of(kernel, K, M, 1) : view_of(kernel, M, K, 1);
        x.b = tb ? view_of(kernel, N, K, 2) : view_of(kernel, K, N, 2);
        check_call(kernel, x, "matrices");
        free((void *)(uintptr_t)x.a.data), free((void *)(uintptr_t)x.b.data);
    }
}

static void epilogues(const gemm_kernel *kernel)
{
    enum { M = 37, N = 41, K = 50 };
    float *bias = floats(N, 3), *res = floats(M * N, 4);
    uint16_t *half_res = noise(M * N, "res");
    gemm_call all = { .M = M,
                      .N = N,
                      .K = K,
                      .a = view_of(kernel, M, K, 1),
                      .b = view_of(kernel, N, K, 2),
                      .tb = true,
                      .ldc = N,
                      .c_bf16 = kernel->kind == GEMM_BF16 };
    for (int t = 0; t < 16; t++) {
        gemm_call x = all;
        x.bias = t & 1 ? bias : NULL, x.relu = t & 4, x.alpha = t & 8 ? 0.125f : 0;
        x.res = !(t & 2) ? NULL : x.c_bf16 ? (void *)half_res : (void *)res;
        check_call(kernel, x, "epilogue");
    }
    free((void *)(uintptr_t)all.a.data), free((void *)(uintptr_t)all.b.data), free(bias), free(res), free(half_res);
}

/* A convolution's three GEMMs: channels that fill tiles and channels that do not. */
static void convolution(const gemm_kernel *kernel, int64_t C, int64_t O, int64_t k, int64_t s, int64_t p, int64_t H,
                        int64_t W)
{
    enum { N = 2 };
    int64_t Ho = (H + 2 * p - k) / s + 1, Wo = (W + 2 * p - k) / s + 1, T = k * k;
    bool bf16 = takes_bf16(kernel);
    void *x = bf16 ? (void *)noise(N * H * W * C, "x") : (void *)floats(N * H * W * C, 1);
    void *w = bf16 ? (void *)noise(O * T * C, "w") : (void *)floats(O * T * C, 2);
    void *dy = bf16 ? (void *)noise(N * Ho * Wo * O, "dy") : (void *)floats(N * Ho * Wo * O, 3);
    gemm_patches seen = { H, W, C, C, Ho, Wo, k, s, 1, -p, 1 }, back = { Ho, Wo, O, O, H, W, k, 1, -1, p, s };
    gemm_view patches = { x, N * Ho * Wo, T * C, 0, 0, 0, &seen }, sent = { dy, N * H * W, T * O, 0, 0, 0, &back };
    gemm_view by_tap = { w, T * O, C, T * C, O, C, NULL };
    gemm_call forward = { .M = N * Ho * Wo,
                          .N = O,
                          .K = T * C,
                          .a = patches,
                          .b = gemm_matrix(w, O, T * C, T * C),
                          .tb = true,
                          .c_bf16 = bf16,
                          .ldc = O };
    gemm_call dx = { .M = N * H * W, .N = C, .K = T * O, .a = sent, .b = by_tap, .c_bf16 = bf16, .ldc = C };
    gemm_call dw = { .M = O,
                     .N = T * C,
                     .K = N * Ho * Wo,
                     .a = gemm_matrix(dy, N * Ho * Wo, O, O),
                     .ta = true,
                     .b = patches,
                     .ldc = T * C };
    check_call(kernel, forward, "conv");
    check_call(kernel, dx, "conv dx");
    check_call(kernel, dw, "conv dw");
    free(x), free(w), free(dy);
}

static void real_kernel(const gemm_kernel *kernel)
{
    matrices(kernel);
    epilogues(kernel);
    convolution(kernel, 32, 48, 3, 1, 1, 9, 7);
    convolution(kernel, 3, 16, 3, 2, 1, 9, 8);
    convolution(kernel, 20, 33, 1, 1, 0, 6, 5);
    convolution(kernel, 40, 17, 3, 2, 1, 10, 11);
    convolution(kernel, 3, 24, 4, 4, 0, 8, 8);
}

static void f32(void) { each_kernel(GEMM_F32, real_kernel); }
static void bf16(void) { each_kernel(GEMM_BF16, real_kernel); }
static void bf16_on_emulated_tiles(void) { real_kernel(&gemm_emulated); }

/* A fused multiply-add per element of K in ascending order, in AVX2 and AVX-512. */
static void f32_kernels_give_the_same_bytes(void)
{
#ifdef __x86_64__
    if (!gemm_usable(&gemm_f32_avx512) || !gemm_usable(&gemm_f32_avx2)) SKIP("needs AVX-512");
    enum { M = 31, N = 50, K = 1700 };
    float *a = floats(M * K, 1), *b = floats(N * K, 2), *bias = floats(N, 3), c[2][M * N];
    gemm_call x = { .M = M,
                    .N = N,
                    .K = K,
                    .a = gemm_matrix(a, M, K, K),
                    .b = gemm_matrix(b, N, K, K),
                    .tb = true,
                    .ldc = N,
                    .bias = bias };
    x.c = c[0], run(&gemm_f32_avx512, &x);
    x.c = c[1], run(&gemm_f32_avx2, &x);
    CHECK(memcmp(c[0], c[1], sizeof c[0]) == 0);
    free(a), free(b), free(bias);
#else
    SKIP("another processor");
#endif
}

static void few_rows(void)
{
    for (int i = 0; i < 2 * SIZES; i++) {
        int64_t M = sizes[i / 2][0], N = sizes[i / 2][1], K = sizes[i / 2][2];
        bool tb = i % 2;
        float *bias = floats(N, 3), *res = floats(M * N, 4);
        gemm_call x = {
            .M = M, .N = N, .K = K, .a = view_of(&gemm_f32_plain, M, K, 1), .tb = tb, .ldc = N, .bias = bias, .res = res
        };
        x.b = tb ? view_of(&gemm_f32_plain, N, K, 2) : view_of(&gemm_f32_plain, K, N, 2);
        x.c = new_c(&x);
        gemm_f32_few(ctx, &x);
        compare(&gemm_f32_plain, &x, "few rows");
        free((void *)(uintptr_t)x.a.data), free((void *)(uintptr_t)x.b.data), free(bias), free(res), free(x.c);
    }
}

/* ---- bytes by bytes ---------------------------------------------------------------------------------- */

/* C in 8 bits, written by the epilogue, is C rounded by a pass: next to C, and, without a residual, alone. */
static void check_rounded_c(const gemm_kernel *kernel, gemm_call x, const void *c)
{
    gemm_view v = gemm_matrix(c, x.M, x.N, x.ldc);
    size_t bytes = gemm_u8_rounded_bytes(&v);
    char *want = room(bytes), *got = room(bytes);
    gemm_u8_round(ctx, kernel, &v, want);
    x.c = new_c(&x);
    for (int alone = 0; alone < (x.res ? 1 : 2); alone++) {
        memset(got, 1, bytes);
        gemm_call y = x;
        if (alone) y.c = NULL;
        y.c_rounded = got;
        run(kernel, &y);
        CHECK(memcmp(got, want, bytes) == 0);
        CHECK(alone || memcmp(c, x.c, c_bytes(&x)) == 0);
    }
    free(want), free(got), free(x.c);
}

/* Every kernel gives the plain one's bytes, and those are near the definition. */
static void check_u8(const gemm_kernel *kernel, gemm_call x, const char *what)
{
    void *packed = packed_of(kernel, &x), *plain = x.c = new_c(&x);
    x.packed = packed;
    run(&gemm_u8_plain, &x); /* all kernels share the layout */
    compare(&gemm_u8_plain, &x, what);
    x.c = new_c(&x);
    run(kernel, &x);
    CHECK(memcmp(plain, x.c, c_bytes(&x)) == 0);
    size_t bytes = gemm_u8_rounded_bytes(&x.a);
    void *rounded = bytes ? room(bytes) : NULL;
    if (rounded) { /* rounded before */
        gemm_u8_round(ctx, kernel, &x.a, rounded);
        x.rounded = rounded;
        free(x.c), x.c = new_c(&x);
        run(kernel, &x);
        CHECK(memcmp(plain, x.c, c_bytes(&x)) == 0);
    }
    if (x.c_bf16 && x.N % GEMM_U8_GROUP == 0) check_rounded_c(kernel, x, plain);
    free(x.c), free(plain), free(packed), free(rounded);
}

static void u8_matrices(const gemm_kernel *kernel)
{
    for (int i = 0; i < 4 * SIZES; i++) {
        int64_t M = sizes[i / 4][0], N = sizes[i / 4][1], K = sizes[i / 4][2];
        if (i & 2) N = (N + GEMM_U8_GROUP - 1) / GEMM_U8_GROUP * GEMM_U8_GROUP; /* C in 8 bits as well */
        if (K < 20) continue; /* a column of weights is off by up to 1 / 254 of its largest: too few to even out */
        gemm_call x = {
            .M = M, .N = N, .K = K, .tb = true, .ldc = N + 2, .c_bf16 = i % 2, .relu = (i / 4 * 2 + i % 2) % 3 == 0
        };
        x.a = view_of(kernel, M, K, 1), x.b = view_of(kernel, N, K, 2);
        uint16_t *a = (uint16_t *)(uintptr_t)x.a.data;
        for (int64_t r = 0; r < M * x.a.ld; r++)
            if (r / x.a.ld % 2) a[r] &= 0x7FFF; /* rows as behind relu, with all 8 bits for magnitudes */
        check_u8(kernel, x, "u8 matrices");
        free(a), free((void *)(uintptr_t)x.b.data);
    }
}

static void u8_convolution(const gemm_kernel *kernel, int64_t C, int64_t O, int64_t k, int64_t s, int64_t p)
{
    enum { N = 2, H = 9, W = 7 };
    int64_t Ho = (H + 2 * p - k) / s + 1, Wo = (W + 2 * p - k) / s + 1, T = k * k;
    uint16_t *x = noise(N * H * W * C, "x"), *w = noise(O * T * C, "w"), *res = noise(N * Ho * Wo * O, "res");
    float *bias = floats(O, 3);
    gemm_patches seen = { H, W, C, C, Ho, Wo, k, s, 1, -p, 1 };
    gemm_call forward = { .M = N * Ho * Wo,
                          .N = O,
                          .K = T * C,
                          .a = { x, N * Ho * Wo, T * C, 0, 0, 0, &seen },
                          .b = gemm_matrix(w, O, T * C, T * C),
                          .tb = true,
                          .c_bf16 = true,
                          .ldc = O,
                          .bias = bias,
                          .res = res };
    check_u8(kernel, forward, "u8 conv");
    free(x), free(w), free(res), free(bias);
}

/* Zeros and numbers too small for a scale give zeros. What is not a number stays in its row. */
static void u8_extremes(const gemm_kernel *kernel)
{
    enum { M = 5, N = 40, K = 130 };
    gemm_call x = { .M = M, .N = N, .K = K, .tb = true, .ldc = N };
    x.a = view_of(kernel, M, K, 1), x.b = view_of(kernel, N, K, 2);
    uint16_t *a = (uint16_t *)(uintptr_t)x.a.data;
    float c[M * N];
    for (int64_t k = 0; k < K; k++) a[k] = 0x8000, a[x.a.ld + k] = bf16_down(1e-35f);
    a[2 * x.a.ld + 70] = bf16_down(NAN), a[3 * x.a.ld + 1] = bf16_down(-INFINITY);
    void *packed = packed_of(kernel, &x);
    x.packed = packed, x.c = c;
    run(kernel, &x);
    for (int i = 0; i < N; i++) {
        CHECK(c[i] == 0 && c[N + i] == 0);
        CHECK(isnan(c[2 * N + i]) && isnan(c[3 * N + i]));
        CHECK(isfinite(c[4 * N + i]));
    }
    free(packed), free(a), free((void *)(uintptr_t)x.b.data);
}

static void u8_kernel(const gemm_kernel *kernel)
{
    u8_matrices(kernel);
    u8_convolution(kernel, 64, 128, 3, 1, 1);
    u8_convolution(kernel, 64, 48, 3, 1, 1);
    u8_convolution(kernel, 40, 33, 3, 2, 1);
    u8_convolution(kernel, 130, 70, 1, 1, 0);
    u8_extremes(kernel);
}

static void u8(void) { each_kernel(GEMM_U8, u8_kernel); }
static void u8_on_emulated_tiles(void) { u8_kernel(&gemm_u8_emulated); }

/* One thread and three give the same bytes, also where K is summed in parts. */
static void threads_change_nothing(void)
{
    enum { M = 48, N = 80, K = 6000 };
    uint16_t *a = noise(M * K, "a"), *b = noise(N * K, "b");
    float *first = calloc(M * N, sizeof *first), *second = calloc(M * N, sizeof *second);
    gemm_call x = {
        .M = M, .N = N, .K = K, .a = gemm_matrix(a, K, M, M), .ta = true, .b = gemm_matrix(b, K, N, N), .ldc = N
    };
    int before = ctx->threads;
    for (int t = 1; t <= 3; t += 2) {
        ctx->threads = t;
        x.c = t == 1 ? first : second;
        run(gemm_best(GEMM_BF16), &x);
    }
    ctx->threads = before;
    CHECK(memcmp(first, second, M * N * sizeof *first) == 0);
    free(a), free(b), free(first), free(second);
}

/* ---- int8 ------------------------------------------------------------------------------------------ */

typedef struct problem {
    float *x, *w, *bias, *res, *y, *want;
    gemm_call c; /* packed for a kernel by pack() */
} problem;

static problem make(int64_t M, int64_t N, int64_t K)
{
    problem p = { .x = floats(M * K, 1), .w = floats(N * K, 2), .bias = floats(N, 3), .res = floats(M * N, 4) };
    p.y = floats(M * N + 8, 5), p.want = floats(M * N, 6);
    p.c = (gemm_call){ .M = M,
                       .N = N,
                       .K = K,
                       .a = gemm_matrix(p.x, M, K, K),
                       .b = gemm_matrix(p.w, N, K, K),
                       .tb = true,
                       .c = p.y,
                       .ldc = N,
                       .bias = p.bias,
                       .res = p.res };
    return p;
}

static void destroy(problem *p)
{
    free(p->x), free(p->w), free(p->bias), free(p->res), free(p->y), free(p->want);
    free((void *)(uintptr_t)p->c.packed);
}

static void pack(problem *p, const gemm_kernel *kernel)
{
    free((void *)(uintptr_t)p->c.packed);
    p->c.packed = packed_of(kernel, &p->c);
}

/* GEMM_I8 by its definition. */
static float i8_element(const problem *p, int64_t m, int64_t n)
{
    int64_t K = p->c.K;
    const float *x = p->x + m * K, *w = p->w + n * K;
    float max = (float)gemm_i8_top(K), top = gemm_i8_row_top(x, K), scale = gemm_i8_row_top(w, K) / 127.0f;
    int32_t sum = 0;
    for (int64_t k = 0; k < K; k++)
        sum += (int32_t)rintf(x[k] * (top > 0 ? max / top : 0)) * (int32_t)rintf(w[k] / scale);
    float v = (float)sum * (top / max * scale);
    if (p->c.bias) v = v + p->c.bias[n];
    return p->c.res ? v + p->res[m * p->c.N + n] : v;
}

/* What p->want has to be: for 7-bit activations what the plain kernel gives. */
static void fill_want(problem *p, gemm_kind kind)
{
    gemm_call plain = p->c;
    plain.c = p->want;
    if (kind == GEMM_I8_GROUPS) {
        plain.packed = packed_of(&gemm_i8_groups_plain, &plain);
        run(&gemm_i8_groups_plain, &plain);
        free((void *)(uintptr_t)plain.packed);
        return;
    }
    for (int64_t i = 0; i < p->c.M * p->c.N; i++) p->want[i] = i8_element(p, i / p->c.N, i % p->c.N);
}

static void check_int8(const gemm_kernel *kernel, problem *p)
{
    int64_t n = p->c.M * p->c.N;
    float guard = p->y[n];
    fill_want(p, kernel->kind);
    pack(p, kernel);
    run(kernel, &p->c);
    CHECK(memcmp(p->y, p->want, (size_t)n * sizeof *p->y) == 0);
    CHECK(p->y[n] == guard);
}

static void int8_definition(const gemm_kernel *kernel)
{
    for (int i = 0; i < SIZES; i++) {
        problem p = make(sizes[i][0], sizes[i][1], sizes[i][2]);
        size_t bytes = (size_t)(p.c.M * p.c.N) * sizeof *p.y;
        check_int8(kernel, &p);
        memcpy(p.y, p.res, bytes);
        p.c.res = p.y; /* in place */
        run(kernel, &p.c);
        CHECK(memcmp(p.y, p.want, bytes) == 0);
        destroy(&p);
    }
}

/* An element of W is off by at most half its row's scale, 1 / 254. An element of X is off by 1 / 8190; or, with 7 bits,
 * by at most half its group's scale: 1 / 126, or what the length of a half allows, here less than 1 / 60. */
static void close_to_floats(const gemm_kernel *kernel)
{
    enum { M = 9, N = 40, K = 300 };
    problem p = make(M, N, K);
    double off = 0, all = 0, x_step = kernel->kind == GEMM_I8 ? 1 / 8190.0 : 1 / 60.0;
    pack(&p, kernel);
    run(kernel, &p.c);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double want = (double)p.bias[n] + (double)p.res[m * N + n], size = 0, weight = 0;
            for (int64_t k = 0; k < K; k++) {
                want += (double)p.x[m * K + k] * (double)p.w[n * K + k];
                size += fabs((double)p.x[m * K + k]), weight += fabs((double)p.w[n * K + k]);
            }
            double d = (double)p.y[m * N + n] - want;
            CHECK(fabs(d) <= size / 254 + weight * x_step + K / 254.0 * x_step);
            off += d * d, all += want * want;
        }
    CHECK(sqrt(off / all) < 0.02);
    printf("  off by %.4f of the length\n", sqrt(off / all));
    destroy(&p);
}

/* The largest numbers, which would not fit if a bound were off by one bit. Rows and weights point the same way; a sign
 * that differs in the second half of each four shows that halves are counted apart. */
static void the_largest_sums_fit(const gemm_kernel *kernel)
{
    enum { M = 13, N = 20, K = 3072 };
    problem p = make(M, N, K);
    for (int64_t i = 0; i < M * K; i++) p.x[i] = i / K % 2 && i % K % 4 > 1 ? -1.0f : 1.0f;
    for (int64_t i = 0; i < N * K; i++)
        p.w[i] = i / K % 3 == 0 ? -0.5f : i % K % 4 > 1 && i / K % 3 == 1 ? 0.25f : 0.5f;
    p.c.bias = NULL, p.c.res = NULL;
    check_int8(kernel, &p);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double want = 0;
            for (int64_t k = 0; k < K; k++) want += (double)p.x[m * K + k] * (double)p.w[n * K + k];
            CHECK_NEAR(p.y[m * N + n], want, 0.05 * K); /* 7 bits: 15 steps for 1, the coarsest scale there is */
        }
    CHECK((int64_t)gemm_i8_top(K) * 127 * K <= INT32_MAX);
    destroy(&p);
}

/* Zeros and numbers too small for a scale give zeros. What is not a number stays in its row. */
static void zeros_and_what_is_not_a_number(const gemm_kernel *kernel)
{
    enum { M = 5, N = 17, K = 64 };
    problem p = make(M, N, K);
    p.c.bias = NULL, p.c.res = NULL;
    for (int64_t k = 0; k < K; k++) p.x[k] = 0, p.x[K + k] = 1e-42f;
    p.x[2 * K + 40] = NAN;
    p.x[3 * K + 1] = INFINITY;
    pack(&p, kernel);
    run(kernel, &p.c);
    for (int64_t n = 0; n < N; n++) {
        CHECK(p.y[n] == 0 && p.y[N + n] == 0);
        CHECK(!isfinite(p.y[2 * N + n]) && !isfinite(p.y[3 * N + n]) && isfinite(p.y[4 * N + n]));
    }
    destroy(&p);
}

static void i8_kernel(const gemm_kernel *kernel)
{
    int8_definition(kernel);
    close_to_floats(kernel);
    the_largest_sums_fit(kernel);
    if (kernel->kind == GEMM_I8_GROUPS) zeros_and_what_is_not_a_number(kernel);
}

static void i8(void) { each_kernel(GEMM_I8, i8_kernel); }
static void i8_groups(void) { each_kernel(GEMM_I8_GROUPS, i8_kernel); }

/* ---- all ------------------------------------------------------------------------------------------- */

/* Also with the scratch of a larger call: fewer rows may run than were planned for. */
static void same_row(const gemm_kernel *kernel)
{
    enum { M = 157, N = 48, K = 900 };
    problem p = make(M, N, K);
    float few[3 * N];
    p.c.res = NULL;
    pack(&p, kernel);
    size_t bytes = gemm_scratch(ctx, kernel, &p.c, true);
    char *scratch = malloc(bytes + 64);
    memset(scratch + bytes, 0x5A, 64);
    gemm_packed_run(ctx, kernel, &p.c, scratch);
    for (int64_t row = 0; row < M - 3; row += 13)
        for (int64_t rows = 1; rows <= 3; rows++) {
            gemm_call c = p.c;
            c.M = rows, c.a.data = p.x + row * K, c.c = few;
            gemm_packed_run(ctx, kernel, &c, scratch);
            CHECK(memcmp(few, p.y + row * N, (size_t)(rows * N) * sizeof *few) == 0);
        }
    for (int64_t rows = 1; rows < M; rows += 5) {
        gemm_call c = p.c;
        c.M = rows, c.c = p.want;
        gemm_packed_run(ctx, kernel, &c, scratch);
        CHECK(memcmp(p.want, p.y, (size_t)(rows * N) * sizeof *p.y) == 0);
    }
    for (int i = 0; i < 64; i++) CHECK(scratch[bytes + (size_t)i] == 0x5A);
    free(scratch), destroy(&p);
}

static void a_row_has_its_bytes_in_any_batch(void)
{
    each_kernel(GEMM_F32, same_row);
    each_kernel(GEMM_I8, same_row);
    each_kernel(GEMM_I8_GROUPS, same_row);
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
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 3 });
    RUN(conversions_equal_the_definition);
    RUN(f32);
    RUN(bf16);
    RUN(bf16_on_emulated_tiles);
    RUN(i8);
    RUN(i8_groups);
    RUN(u8);
    RUN(u8_on_emulated_tiles);
    RUN(f32_kernels_give_the_same_bytes);
    RUN(few_rows);
    RUN(threads_change_nothing);
    RUN(a_row_has_its_bytes_in_any_batch);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
