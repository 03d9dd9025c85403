/* The kernels that multiply and apply an MLP's activation in one, whatever timing would say, against the definition:
 * rows that are no multiple of a tile, one tile and several for each block, every activation, with and without bias,
 * what nobody wants left out; guard bytes around every tensor, poisoned outputs. */
#include "check.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/linear/act_gemm.h"
#include "group_harness.h"

enum { GUARD = 256, POISON = 0xff };

static cloob_ctx *ctx;
static device *dev;
enum { sms = 8 }; /* blocks at most, so that each walks over many tiles */

#define FORWARD(rows, K, O, kind, bias)                                                                                \
    {                                                                                                                  \
        "forward " #rows " x " #O " x " #K, LINEAR_ACT, rows, 1, 1, K, O, (bias) | READ | (kind)                       \
    }
#define BACKWARD(rows, O, K, kind, bias)                                                                               \
    {                                                                                                                  \
        "backward " #rows " x " #K " x " #O, LINEAR_DX_ACT, rows, 1, 1, K, O, (bias) | SUMS | RECOMPUTE | (kind)       \
    }

static const group_case cases[] = {
    FORWARD(1, 64, 256, QUICK, BIAS),    FORWARD(77, 128, 256, GELU, 0),        FORWARD(2003, 256, 256, QUICK, BIAS),
    FORWARD(150, 512, 256, TANH, BIAS),  FORWARD(130, 640, 256, GELU, BIAS),    FORWARD(130, 768, 512, QUICK, BIAS),
    FORWARD(65, 1024, 256, QUICK, BIAS), FORWARD(3000, 64, 768, QUICK, BIAS),   BACKWARD(1, 64, 256, QUICK, BIAS),
    BACKWARD(77, 128, 256, GELU, 0),     BACKWARD(2003, 256, 256, QUICK, BIAS), BACKWARD(150, 512, 256, TANH, BIAS),
    BACKWARD(130, 640, 256, GELU, BIAS), BACKWARD(130, 768, 512, QUICK, BIAS),  BACKWARD(65, 1024, 256, QUICK, BIAS),
    BACKWARD(3000, 64, 768, TANH, BIAS),
};

/* ---- tensors on the GPU between guards ------------------------------------------------------------ */

static void *up(const tensor *t, bool content)
{
    size_t bytes = tensor_bytes(t);
    char *host = malloc(bytes + 2 * GUARD);
    void *p = NULL;
    memset(host, POISON, bytes + 2 * GUARD);
    if (content) memcpy(host + GUARD, t->data, bytes);
    CHECK_OK(ctx, dev->alloc(ctx, dev, bytes + 2 * GUARD, "a tensor", &p));
    CHECK_OK(ctx, dev->to_device(ctx, dev, p, host, bytes + 2 * GUARD));
    free(host);
    return (char *)p + GUARD;
}

static bool is_poison(const char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)p[i] != POISON) return false;
    return true;
}

/* Norm of the difference over the norm; 1e30 where it wrote outside. */
static double error_of(const tensor *want, void *got)
{
    size_t bytes = tensor_bytes(want), n = (size_t)tensor_count(want);
    char *host = malloc(bytes + 2 * GUARD);
    double *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y), diff = 0, norm = 0;
    CHECK_OK(ctx, dev->to_host(ctx, dev, host, (char *)got - GUARD, bytes + 2 * GUARD));
    bool kept = is_poison(host, GUARD) && is_poison(host + GUARD + bytes, GUARD);
    dtype_convert(CLOOB_F64, x, want->dtype, host + GUARD, (int64_t)n);
    dtype_convert(CLOOB_F64, y, want->dtype, want->data, (int64_t)n);
    for (size_t i = 0; i < n; i++) diff += (x[i] - y[i]) * (x[i] - y[i]), norm += y[i] * y[i];
    free(host), free(x), free(y);
    double e = sqrt(diff / norm);
    return kept && e < 1e30 ? e : 1e30;
}

static void down(void *p)
{
    if (p) dev->free(dev, (char *)p - GUARD);
}

/* ---- one call ------------------------------------------------------------------------------------ */

typedef struct call {
    act_gemm g;
    bool all; /* what may be left out is wanted */
} call;

/* The largest error of all outputs. */
static double error_of_call(const op_args *gemm, const op_args *act, call *c)
{
    bool back = c->g.backward;
    int64_t n = c->g.n, parts = act_gemm_parts(&c->g, sms);
    const tensor *bias = &act->in[back ? 2 : 1], *y = &act->out[0];
    tensor partial = TENSOR(CLOOB_F32, NULL, parts, n), sums = TENSOR(CLOOB_F32, NULL, n);
    op_env env = { .ctx = ctx, .dev = dev, .stream = dev->stream, .ranks = 1 };
    void *left = up(&gemm->in[0], true), *w = up(&gemm->in[1], true), *b = op_has(bias) ? up(bias, true) : NULL;
    void *x = back ? up(&act->in[1], true) : c->all ? up(&gemm->out[0], false) : NULL, *out = up(y, false);
    void *again = back && c->all ? up(&act->out[1], false) : NULL, *p = back && c->all ? up(&partial, false) : NULL,
         *s = back && c->all ? up(&sums, false) : NULL;
    c->g.a = left, c->g.b = w, c->g.bias = b, c->g.x = x, c->g.y = out, c->g.recomputed = again, c->g.partial = p;
    CHECK_OK(ctx, cuda_check(ctx, act_gemm_run(dev->stream, &c->g, sms), "a GEMM with an activation"));
    if (p) CHECK_OK(ctx, colsum_finish(&env, "sums", s, p, (int)parts, n));
    CHECK_OK(ctx, dev->sync(ctx, dev));
    double e = error_of(y, out);
    if (!back && x) e = fmax(e, error_of(&gemm->out[0], x));
    if (again) e = fmax(e, error_of(&act->out[1], again));
    if (s) e = fmax(e, error_of(&act->out[2], s));
    void *made[] = { left, w, b, x, out, again, p, s };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) down(made[i]);
    return e;
}

static void run_case(const group_case *c)
{
    group_pass pass;
    CHECK(group_pass_run(ctx, c, CLOOB_BF16, false, &pass));
    bool back = c->kind == LINEAR_DX_ACT;
    for (int all = 0; all < 2; all++) {
        call one = { .g = { .m = c->N,
                            .n = back ? c->C : c->O,
                            .k = back ? c->O : c->C,
                            .backward = back,
                            .act = (op_act)(c->flags >> 20) },
                     .all = all };
        double e = error_of_call(&pass.member[0], &pass.member[1], &one);
        if (e <= 5e-3) continue;
        printf("  %s%s: error %.3g\n", c->name, all ? "" : ", y alone", e);
        CHECK(!"agrees");
    }
    group_pass_release(&pass);
}

static void kernels_agree_with_the_definition(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    CHECK_OK(ctx, device_open(ctx, "cuda", &dev));
    if (!cuda_has_hopper(dev)) {
        device_close(dev);
        SKIP("these kernels are for Hopper");
    }
    for (size_t i = 0; dev && i < sizeof cases / sizeof *cases; i++) run_case(&cases[i]);
    device_close(dev);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(kernels_agree_with_the_definition);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
