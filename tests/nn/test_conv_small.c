/* Every kernel for small convolutions, each forced, against the definition: sizes that are no multiple of a
 * tile, few blocks so that each walks over many tiles, guard bytes around every tensor, poisoned outputs,
 * twice. With statistics the sums are those of what the kernel itself wrote. */
#include "check.h"
#include "nn/cuda/stem/conv_small.h"
#include "group_harness.h"

enum { GUARD = 256 };

static cloob_ctx *ctx;
static device *dev;
static const char *only = ""; /* cases whose names have this in them: test_conv_small 80 */

#define CASE(n, h, w, C, o, c, s)                                                                                      \
    {                                                                                                                  \
#        n "x" #        h "x" #        w " " #        C "->" #        o, OP_CONV2D, { .stride = s, .pad = 1 },         \
        {                                                                                                              \
            VALUES(n, h, w, C), VALUES(o, 3, 3, c)                                                                     \
        }                                                                                                              \
    }

static const op_case cases[] = {
    CASE(1, 1, 1, 32, 32, 32, 1),   CASE(1, 5, 7, 32, 32, 32, 1),   CASE(3, 17, 19, 32, 32, 32, 1),
    CASE(2, 30, 33, 32, 32, 32, 1), CASE(1, 59, 16, 32, 32, 32, 1), CASE(1, 5, 7, 32, 64, 32, 1),
    CASE(3, 17, 19, 32, 64, 32, 1), CASE(2, 30, 33, 32, 64, 32, 1), CASE(1, 9, 8, 8, 32, 3, 2),
    CASE(1, 1, 2, 8, 32, 3, 2),     CASE(3, 35, 37, 8, 32, 3, 2),   CASE(1, 64, 61, 8, 32, 8, 2),
    CASE(1, 17, 19, 80, 80, 80, 1), CASE(1, 9, 33, 80, 80, 80, 1),  CASE(3, 17, 19, 40, 40, 40, 1),
    CASE(2, 30, 33, 40, 80, 40, 1), CASE(3, 35, 37, 8, 40, 3, 2),
};

/* From bytes: an odd last row, one tile and several, images smaller than a tile. */
#define BYTES_CASE(n, h, w, o)                                                                                         \
    {                                                                                                                  \
        "bytes " #n "x" #h "x" #w "->" #o, IMAGE_STATS, n, h, w, 8, o, K3 | STRIDE                                     \
    }

static const group_case byte_cases[] = {
    BYTES_CASE(1, 2, 16, 32),  BYTES_CASE(1, 9, 16, 32),   BYTES_CASE(2, 35, 48, 32),
    BYTES_CASE(1, 64, 80, 32), BYTES_CASE(1, 120, 32, 32), BYTES_CASE(2, 35, 48, 40),
};

/* Through batch norm first: what is outside the image is 0 behind it, too. */
#define APPLY_CASE(n, h, w, C, o)                                                                                      \
    {                                                                                                                  \
        "apply " #n "x" #h "x" #w " " #C "->" #o, APPLY_STATS, n, h, w, C, o, K3                                       \
    }

static const group_case apply_cases[] = {
    APPLY_CASE(1, 1, 1, 32, 32),   APPLY_CASE(3, 17, 19, 32, 32), APPLY_CASE(2, 30, 33, 32, 32),
    APPLY_CASE(3, 17, 19, 64, 64), APPLY_CASE(1, 59, 33, 64, 64), APPLY_CASE(3, 17, 19, 32, 64),
    APPLY_CASE(1, 17, 19, 80, 80), APPLY_CASE(1, 9, 33, 80, 80),  APPLY_CASE(2, 30, 33, 40, 40),
    APPLY_CASE(3, 17, 19, 40, 80),
};

/* ---- a tensor on the GPU between guards ----------------------------------------------------------- */

typedef struct guarded {
    tensor t; /* on the host, what is expected or read */
    char *host, *on_device;
    size_t bytes;
} guarded;

static void up(guarded *g, const tensor *t, bool output)
{
    *g = (guarded){ .t = *t, .bytes = tensor_bytes(t) };
    g->host = malloc(g->bytes + 2 * GUARD);
    memset(g->host, 0xAB, g->bytes + 2 * GUARD);
    if (!output) memcpy(g->host + GUARD, t->data, g->bytes);
    CHECK_OK(ctx, dev->alloc(ctx, dev, g->bytes + 2 * GUARD, "a test tensor", (void **)&g->on_device));
    CHECK_OK(ctx, dev->to_device(ctx, dev, g->on_device, g->host, g->bytes + 2 * GUARD));
}

static void down(guarded *g)
{
    bool clean = true;
    CHECK_OK(ctx, dev->to_host(ctx, dev, g->host, g->on_device, g->bytes + 2 * GUARD));
    for (size_t i = 0; i < GUARD; i++)
        clean &= (unsigned char)g->host[i] == 0xAB && (unsigned char)g->host[GUARD + g->bytes + i] == 0xAB;
    CHECK(clean);
}

static void done(guarded *g)
{
    dev->free(dev, g->on_device);
    free(g->host);
}

static double value(const tensor *t, const void *data, int64_t i)
{
    double v = 0;
    dtype_convert(CLOOB_F64, &v, t->dtype, (const char *)data + (size_t)i * dtype_size(t->dtype), 1);
    return v;
}

/* bf16 results may be rounded to the next number, of 2^-8; F32 sums run in another order, within `slack` of their rms.
 * Says where the first difference is. */
static void compare(const char *what, const guarded *g, double slack)
{
    int64_t n = tensor_count(&g->t), bad = 0, first = -1;
    double rms = 0, worst = 0, step = g->t.dtype == CLOOB_BF16 ? 1.0 / 128 : 1e-5;
    for (int64_t i = 0; i < n; i++) rms += value(&g->t, g->t.data, i) * value(&g->t, g->t.data, i);
    rms = sqrt(rms / (double)n);
    for (int64_t i = 0; i < n; i++) {
        double want = value(&g->t, g->t.data, i), got = value(&g->t, g->host + GUARD, i);
        worst = fmax(worst, fabs(got - want));
        if (fabs(got - want) <= step * fabs(want) + slack * rms) continue;
        if (bad++ == 0) first = i;
    }
    if (!bad) return;
    const int64_t *d = g->t.dim;
    printf("  %s: %lld of %lld wrong, at most by %.4g (rms %.4g), first [%lld,%lld,%lld,%lld]: %.6g, "
           "expected %.6g\n",
           what, (long long)bad, (long long)n, worst, rms, (long long)(first / d[3] / d[2] / d[1]),
           (long long)(first / d[3] / d[2] % d[1]), (long long)(first / d[3] % d[2]), (long long)(first % d[3]),
           value(&g->t, g->host + GUARD, first), value(&g->t, g->t.data, first));
    check_bad_here_++;
}

/* ---- one kernel ------------------------------------------------------------------------------------ */

typedef struct problem {
    dnn_shape shape;
    int64_t c;
    int with;
    const tensor *x, *w, *y; /* as the shape names them; one is the result */
    const op_attr *attr;     /* mean and std of bytes */
    const tensor *norm;      /* batch norm's four vectors */
} problem;

/* Sums of y less the pivot and of its square, of what the kernel wrote, compared with those in its workspace. */
static void compare_sums(const char *what, const guarded *y, const float *pivot, const void *workspace, int parts)
{
    int64_t O = y->t.dim[3], rows = tensor_count(&y->t) / O;
    float *partial = malloc((size_t)(parts * 2 * O) * sizeof *partial);
    CHECK_OK(ctx, dev->to_host(ctx, dev, partial, workspace, (size_t)(parts * 2 * O) * sizeof *partial));
    for (int64_t o = 0; o < O; o++) {
        double want[2] = { 0 }, size[2] = { 0 }, got[2] = { 0 };
        for (int64_t r = 0; r < rows; r++) {
            double d = value(&y->t, y->host + GUARD, r * O + o) - (double)pivot[o];
            want[0] += d, want[1] += d * d;
            size[0] += fabs(d), size[1] += d * d;
        }
        for (int64_t i = 0; i < parts * 2; i++) got[i % 2] += (double)partial[i * O + o];
        for (int i = 0; i < 2; i++)
            if (!(fabs(got[i] - want[i]) <= 1e-5 * size[i] + 1e-6)) {
                printf("  %s: sum %d of channel %lld is %.8g, expected %.8g\n", what, i, (long long)o, got[i], want[i]);
                check_bad_here_++;
                i = 2, o = O;
            }
    }
    free(partial);
}

static void *on_gpu(const tensor *t)
{
    void *p = NULL;
    CHECK_OK(ctx, dev->alloc(ctx, dev, tensor_bytes(t), "an operand", &p));
    CHECK_OK(ctx, dev->to_device(ctx, dev, p, t->data, tensor_bytes(t)));
    return p;
}

static void run_kernel(const problem *q, small_plan *p, const char *name)
{
    guarded x, w, y, *out = q->shape.kind == DNN_FORWARD ? &y : q->shape.kind == DNN_DX ? &x : &w;
    char what[160];
    float pivot[320];
    void *on_device = NULL;
    small_data data = { 0 };
    for (int i = 0; i < 320; i++) pivot[i] = (float)(i % 7) - 3.0f;
    CHECK_OK(ctx, dev->alloc(ctx, dev, sizeof pivot, "a pivot", &on_device));
    CHECK_OK(ctx, dev->to_device(ctx, dev, on_device, pivot, sizeof pivot));
    up(&x, q->x, out == &x), up(&w, q->w, out == &w), up(&y, q->y, out == &y);
    size_t bytes = small_plan_workspace(p), size = out->bytes;
    if (bytes) CHECK_OK(ctx, dev->alloc(ctx, dev, bytes, "workspace", &data.workspace));
    void *copy[4] = { 0 };
    for (int i = 0; q->norm && i < 4; i++) data.norm[i] = copy[i] = on_gpu(&q->norm[i]);
    data.x = x.on_device + GUARD, data.w = w.on_device + GUARD, data.y = y.on_device + GUARD, data.pivot = on_device;
    for (int i = 0; q->attr && i < 3; i++) data.mean[i] = q->attr->mean[i], data.std[i] = q->attr->std[i];
    char *before = malloc(size);
    for (int again = 0; again < 2; again++) {
        CHECK_OK(ctx, small_run(ctx, dev, p, dev->stream, &data));
        CHECK_OK(ctx, dev->sync(ctx, dev));
        down(out);
        if (again) CHECK(memcmp(before, out->host + GUARD, size) == 0);
        memcpy(before, out->host + GUARD, size);
    }
    snprintf(what, sizeof what, "%s, kind %d with %d, <%s>", name, (int)q->shape.kind, q->with, small_plan_name(p));
    compare(what, out, 1e-4);
    if (q->with & SMALL_STATS) compare_sums(what, &y, pivot, data.workspace, small_plan_parts(p));
    free(before);
    dev->free(dev, data.workspace);
    dev->free(dev, on_device);
    for (int i = 0; i < 4; i++) dev->free(dev, copy[i]);
    done(&x), done(&w), done(&y);
}

static int run_problem(const problem *q, const char *name)
{
    static const int widths[] = { 1 << 20, 3, 1 };
    int i = 0;
    for (small_plan *p;; i++) {
        CHECK_OK(ctx, small_plan_nth(ctx, dev, &q->shape, q->c, q->with, i, &p));
        if (!p) break;
        for (int k = 0; k < 3; k++) {
            small_plan_narrow(p, widths[k]);
            run_kernel(q, p, name);
        }
        small_plan_destroy(p);
    }
    return i;
}

static int run_case(const op_case *c)
{
    op_pass p;
    int ran = 0;
    if (!strstr(c->name, only)) return 0;
    CHECK(op_pass_run(ctx, c, CLOOB_BF16, 5, &p));
    const tensor *x = &p.forward.in[0], *w = &p.forward.in[1], *y = &p.forward.out[0];
    dnn_shape s = { DNN_FORWARD, x->dim[0], x->dim[1],      x->dim[2],   x->dim[3],  w->dim[0], 3,
                    y->dim[1],   y->dim[2], c->attr.stride, c->attr.pad, CLOOB_BF16, CLOOB_BF16 };
    for (int with = 0; with <= SMALL_STATS; with++)
        ran += run_problem(&(problem){ .shape = s, .c = w->dim[3], .with = with, .x = x, .w = w, .y = y }, c->name);
    for (int k = 0; k < p.steps; k++) {
        const op_args *a = &p.step[k];
        bool dx = p.rule[k].op == OP_CONV2D_DX;
        s.kind = dx ? DNN_DX : DNN_DW;
        ran += run_problem(
            &(problem){
                .shape = s, .c = w->dim[3], .x = dx ? &a->out[0] : x, .w = dx ? w : &a->out[0], .y = &a->in[0] },
            c->name);
    }
    op_pass_release(&p);
    return ran;
}

/* The weight gradient from bytes. */
static int run_bytes_dw(const group_case *c)
{
    group_case of = *c;
    group_pass p;
    of.kind = IMAGE_DW, of.flags = 0;
    CHECK(group_pass_run(ctx, &of, CLOOB_BF16, false, &p));
    const op_args *dw = &p.member[p.members - 1], *image = &p.member[p.members - 2];
    problem q = { .shape = conv_shape(DNN_DW, &dw->in[1], &dw->in[2], &dw->in[0], &dw->attr),
                  .c = 3,
                  .with = SMALL_BYTES,
                  .x = &image->in[0],
                  .w = &dw->out[0],
                  .y = &dw->in[0],
                  .attr = &image->attr };
    int ran = run_problem(&q, c->name);
    group_pass_release(&p);
    return ran;
}

/* The groups that begin with bytes. */
static int run_bytes(const group_case *c)
{
    group_pass p;
    if (!strstr(c->name, only)) return 0;
    CHECK(group_pass_run(ctx, c, CLOOB_BF16, false, &p));
    const op_args *image = &p.member[0], *conv = &p.member[1];
    problem q = { .shape = conv_shape(DNN_FORWARD, &conv->in[0], &conv->in[1], &conv->out[0], &conv->attr),
                  .c = 3,
                  .with = SMALL_BYTES | SMALL_STATS,
                  .x = &image->in[0],
                  .w = &conv->in[1],
                  .y = &conv->out[0],
                  .attr = &image->attr };
    int ran = run_problem(&q, c->name);
    group_pass_release(&p);
    return ran + run_bytes_dw(c);
}

static int run_apply(const group_case *c)
{
    group_pass p;
    if (!strstr(c->name, only)) return 0;
    CHECK(group_pass_run(ctx, c, CLOOB_BF16, false, &p));
    const op_args *apply = &p.member[0], *conv = &p.member[1];
    problem q = { .shape = conv_shape(DNN_FORWARD, &conv->in[0], &conv->in[1], &conv->out[0], &conv->attr),
                  .c = c->C,
                  .with = SMALL_APPLY | SMALL_STATS,
                  .x = &apply->in[0],
                  .w = &conv->in[1],
                  .y = &conv->out[0],
                  .norm = &apply->in[1] };
    int ran = run_problem(&q, c->name);
    group_pass_release(&p);
    return ran;
}

static void kernels_agree_with_the_definition(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    CHECK_OK(ctx, device_open(ctx, "cuda", &dev));
    if (!cuda_has_hopper(dev)) {
        device_close(dev);
        SKIP("these kernels are for Hopper");
    }
    int ran = 0;
    for (size_t i = 0; dev && i < sizeof cases / sizeof *cases; i++) ran += run_case(&cases[i]);
    for (size_t i = 0; dev && i < sizeof byte_cases / sizeof *byte_cases; i++) ran += run_bytes(&byte_cases[i]);
    for (size_t i = 0; dev && i < sizeof apply_cases / sizeof *apply_cases; i++) ran += run_apply(&apply_cases[i]);
    printf("  %d kernels compared\n", ran);
    CHECK(ran > 0);
    device_close(dev);
}

int main(int argc, char **argv)
{
    if (argc > 1) only = argv[1];
    ctx = cloob_ctx_create(NULL);
    RUN(kernels_agree_with_the_definition);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
