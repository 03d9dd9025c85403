/* Every kernel for small convolutions, each forced, against the definition: sizes that are no multiple of a
 * tile, few blocks so that each walks over many tiles, guard bytes around every tensor, poisoned outputs,
 * twice. */
#include "check.h"
#include "nn/cuda/conv_small.h"
#include "op_harness.h"

enum { GUARD = 256 };

static cloob_ctx *ctx;
static device *dev;

#define CASE(n, h, w, C, o, c, s)                                                                                      \
    {                                                                                                                  \
#        n "x" #        h "x" #        w " " #        C "->" #        o, OP_CONV2D, { .stride = s, .pad = 1 },         \
        {                                                                                                              \
            { 'f', { n, h, w, C } },                                                                                   \
            {                                                                                                          \
                'f', { o, 3, 3, c }                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }

static const op_case cases[] = {
    CASE(1, 1, 1, 32, 32, 32, 1),   CASE(1, 5, 7, 32, 32, 32, 1),   CASE(3, 17, 19, 32, 32, 32, 1),
    CASE(2, 30, 33, 32, 32, 32, 1), CASE(1, 59, 16, 32, 32, 32, 1), CASE(1, 5, 7, 32, 64, 32, 1),
    CASE(3, 17, 19, 32, 64, 32, 1), CASE(2, 30, 33, 32, 64, 32, 1), CASE(1, 9, 8, 8, 32, 3, 2),
    CASE(1, 1, 2, 8, 32, 3, 2),     CASE(3, 35, 37, 8, 32, 3, 2),   CASE(1, 64, 61, 8, 32, 8, 2),
    CASE(3, 17, 19, 40, 40, 40, 1), CASE(2, 30, 33, 40, 80, 40, 1), CASE(3, 35, 37, 8, 40, 3, 2),
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

/* bf16 results may be rounded to the next number, of 2^-8; F32 sums run in another order. Says where the
 * first difference is. */
static void compare(const char *what, const guarded *g)
{
    int64_t n = tensor_count(&g->t), bad = 0, first = -1;
    double rms = 0, worst = 0, step = g->t.dtype == CLOOB_BF16 ? 1.0 / 128 : 1e-5;
    for (int64_t i = 0; i < n; i++) rms += value(&g->t, g->t.data, i) * value(&g->t, g->t.data, i);
    rms = sqrt(rms / (double)n);
    for (int64_t i = 0; i < n; i++) {
        double want = value(&g->t, g->t.data, i), got = value(&g->t, g->host + GUARD, i);
        worst = fmax(worst, fabs(got - want));
        if (fabs(got - want) <= step * fabs(want) + 1e-4 * rms) continue;
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
    const tensor *x, *w, *y; /* as the shape names them; one is the result */
} problem;

static void run_kernel(const problem *q, small_plan *p, const char *name)
{
    guarded x, w, y, *out = q->shape.kind == DNN_FORWARD ? &y : q->shape.kind == DNN_DX ? &x : &w;
    char what[160];
    void *workspace = NULL;
    up(&x, q->x, out == &x), up(&w, q->w, out == &w), up(&y, q->y, out == &y);
    size_t bytes = small_plan_workspace(p), size = out->bytes;
    if (bytes) CHECK_OK(ctx, dev->alloc(ctx, dev, bytes, "workspace", &workspace));
    char *before = malloc(size);
    for (int again = 0; again < 2; again++) {
        CHECK_OK(ctx, small_run(ctx, dev, p, dev->stream, x.on_device + GUARD, w.on_device + GUARD, y.on_device + GUARD,
                                workspace));
        CHECK_OK(ctx, dev->sync(ctx, dev));
        down(out);
        if (again) CHECK(memcmp(before, out->host + GUARD, size) == 0);
        memcpy(before, out->host + GUARD, size);
    }
    snprintf(what, sizeof what, "%s, kind %d, <%s>", name, (int)q->shape.kind, small_plan_name(p));
    compare(what, out);
    free(before);
    dev->free(dev, workspace);
    done(&x), done(&w), done(&y);
}

static int run_problem(const problem *q, const char *name)
{
    static const int widths[] = { 1 << 20, 3, 1 };
    int i = 0;
    for (small_plan *p;; i++) {
        CHECK_OK(ctx, small_plan_nth(ctx, dev, &q->shape, q->c, i, &p));
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
    CHECK(op_pass_run(ctx, c, CLOOB_BF16, 5, &p));
    const tensor *x = &p.forward.in[0], *w = &p.forward.in[1], *y = &p.forward.out[0];
    dnn_shape s = { DNN_FORWARD, x->dim[0], x->dim[1],      x->dim[2],   x->dim[3],  w->dim[0], 3,
                    y->dim[1],   y->dim[2], c->attr.stride, c->attr.pad, CLOOB_BF16, CLOOB_BF16 };
    ran += run_problem(&(problem){ s, w->dim[3], x, w, y }, c->name);
    for (int k = 0; k < p.steps; k++) {
        const op_args *a = &p.step[k];
        bool dx = p.rule[k].op == OP_CONV2D_DX;
        s.kind = dx ? DNN_DX : DNN_DW;
        ran += run_problem(&(problem){ s, w->dim[3], dx ? &a->out[0] : x, dx ? w : &a->out[0], &a->in[0] }, c->name);
    }
    op_pass_release(&p);
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
    printf("  %d kernels compared\n", ran);
    CHECK(ran > 0);
    device_close(dev);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(kernels_agree_with_the_definition);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
