/* SigLIP's sigmoid loss: against frozen values of PyTorch in double, its own slope, the definition at odd sizes, and
 * its memory. */
#include "io/safetensors.h"
#include "objective.h"

static cloob_ctx *ctx;

static loss_options options(loss_backend backend, double inv_tau, double bias)
{
    loss_options o;
    loss_options_init(&o);
    o.method = CLOOB_METHOD_SIGLIP;
    o.backend = backend;
    o.inv_tau = inv_tau;
    o.bias = bias;
    return o;
}

static void check_close(const char *what, const problem *p, const answer *a, const answer *want, double loss,
                        double gradient)
{
    check_answer(what, p, a, want, loss, gradient);
    CHECK_BELOW(fabs(a->r.dsum_dbias - want->r.dsum_dbias) / fmax(fabs(want->r.dsum_dbias), 1e-3), gradient, what);
}

static float *floats_of(const st_file *f, const char *name, int64_t *rows, int64_t *cols)
{
    const st_entry *e = st_find(f, name);
    CHECK(e && e->t.ndim == 2);
    *rows = e->t.dim[0], *cols = e->t.dim[1];
    float *to = floats(*rows * *cols);
    dtype_convert(CLOOB_F32, to, e->t.dtype, e->t.data, *rows * *cols);
    return to;
}

static double number_of(const st_file *f, const char *name) { return *(const double *)st_find(f, name)->t.data; }

/* tests/ref/siglip.safetensors: tests/ref/make/make_siglip_ref.py. */
static void the_loss_is_pytorchs(void)
{
    st_file f;
    problem p = { 0 };
    answer want = { 0 };
    CHECK_OK(ctx, st_open(ctx, TESTS_DIR "/ref/siglip.safetensors", &f));
    p.x = floats_of(&f, "x", &p.n, &p.d), p.y = floats_of(&f, "y", &p.n, &p.d);
    want.dx = floats_of(&f, "dx", &p.n, &p.d), want.dy = floats_of(&f, "dy", &p.n, &p.d);
    want.r = (loss_result){ .loss = number_of(&f, "loss"),
                            .image_term = number_of(&f, "loss") / 2,
                            .text_term = number_of(&f, "loss") / 2,
                            .dsum_dinv_tau = number_of(&f, "dinv_tau"),
                            .dsum_dbias = number_of(&f, "dbias") };
    for (int backend = LOSS_REF; backend <= LOSS_CPU; backend++) {
        loss_options o = options((loss_backend)backend, number_of(&f, "inv_tau"), number_of(&f, "bias"));
        answer got = evaluate(ctx, &p, o, CLOOB_F32);
        check_close(backend == LOSS_REF ? "ref" : "cpu", &p, &got, &want, 1e-6, 1e-5);
        answer_free(&got);
    }
    st_close(&f);
    answer_free(&want), problem_free(&p);
}

static void cpu_is_the_definition_at_odd_sizes(void)
{
    static const int64_t sizes[][2] = { { 2, 3 }, { 33, 65 }, { 131, 17 }, { 193, 20 }, { 530, 8 }, { 401, 33 } };
    static const double scales[][2] = { { 10, -10 }, { 30, 0 }, { 100, -40 }, { 1, 5 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
            problem p = random_problem(i, sizes[i][0], sizes[i][1], 0, 0);
            answer want = evaluate(ctx, &p, options(LOSS_REF, scales[k][0], scales[k][1]), CLOOB_F32);
            answer got = evaluate(ctx, &p, options(LOSS_CPU, scales[k][0], scales[k][1]), CLOOB_F32);
            /* a score of 100 carries f32 errors of 1e-5 */
            check_close("random", &p, &got, &want, scales[k][0] > 50 ? 1e-5 : 2e-6, scales[k][0] > 50 ? 1e-4 : 1e-5);
            answer_free(&got), answer_free(&want), problem_free(&p);
        }
}

static void bf16_rows_are_taken_as_they_are(void)
{
    problem p = random_problem(5, 190, 40, 0, 0);
    round_to_bf16(&p);
    answer want = evaluate(ctx, &p, options(LOSS_REF, 10, -10), CLOOB_BF16);
    answer got = evaluate(ctx, &p, options(LOSS_CPU, 10, -10), CLOOB_BF16);
    check_close("bf16", &p, &got, &want, 1e-5, 1e-4);
    answer_free(&got), answer_free(&want), problem_free(&p);
}

static double loss_at(const problem *p, double inv_tau, double bias)
{
    loss_options o = options(LOSS_REF, inv_tau, bias);
    o.unchecked = true; /* a step leaves the sphere */
    answer a = evaluate(ctx, p, o, CLOOB_F32);
    double loss = a.r.loss;
    answer_free(&a);
    return loss;
}

static void the_definition_has_the_documented_slope(void)
{
    problem p = random_problem(8, 7, 6, 0, 0);
    answer a = evaluate(ctx, &p, options(LOSS_REF, 12, -3), CLOOB_F32);
    double h = 1e-5, step = 2e-3;
    CHECK_NEAR(a.r.dsum_dinv_tau, (loss_at(&p, 12 + h, -3) - loss_at(&p, 12 - h, -3)) / (2 * h), 1e-6);
    CHECK_NEAR(a.r.dsum_dbias, (loss_at(&p, 12, -3 + h) - loss_at(&p, 12, -3 - h)) / (2 * h), 1e-6);
    CHECK_NEAR(loss_dlogit_inv_tau(CLOOB_METHOD_SIGLIP, &a.r, 12), 12 * a.r.dsum_dinv_tau, 1e-12);
    float *at[2] = { p.x + 13, p.y + 22 }, slope[2] = { a.dx[13], a.dy[22] };
    for (int k = 0; k < 2; k++) {
        float old = *at[k];
        *at[k] = old + (float)step;
        double up = loss_at(&p, 12, -3);
        *at[k] = old - (float)step;
        double down = loss_at(&p, 12, -3);
        *at[k] = old;
        CHECK_NEAR(slope[k], (up - down) / (2 * step), 1e-3);
    }
    answer_free(&a), problem_free(&p);
}

/* Tiles alone: the workspace does not grow with N on one rank, and over ranks with N d. */
static void memory_is_streamed(void)
{
    size_t small, large, over;
    loss_options o = options(LOSS_CPU, 10, -10);
    CHECK_OK(ctx, loss_measure(ctx, &o, &(loss_shape){ 1000, 64, 0, 0, CLOOB_F32 }, 1, &small));
    CHECK_OK(ctx, loss_measure(ctx, &o, &(loss_shape){ 100000, 64, 0, 0, CLOOB_F32 }, 1, &large));
    CHECK_OK(ctx, loss_measure(ctx, &o, &(loss_shape){ 25000, 64, 0, 0, CLOOB_F32 }, 4, &over));
    CHECK(small == large && large < 4 << 20);
    CHECK(over - large <= 2 * 100000 * 64 * sizeof(float) + 4096);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(the_loss_is_pytorchs);
    RUN(cpu_is_the_definition_at_odd_sizes);
    RUN(bf16_rows_are_taken_as_they_are);
    RUN(the_definition_has_the_documented_slope);
    RUN(memory_is_streamed);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
