/* The objective on the CPU: against its definition at random sizes, against its own slope, the paper's
 * identity, extreme scales, the memory it takes, and what it refuses. */
#include "core/limits.h"
#include "loss/cpu.h"
#include "objective.h"

static cloob_ctx *ctx;

static loss_options options(cloob_method m, loss_backend backend, double inv_tau, double beta)
{
    loss_options o;
    loss_options_init(&o);
    o.method = m;
    o.backend = backend;
    o.inv_tau = inv_tau;
    o.beta = beta;
    return o;
}

/* All four methods on one problem, f32 and bf16. f32 limits: sums of d products leave about 1e-6. */
static void compare(const char *what, problem *p, double inv_tau, double beta)
{
    char text[160];
    for (int m = 0; m < 4; m++) {
        snprintf(text, sizeof text, "%s, %s, N %lld d %lld M %lld K %lld", what, loss_method_name((cloob_method)m),
                 (long long)p->n, (long long)p->d, (long long)p->mu, (long long)p->mv);
        answer want = evaluate(ctx, p, options((cloob_method)m, LOSS_REF, inv_tau, beta), CLOOB_F32);
        answer got = evaluate(ctx, p, options((cloob_method)m, LOSS_CPU, inv_tau, beta), CLOOB_F32);
        check_answer(text, p, &got, &want, 1e-6, 1e-5);
        answer_free(&got), answer_free(&want);
    }
}

static void cpu_is_the_definition_at_random_sizes(void)
{
    static const int64_t sizes[][4] = { { 33, 65, 0, 0 },   { 131, 17, 0, 0 },  { 257, 20, 0, 0 },   { 530, 8, 0, 0 },
                                        { 64, 48, 100, 0 }, { 65, 15, 0, 520 }, { 60, 13, 37, 601 }, { 30, 600, 0, 0 },
                                        { 300, 24, 0, 0 }, /* not small any more: products in f32 */
                                        { 64, 40, 900, 0 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem p = random_problem(i, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
        compare("random", &p, 30, i % 2 ? 14.3 : 8);
        problem_free(&p);
    }
}

static void bf16_rows_are_taken_as_they_are(void)
{
    problem p = random_problem(5, 90, 40, 0, 0);
    round_to_bf16(&p);
    for (int m = 0; m < 4; m++) {
        loss_options o = options((cloob_method)m, LOSS_REF, 30, 8);
        answer want = evaluate(ctx, &p, o, CLOOB_BF16);
        o.backend = LOSS_CPU;
        answer got = evaluate(ctx, &p, o, CLOOB_BF16);
        check_answer("bf16", &p, &got, &want, 1e-5, 1e-4);
        answer_free(&got), answer_free(&want);
    }
    problem_free(&p);
}

/* Beyond the bound: beta at which exp(beta (s - 1)) is 0 in f32, sharp temperatures, duplicates, patterns
 * that are all far away. Scores of size 1000 carry f32 errors of 6e-5, hence the wider limits. */
static void extreme_scales_stay_exact(void)
{
    problem p = random_problem(6, 96, 20, 0, 0), far = random_problem(7, 64, 20, 80, 70);
    memcpy(p.x + 5 * p.d, p.x + 4 * p.d, (size_t)p.d * sizeof(float));
    memcpy(p.y + 5 * p.d, p.y + 4 * p.d, (size_t)p.d * sizeof(float));
    for (int64_t i = 0; i < far.mu * far.d; i++) far.u[i] = -fabsf(far.u[i]);
    for (int64_t i = 0; i < far.n * far.d; i++) far.x[i] = fabsf(far.x[i]);
    compare("beta 0", &p, 30, 0);
    compare("beta 20", &p, 30, 20);
    compare("beta 200", &p, 100, 200);
    compare("far patterns", &far, 100, 20);
    for (int m = 0; m < 4; m += 3) {
        answer want = evaluate(ctx, &far, options((cloob_method)m, LOSS_REF, 1000, 500), CLOOB_F32);
        answer got = evaluate(ctx, &far, options((cloob_method)m, LOSS_CPU, 1000, 500), CLOOB_F32);
        check_answer("beta 500, inv_tau 1000, far", &far, &got, &want, 1e-5, 1e-3);
        answer_free(&got), answer_free(&want);
    }
    problem_free(&p), problem_free(&far);
}

static double loss_at(problem *p, cloob_method m, float *at, double step)
{
    float old = *at;
    *at = (float)((double)old + step);
    loss_options o = options(m, LOSS_REF, 12, 5);
    o.unchecked = true; /* the step leaves the sphere: gradients take rows as given */
    answer a = evaluate(ctx, p, o, CLOOB_F32);
    *at = old;
    double loss = a.r.loss;
    answer_free(&a);
    return loss;
}

/* 1e-3: a step of 2e-3 on f32 inputs leaves about 1e-4. */
static void the_definition_has_the_documented_slope(void)
{
    problem p = random_problem(8, 7, 6, 9, 5);
    for (int m = 0; m < 4; m++) {
        answer a = evaluate(ctx, &p, options((cloob_method)m, LOSS_REF, 12, 5), CLOOB_F32);
        float *at[4] = { p.x + 13, p.y + 22, p.u + 31, p.v + 8 };
        float slope[4] = { a.dx[13], a.dy[22], a.du[31], a.dv[8] };
        for (int k = 0; k < 4; k++) {
            double up = loss_at(&p, (cloob_method)m, at[k], 2e-3), down = loss_at(&p, (cloob_method)m, at[k], -2e-3);
            CHECK_NEAR(slope[k], (up - down) / 4e-3, 1e-3);
        }
        answer_free(&a);
    }
    problem_free(&p);
}

static tiles carve_for(carver *c, const problem *p)
{
    loss_plan plan = { .s = { .rows = p->n, .dim = p->d, .dtype = CLOOB_F32 }, .total = p->n };
    return tiles_carve(c, &plan);
}

/* The gradient of one anchor's term in the anchor, and the positive's softmax p1 over all samples. */
static double anchor_gradient(const problem *p, int64_t i, bool leave_one_out, float *da, void *memory)
{
    double lse, weight, column[64], bias[64], all = 0, own = 0;
    float samples[64 * 12], db[64 * 12] = { 0 }, mean[2][12];
    carver c = { memory, 0 };
    tiles t = carve_for(&c, p);
    contrast k = { .a = da,
                   .b = samples,
                   .n = 1,
                   .N = p->n,
                   .d = p->d,
                   .first = i,
                   .inv_tau = 3,
                   .leave_one_out = leave_one_out,
                   .lse = &lse,
                   .weight = &weight,
                   .column = column,
                   .bias = bias,
                   .mean_a = mean[0],
                   .mean_b = mean[1],
                   .db = db };
    memcpy(da, p->x + i * p->d, (size_t)p->d * sizeof *da);
    memcpy(samples, p->y, (size_t)(p->n * p->d) * sizeof *samples);
    contrast_forward(ctx, &k, &t);
    contrast_backward(ctx, &k, &t);
    for (int64_t j = 0; j < p->n; j++) {
        double s = 0;
        for (int64_t q = 0; q < p->d; q++) s += (double)p->x[i * p->d + q] * (double)p->y[j * p->d + q];
        all += exp(3 * s);
        if (j == i) own = exp(3 * s);
    }
    return own / all;
}

/* The paper's identity, anchor by anchor. 1e-6: rounding of f32 sums. */
static void infonce_is_infoloob_times_one_minus_p1(void)
{
    problem p = random_problem(9, 40, 12, 0, 0);
    carver size = { NULL, 0 };
    carve_for(&size, &p);
    void *memory = aligned_alloc(64, size.used);
    for (int64_t i = 0; i < p.n; i++) {
        float loob[12], nce[12];
        anchor_gradient(&p, i, true, loob, memory);
        double p1 = anchor_gradient(&p, i, false, nce, memory);
        CHECK(p1 > 0.001 && p1 < 0.999);
        for (int64_t k = 0; k < p.d; k++) CHECK_NEAR((double)nce[k] * 40, (1 - p1) * (double)loob[k] * 40, 1e-6);
    }
    free(memory);
    problem_free(&p);
}

/* What training follows: InfoLOOB's loss, or the mean of InfoNCE's two terms. */
static double followed(cloob_method m, double inv_tau, double beta, const problem *p)
{
    answer a = evaluate(ctx, p, options(m, LOSS_REF, inv_tau, beta), CLOOB_F32);
    answer_free(&a);
    return loss_method_leaves_one_out(m) ? a.r.loss : (a.r.image_term + a.r.text_term) / 2;
}

/* Both scales as exp(logit): slopes in the logits. */
static void scales_can_be_learned(void)
{
    problem p = random_problem(10, 60, 24, 0, 0);
    double t = log(14.0), b = log(6.0), h = 1e-4;
    for (cloob_method m = CLOOB_METHOD_CLOOB; m <= CLOOB_METHOD_INFONCE_HOPFIELD; m++) {
        answer at = evaluate(ctx, &p, options(m, LOSS_CPU, loss_scale_value(t), loss_scale_value(b)), CLOOB_F32);
        double dt = (followed(m, exp(t + h), exp(b), &p) - followed(m, exp(t - h), exp(b), &p)) / (2 * h);
        double db = (followed(m, exp(t), exp(b + h), &p) - followed(m, exp(t), exp(b - h), &p)) / (2 * h);
        CHECK_NEAR(loss_dlogit_inv_tau(m, &at.r, exp(t)), dt, 1e-5);
        CHECK_NEAR(loss_dlogit_beta(m, &at.r, exp(t), exp(b)), db, 1e-5);
        CHECK_NEAR(loss_train_factor(m, 14.0) * at.r.loss, followed(m, exp(t), exp(b), &p), 1e-5);
        answer_free(&at);
    }
    CHECK_NEAR(loss_scale_value(5.0), 100, 0);
    CHECK_NEAR(loss_scale_clamp(5.0), log(100.0), 0);
    CHECK_NEAR(loss_scale_clamp(-1.0), 0, 0);
    problem_free(&p);
}

/* Measured, not computed: the growth of the process beyond inputs and outputs stays under 40 N d bytes. */
static void memory_is_linear_in_the_batch(void)
{
    problem p = random_problem(11, 2048, 768, 0, 0);
    float *dx = poisoned(p.n * p.d), *dy = poisoned(p.n * p.d);
    loss_options o = options(CLOOB_METHOD_CLOOB, LOSS_CPU, 30, 8);
    loss_shape s = { p.n, p.d, 0, 0, CLOOB_F32 };
    loss_inputs in = { p.x, p.y, NULL, NULL };
    loss_outputs out = { dx, dy, NULL, NULL };
    loss_plan *plan;
    loss_result r;
    peak_reset();
    int64_t before = peak_bytes();
    CHECK_OK(ctx, loss_plan_create(ctx, &o, &s, NULL, &plan));
    CHECK_OK(ctx, loss_run(ctx, plan, &in, &out, NULL, &r));
    int64_t grown = peak_bytes() - before, limit = 40 * p.n * p.d;
    printf("  grown by %.1f N d bytes, planned %.1f\n", (double)grown / (double)(p.n * p.d),
           (double)loss_plan_bytes(plan) / (double)(p.n * p.d));
#ifdef __SANITIZE_THREAD__ /* it keeps four words for every word that is touched */
    limit *= 5;
#endif
    CHECK(grown <= limit && (int64_t)loss_plan_bytes(plan) <= 40 * p.n * p.d);
    loss_plan_destroy(plan);
    free(dx), free(dy), problem_free(&p);
}

/* ---- refusals ---- */

static void refused(problem *p, loss_options o, cloob_status status, const char *text)
{
    for (int backend = LOSS_REF; backend <= LOSS_CPU; backend++) {
        o.backend = (loss_backend)backend;
        answer a = evaluate_on(ctx, p, o, CLOOB_F32, NULL);
        CHECK(a.status == status);
        if (!strstr(cloob_error(ctx), text)) printf("  error text is: %s\n", cloob_error(ctx));
        CHECK(strstr(cloob_error(ctx), text) != NULL);
        answer_free(&a);
    }
}

static void bad_input_is_refused_by_name(void)
{
    loss_options o = options(CLOOB_METHOD_CLOOB, LOSS_CPU, 30, 8);
    problem p = random_problem(12, 50, 16, 30, 0);
    p.y[17 * 16 + 3] *= 2;
    refused(&p, o, CLOOB_ERR_NUMERIC, "y: row 17 has length");
    p.y[17 * 16 + 3] /= 2;
    p.x[49 * 16] = NAN;
    refused(&p, o, CLOOB_ERR_NUMERIC, "x: row 49 holds NaN");
    p.x[49 * 16] = INFINITY;
    refused(&p, o, CLOOB_ERR_NUMERIC, "x: row 49 holds NaN or infinity");
    problem_free(&p);
    p = random_problem(13, 50, 16, 30, 0);
    memset(p.u + 5 * 16, 0, 16 * sizeof(float));
    refused(&p, o, CLOOB_ERR_NUMERIC, "U: row 5 has length 0");
    unit_rows(p.u, 5, 16);
    refused(&p, options(CLOOB_METHOD_CLOOB, LOSS_CPU, -30, 8), CLOOB_ERR_ARGUMENT, "inverse temperature -30");
    refused(&p, options(CLOOB_METHOD_CLOOB, LOSS_CPU, 30, -1), CLOOB_ERR_ARGUMENT, "Hopfield scale -1");
    refused(&p, options(CLOOB_METHOD_CLOOB, LOSS_CPU, NAN, 8), CLOOB_ERR_ARGUMENT, "inverse temperature nan");
    p.n = 1;
    refused(&p, o, CLOOB_ERR_ARGUMENT, "batch of 1 pair");
    p.n = 0;
    refused(&p, o, CLOOB_ERR_ARGUMENT, "no pairs");
    problem_free(&p);
}

static void patterns_that_cancel_are_refused(void)
{
    problem p = random_problem(14, 40, 32, 64, 0);
    for (int64_t i = 0; i < 32 * 32; i++) p.u[32 * 32 + i] = -p.u[i];
    loss_options o = options(CLOOB_METHOD_CLOOB, LOSS_CPU, 30, 0);
    o.unchecked = true;
    for (int64_t i = 0; i < 64 * 32; i++) p.u[i] = i % 32 == 0 ? (i / 32 < 32 ? 1.0f : -1.0f) : 0.0f;
    refused(&p, o, CLOOB_ERR_NUMERIC, "x row 0 from U is zero");
    problem_free(&p);
}

static void one_pair_is_fine_for_infonce(void)
{
    problem p = random_problem(15, 1, 8, 0, 0);
    answer a = evaluate(ctx, &p, options(CLOOB_METHOD_CLIP, LOSS_CPU, 30, 8), CLOOB_F32);
    CHECK_NEAR(a.r.loss, 0, 0);
    answer_free(&a), problem_free(&p);
}

static void without_gradients_the_loss_is_the_same(void)
{
    problem p = random_problem(16, 77, 40, 0, 0);
    for (int m = 0; m < 4; m++) {
        loss_options o = options((cloob_method)m, LOSS_CPU, 30, 8);
        answer a = evaluate(ctx, &p, o, CLOOB_F32);
        o.gradients = false;
        answer b = evaluate(ctx, &p, o, CLOOB_F32);
        CHECK_NEAR(b.r.loss, a.r.loss, 0);
        CHECK(isnan(b.dx[0]));
        answer_free(&a), answer_free(&b);
    }
    problem_free(&p);
}

/* ---- U_x against V_y ------------------------------------------------------------------------------- */

static double cross_loss(const problem *p, loss_options o)
{
    o.unchecked = true; /* a step leaves the sphere */
    answer a = evaluate(ctx, p, o, CLOOB_F32);
    double loss = a.r.loss;
    answer_free(&a);
    return loss;
}

/* By the definition alone: its slope, its difference from CLOOB's, and the refusal elsewhere. */
static void the_rejected_loss_has_the_documented_slope(void)
{
    problem p = random_problem(8, 7, 6, 0, 0);
    loss_options o, other;
    loss_options_init(&o);
    o.method = CLOOB_METHOD_CLOOB_UV, o.backend = LOSS_REF, o.inv_tau = 9, o.beta = 3;
    answer a = evaluate(ctx, &p, o, CLOOB_F32);
    float *at[2] = { p.x + 13, p.y + 22 }, slope[2] = { a.dx[13], a.dy[22] };
    for (int k = 0; k < 2; k++) {
        float old = *at[k], step = 2e-3f;
        *at[k] = old + step;
        double up = cross_loss(&p, o);
        *at[k] = old - step;
        double down = cross_loss(&p, o);
        *at[k] = old;
        CHECK_NEAR(slope[k], (up - down) / (2 * (double)step), 1e-3);
        CHECK(fabs((double)slope[k]) > 2e-3); /* a flipped sign would show */
    }
    other = o, other.beta = 3 + 1e-5;
    double dbeta = (cross_loss(&p, other) - a.r.loss) / 1e-5 * o.inv_tau;
    CHECK_NEAR(a.r.dsum_dbeta, dbeta, 1e-3);
    other = o, other.method = CLOOB_METHOD_CLOOB;
    CHECK(fabs(cross_loss(&p, other) - a.r.loss) > 1e-4);
    loss_plan *plan = NULL;
    o.backend = LOSS_CPU;
    CHECK(loss_plan_create(ctx, &o, &(loss_shape){ 7, 6, 0, 0, CLOOB_F32 }, NULL, &plan) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "only the device ref"));
    answer_free(&a), problem_free(&p);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(memory_is_linear_in_the_batch); /* first: the peak of a process never falls */
    RUN(cpu_is_the_definition_at_random_sizes);
    RUN(bf16_rows_are_taken_as_they_are);
    RUN(extreme_scales_stay_exact);
    RUN(the_definition_has_the_documented_slope);
    RUN(infonce_is_infoloob_times_one_minus_p1);
    RUN(scales_can_be_learned);
    RUN(bad_input_is_refused_by_name);
    RUN(patterns_that_cancel_are_refused);
    RUN(one_pair_is_fine_for_infonce);
    RUN(without_gradients_the_loss_is_the_same);
    RUN(the_rejected_loss_has_the_documented_slope);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
