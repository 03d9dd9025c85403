/* Our kernels for a ResNet's stem beside cuDNN's best, at the sizes of RN50 and RN50x4: time, bandwidth by
 * the bytes that must move, and the difference of the results (some images of the batch).
 *
 *     bench_conv_small [all|RN50|RN50x4|blocks [once]]      (once: our kernels alone, one run each, for a profiler)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/cuda/stem/conv_small.h"

static cloob_ctx *ctx;
static device *dev;

static void fail(const char *what)
{
    fprintf(stderr, "bench_conv_small: %s: %s\n", what, cloob_error(ctx));
    exit(1);
}
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != CLOOB_OK) fail(#call);                                                                           \
    } while (0)

typedef struct buffer {
    void *data;
    int64_t n, last; /* elements, and those of the last dimension */
    cloob_dtype type;
} buffer;

static buffer buffer_make(int64_t n, int64_t last, cloob_dtype type)
{
    buffer b = { NULL, n, last, type };
    TRY(dev->alloc(ctx, dev, (size_t)n * dtype_size(type), "a tensor", &b.data));
    TRY(cuda_fill_noise(ctx, dev->stream, b.data, type, n));
    return b;
}

typedef struct job {
    dnn_shape s;
    buffer x, w, y, out; /* out: a second buffer for the result */
    small_plan *small;
    dnn_plan *dnn;
    void *workspace, *pivot, *before;
} job;

static void *result(job *j)
{
    return j->s.kind == DNN_FORWARD ? j->y.data : j->s.kind == DNN_DX ? j->x.data : j->w.data;
}

static cloob_status run_dnn(void *user)
{
    job *j = user;
    return dnn_run(ctx, dev, j->dnn, dev->stream, j->x.data, j->w.data, j->y.data, j->workspace);
}

static cloob_status run_small(void *user)
{
    job *j = user;
    void *x = j->x.data, *w = j->w.data, *y = j->y.data;
    *(j->s.kind == DNN_FORWARD ? &y : j->s.kind == DNN_DX ? &x : &w) = j->out.data;
    float *v = j->pivot;
    small_data data = { x,         w, y,   j->workspace, v, { .5f, .5f, .5f }, { .25f, .25f, .25f }, { v, v, v, v },
                        j->before, v, 1.0f };
    return small_run(ctx, dev, j->small, dev->stream, &data);
}

static void fetch(double *to, const void *from, cloob_dtype type, int64_t begin, int64_t n)
{
    void *raw = malloc((size_t)n * dtype_size(type));
    TRY(dev->to_host(ctx, dev, raw, (char *)(uintptr_t)from + (size_t)begin * dtype_size(type),
                     (size_t)n * dtype_size(type)));
    dtype_convert(CLOOB_F64, to, type, raw, n);
    free(raw);
}

/* Difference of two results over begin, middle and end; says where the first large one is. */
static void compare(job *j, const void *a, cloob_dtype a_type)
{
    int64_t piece = j->out.n < 4000000 ? j->out.n : 4000000 / j->out.last * j->out.last, bad = -1;
    double *p = malloc((size_t)piece * sizeof *p), *q = malloc((size_t)piece * sizeof *q), diff = 0, norm = 0, got = 0,
           want = 0;
    for (int part = 0; part < 3; part++) {
        int64_t begin = (j->out.n - piece) / j->out.last * part / 2 * j->out.last;
        fetch(p, a, a_type, begin, piece);
        fetch(q, j->out.data, j->out.type, begin, piece);
        double rms = 0;
        for (int64_t i = 0; i < piece; i++) rms += p[i] * p[i];
        rms = sqrt(rms / (double)piece);
        for (int64_t i = 0; i < piece; i++) {
            diff += (p[i] - q[i]) * (p[i] - q[i]);
            norm += p[i] * p[i];
            if (bad < 0 && !(fabs(p[i] - q[i]) < 0.02 * (fabs(p[i]) + rms))) bad = begin + i, want = p[i], got = q[i];
        }
    }
    printf("  rel. difference %.2e", sqrt(diff / norm));
    if (bad >= 0) {
        int64_t W = j->s.kind == DNN_DX ? j->s.W : j->s.Wo, H = j->s.kind == DNN_DX ? j->s.H : j->s.Ho,
                at = bad / j->out.last;
        if (j->s.kind == DNN_DW) W = H = 3;
        printf("  WRONG first at [%lld,%lld,%lld,%lld]: %g, cuDNN %g", (long long)(at / W / H), (long long)(at / W % H),
               (long long)(at % W), (long long)(bad % j->out.last), got, want);
    }
    printf("\n");
    free(p);
    free(q);
}

static bool once;
static double total_small, total_dnn;

/* with: what our kernels do beside the convolution; from bytes there is nothing to compare with here. */
static void bench(dnn_kind kind, int64_t N, int64_t HW, int64_t C, int64_t O, int64_t stride, int with)
{
    static const char *kinds[] = { "forward", "dx", "dw" },
                      *beside[] = { "",
                                    " and statistics",
                                    " from bytes",
                                    " and statistics, from bytes",
                                    "",
                                    " and statistics, behind batch norm",
                                    "",
                                    "",
                                    "",
                                    "",
                                    " from bytes, behind batch norm's backward pass" };
    bool bytes_in = with & SMALL_BYTES, alone = once || with > SMALL_STATS;
    int64_t Ho = (HW - 1) / stride + 1;
    job j = { .s = { kind, N, HW, HW, C, O, 3, Ho, Ho, stride, 1, CLOOB_BF16, CLOOB_BF16 } };
    cloob_dtype w_type = CLOOB_BF16;
    dnn_plan *half = NULL;
    if (kind == DNN_DW && !alone) {
        TRY(dnn_plan_create(ctx, dev, &j.s, &half));
        j.s.w_dtype = w_type = CLOOB_F32;
    }
    if (!alone) TRY(dnn_plan_create(ctx, dev, &j.s, &j.dnn));
    float dnn_ms = j.dnn ? dnn_plan_ms(j.dnn) : 1e9f, best = 1e9f;
    if (half && dnn_plan_ms(half) < dnn_ms) {
        dnn_ms = dnn_plan_ms(half);
        dnn_plan_destroy(j.dnn);
        j.dnn = half, w_type = CLOOB_BF16;
    }
    if (j.dnn && !dnn_plan_ready(ctx, dev, j.dnn)) fail("cuDNN");
    j.x = buffer_make(N * HW * HW * (bytes_in ? 3 : C) / (bytes_in ? 2 : 1), C, CLOOB_BF16);
    j.w = buffer_make(O * 9 * C, C, kind == DNN_DW ? CLOOB_F32 : CLOOB_BF16);
    j.y = buffer_make(N * Ho * Ho * O, O, CLOOB_BF16);
    const buffer *like = kind == DNN_FORWARD ? &j.y : kind == DNN_DX ? &j.x : &j.w;
    j.out = buffer_make(like->n, like->last, kind == DNN_DW ? CLOOB_F32 : CLOOB_BF16);
    TRY(dev->alloc(ctx, dev, (size_t)300 << 20, "workspace", &j.workspace));
    TRY(dev->alloc(ctx, dev, 4096, "a pivot", &j.pivot));
    TRY(dev->zero(ctx, dev, j.pivot, 4096));
    if (with & SMALL_BWD) j.before = buffer_make(j.y.n, O, CLOOB_BF16).data;
    if (j.dnn) TRY(run_dnn(&j));
    double bytes = 2.0 * (double)(j.x.n + j.y.n);
    printf("%s%s %lld->%lld @%lld stride %lld", kinds[kind], beside[with], (long long)C, (long long)O, (long long)HW,
           (long long)stride);
    if (j.dnn) printf(": cuDNN %.4f ms (%.0f GB/s)", (double)dnn_ms, bytes / (double)dnn_ms / 1e6);
    printf("\n");
    for (int i = 0;; i++) {
        float ms = 1e9f;
        TRY(small_plan_nth(ctx, dev, &j.s, bytes_in ? 3 : C, with, i, &j.small));
        if (!j.small) break;
        TRY(dev->zero(ctx, dev, j.out.data, (size_t)j.out.n * dtype_size(j.out.type)));
        if (once) TRY(run_small(&j));
        else TRY(cuda_time(ctx, dev, run_small, &j, &ms));
        printf("    <%s> %*s%.4f ms  %5.0f GB/s  %5.1f TFLOP/s", small_plan_name(j.small),
               (int)(28 - strlen(small_plan_name(j.small))), "", (double)ms, bytes / (double)ms / 1e6,
               18.0 * (double)(N * Ho * Ho) * (double)(C * O) / (double)ms / 1e9);
        if (j.dnn) compare(&j, result(&j), kind == DNN_DW ? w_type : CLOOB_BF16);
        else printf("\n");
        fflush(stdout);
        best = fminf(best, ms);
        small_plan_destroy(j.small);
    }
    if (!with) total_dnn += (double)dnn_ms, total_small += (double)fminf(best, dnn_ms);
    dnn_plan_destroy(j.dnn);
    void *all[] = { j.x.data, j.w.data, j.y.data, j.out.data, j.workspace, j.pivot, j.before };
    for (int i = 0; i < 7; i++) dev->free(dev, all[i]);
}

static void stem(int64_t N, int64_t HW, int64_t C)
{
    total_small = total_dnn = 0;
    for (int with = 0; with <= (SMALL_STATS | SMALL_BYTES); with++) bench(DNN_FORWARD, N, HW, 8, C, 2, with);
    for (int with = 0; with <= SMALL_BYTES; with += SMALL_BYTES) bench(DNN_DW, N, HW, 8, C, 2, with);
    bench(DNN_DW, N, HW, 8, C, 2, SMALL_BYTES | SMALL_BWD);
    for (int64_t O = C; O <= 2 * C; O += C) {
        for (int kind = DNN_FORWARD; kind <= DNN_DW; kind++) bench((dnn_kind)kind, N, HW / 2, C, O, 1, 0);
        bench(DNN_FORWARD, N, HW / 2, C, O, 1, SMALL_STATS);
        bench(DNN_FORWARD, N, HW / 2, C, O, 1, SMALL_STATS | SMALL_APPLY);
    }
    printf("stem of %lld channels, batch %lld: cuDNN %.3f ms, the faster of both %.3f ms\n\n", (long long)C,
           (long long)N, total_dnn, total_small);
}

/* The 3 x 3 convolutions of the first blocks. */
static void blocks(int64_t N, int64_t HW, int64_t C)
{
    bench(DNN_FORWARD, N, HW, C, C, 1, 0);
    bench(DNN_DX, N, HW, C, C, 1, 0);
    bench(DNN_FORWARD, N, HW, C, C, 1, SMALL_STATS);
    bench(DNN_FORWARD, N, HW, C, C, 1, SMALL_STATS | SMALL_APPLY);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "all";
    once = argc > 2 && strcmp(argv[2], "once") == 0;
    ctx = cloob_ctx_create(NULL);
    if (device_open(ctx, "cuda", &dev) != CLOOB_OK) fail("device");
    bool blocks_alone = strcmp(which, "blocks") == 0;
    if (!blocks_alone && strcmp(which, "RN50x4") != 0) stem(512, 224, 32);
    if (!blocks_alone && strcmp(which, "RN50") != 0) stem(128, 288, 40);
    if (strcmp(which, "RN50x4") != 0) blocks(512, 56, 64);
    if (strcmp(which, "RN50") != 0) blocks(128, 72, 80);
    device_close(dev);
    cloob_ctx_destroy(ctx);
    return 0;
}
