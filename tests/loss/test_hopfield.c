/* The Hopfield network through the public header: its definition, and what the theory promises: one update
 * comes exponentially close to a separated pattern, the energy never rises, beta = 0 retrieves the mean. And
 * the queue. */
#include "cloob/cloob.h"
#include "objective.h"

static cloob_ctx *ctx;

static double distance(const float *a, const float *b, int64_t d)
{
    double s = 0;
    for (int64_t k = 0; k < d; k++) s += pow((double)a[k] - (double)b[k], 2);
    return sqrt(s);
}

static double length(const float *a, int64_t d)
{
    float zero[512] = { 0 };
    return distance(a, zero, d);
}

static void one_update_is_the_weighted_mean(void)
{
    problem p = random_problem(1, 7, 5, 9, 0);
    cloob_hopfield h = { p.u, p.mu, p.d, 3.0 };
    cloob_hopfield_options o;
    float out[7 * 5];
    cloob_hopfield_options_init(&o);
    CHECK_OK(ctx, cloob_hopfield_retrieve(ctx, &h, &o, p.x, p.n, out, NULL));
    for (int64_t i = 0; i < p.n; i++) {
        double w[9], sum = 0;
        for (int64_t j = 0; j < p.mu; j++) {
            double s = 0;
            for (int64_t k = 0; k < p.d; k++) s += (double)p.x[i * 5 + k] * (double)p.u[j * 5 + k];
            sum += w[j] = exp(3 * s);
        }
        for (int64_t k = 0; k < p.d; k++) {
            double want = 0;
            for (int64_t j = 0; j < p.mu; j++) want += w[j] / sum * (double)p.u[j * 5 + k];
            CHECK_NEAR(out[i * 5 + k], want, 1e-6);
        }
    }
    problem_free(&p);
}

static void scale_zero_gives_the_mean(void)
{
    problem p = random_problem(2, 6, 16, 700, 0);
    cloob_hopfield h = { p.u, p.mu, p.d, 0 };
    cloob_hopfield_options o;
    float out[6 * 16];
    cloob_hopfield_options_init(&o);
    CHECK_OK(ctx, cloob_hopfield_retrieve(ctx, &h, &o, p.x, p.n, out, NULL));
    for (int64_t k = 0; k < p.d; k++) {
        double mean = 0;
        for (int64_t j = 0; j < p.mu; j++) mean += (double)p.u[j * p.d + k] / (double)p.mu;
        for (int64_t i = 0; i < p.n; i++) CHECK_NEAR(out[i * p.d + k], mean, 1e-6);
    }
    problem_free(&p);
}

/* u_i.u_i - max_{j != i} u_i.u_j */
static double separation(const float *u, int64_t n, int64_t d, int64_t i)
{
    double own = 0, nearest = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        double product = 0;
        for (int64_t k = 0; k < d; k++) product += (double)u[i * d + k] * u[j * d + k];
        if (j == i) own = product;
        else nearest = fmax(nearest, product);
    }
    return own - nearest;
}

/* With separation D_i of pattern i, patterns of length at most m and a state at distance r from it, one
 * update lands within 2 (M - 1) exp(-beta (D_i - 2 r m)) m of the pattern (docs/explanation/objective.md 7). */
static void one_update_retrieves_within_the_bound(void)
{
    problem p = random_problem(3, 0, 128, 300, 0);
    double tightest = 1, beta = 60, m = 1;
    float *states = floats(300 * 128), *out = floats(300 * 128);
    cloob_hopfield h = { p.u, p.mu, p.d, beta };
    cloob_hopfield_options o;
    cloob_hopfield_options_init(&o);
    for (int64_t i = 0; i < 300 * 128; i++) states[i] = p.u[i] + 0.004f * (float)rng_normal(77, (uint64_t)i);
    CHECK_OK(ctx, cloob_hopfield_retrieve(ctx, &h, &o, states, 300, out, NULL));
    for (int64_t i = 0; i < 300; i++) {
        double r = distance(states + i * 128, p.u + i * 128, 128);
        double bound = 2 * 299 * exp(-beta * (separation(p.u, 300, 128, i) - 2 * r * m)) * m;
        CHECK(distance(out + i * 128, p.u + i * 128, 128) <= bound + 1e-6); /* 1e-6: f32 */
        tightest = fmin(tightest, bound);
    }
    CHECK(tightest < 1e-3); /* the statement says something here */
    free(states), free(out), problem_free(&p);
}

/* Two orthogonal unit patterns: at 0 the two logarithms cancel and max|u|^2/2 is left; on the first pattern by the
 * formula. */
static void energy_by_hand(void)
{
    const float pattern[2 * 3] = { 1, 0, 0, 0, 1, 0 }, state[2 * 3] = { 0, 0, 0, 1, 0, 0 };
    double energy[2], beta = 8;
    cloob_hopfield h = { pattern, 2, 3, beta };
    CHECK_OK(ctx, cloob_hopfield_energy(ctx, &h, state, 2, energy));
    CHECK_NEAR(energy[0], 0.5, 1e-12);
    CHECK_NEAR(energy[1], -log(exp(beta) + 1) / beta + 0.5 + log(2) / beta + 0.5, 1e-12);
}

static void energy_never_rises(void)
{
    problem p = random_problem(4, 40, 24, 600, 0);
    cloob_hopfield_options o;
    cloob_hopfield_options_init(&o);
    for (double beta = 0.25; beta < 300; beta *= 4) {
        cloob_hopfield h = { p.u, p.mu, p.d, beta };
        float *state = floats(40 * 24);
        double before[40], after[40];
        memcpy(state, p.x, 40 * 24 * sizeof(float));
        for (int step = 0; step < 12; step++) {
            CHECK_OK(ctx, cloob_hopfield_energy(ctx, &h, state, 40, before));
            CHECK_OK(ctx, cloob_hopfield_retrieve(ctx, &h, &o, state, 40, state, NULL));
            CHECK_OK(ctx, cloob_hopfield_energy(ctx, &h, state, 40, after));
            for (int i = 0; i < 40; i++) CHECK(after[i] <= before[i] + 2e-6); /* f32 states */
            for (int i = 0; i < 40; i++) CHECK(before[i] >= -1e-6 && before[i] <= 2 + 1e-6);
        }
        free(state);
    }
    problem_free(&p);
}

static void updates_stop_when_a_state_rests(void)
{
    problem p = random_problem(5, 30, 64, 50, 0);
    cloob_hopfield h = { p.u, p.mu, p.d, 40 };
    cloob_hopfield_options o = { .size = sizeof o, .updates = 200, .tolerance = 1e-5, .unit = false };
    float out[30 * 64], again[30 * 64];
    int updates[30];
    CHECK_OK(ctx, cloob_hopfield_retrieve(ctx, &h, &o, p.x, p.n, out, updates));
    for (int i = 0; i < 30; i++) CHECK(updates[i] >= 1 && updates[i] < 200);
    o.updates = 1;
    CHECK_OK(ctx, cloob_hopfield_retrieve(ctx, &h, &o, out, p.n, again, NULL));
    for (int i = 0; i < 30; i++) CHECK(distance(out + i * 64, again + i * 64, 64) < 2e-5);
    o.unit = true;
    CHECK_OK(ctx, cloob_hopfield_retrieve(ctx, &h, &o, p.x, p.n, out, NULL));
    for (int i = 0; i < 30; i++) CHECK_NEAR(length(out + i * 64, 64), 1, 1e-6);
    problem_free(&p);
}

static void bad_networks_are_refused(void)
{
    float u[4] = { 1, 0, -1, 0 }, x[2] = { 0, NAN }, out[2];
    double e;
    cloob_hopfield h = { u, 2, 2, -1 };
    cloob_hopfield_options o = { .size = sizeof o, .updates = 1, .unit = true };
    CHECK(cloob_hopfield_retrieve(ctx, &h, &o, x, 1, out, NULL) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "-1") != NULL);
    h.beta = 0;
    CHECK(cloob_hopfield_retrieve(ctx, &h, &o, x, 1, out, NULL) == CLOOB_ERR_NUMERIC);
    CHECK(strstr(cloob_error(ctx), "state 0") != NULL);
    x[1] = 1;
    CHECK(cloob_hopfield_retrieve(ctx, &h, &o, x, 1, out, NULL) == CLOOB_ERR_NUMERIC); /* 1 and -1 cancel */
    CHECK(cloob_hopfield_energy(ctx, &h, x, 1, &e) == CLOOB_ERR_ARGUMENT);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(one_update_is_the_weighted_mean);
    RUN(scale_zero_gives_the_mean);
    RUN(one_update_retrieves_within_the_bound);
    RUN(energy_by_hand);
    RUN(energy_never_rises);
    RUN(updates_stop_when_a_state_rests);
    RUN(bad_networks_are_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
