/* The learning rate by step: frozen values for the cosine shapes (tests/ref/make/make_schedule_ref.py), values by hand
 * for the constant ones. */
#include "check.h"

#include "core/json.h"
#include "optim/schedule.h"

static cloob_ctx *ctx;

static int64_t field(const json *row, const char *name)
{
    int64_t v = 0;
    CHECK(json_int(json_get(row, name), &v));
    return v;
}

static void cosine_shapes_are_as_frozen(void)
{
    arena a = { 0 };
    json *root = NULL;
    int64_t count = 0;
    CHECK_OK(ctx, json_read_file(ctx, &a, TESTS_DIR "/ref/schedule.json", &root));
    for (const json *row = root ? root->child : NULL; row; row = row->next, count++) {
        const json *cycles = json_get(row, "cycles"), *scale = json_get(row, "scale");
        bool restarts = cycles && cycles->kind == JSON_NUMBER;
        schedule s = { .kind = restarts ? SCHEDULE_COSINE_RESTARTS : SCHEDULE_COSINE,
                       .warmup = field(row, "warmup"),
                       .total = field(row, "total"),
                       .cycles = restarts ? field(row, "cycles") : 1 };
        CHECK_NEAR(schedule_scale(&s, field(row, "step")), scale->number, 1e-12);
    }
    printf("  %lld frozen values\n", (long long)count);
    CHECK(count > 90);
    arena_release(&a);
}

/* The first step of a warm-up has rate 0, the step after it the whole rate. */
static void a_warm_up_rises_from_zero(void)
{
    for (int kind = 0; kind < 4; kind++) {
        schedule s = { .kind = (schedule_kind)kind, .warmup = 10, .total = 100, .cycles = 3, .cooldown = 20 };
        CHECK_NEAR(schedule_scale(&s, 0), 0, 0);
        CHECK_NEAR(schedule_scale(&s, 5), 0.5, 1e-15);
        CHECK_NEAR(schedule_scale(&s, 10), 1, 1e-15);
        for (int64_t k = 0; k < 100; k++) CHECK(schedule_scale(&s, k) >= 0 && schedule_scale(&s, k) <= 1);
    }
}

static void restarts_begin_at_the_full_rate(void)
{
    schedule s = { .kind = SCHEDULE_COSINE_RESTARTS, .warmup = 0, .total = 90, .cycles = 3 };
    CHECK_NEAR(schedule_scale(&s, 15), 0.5, 1e-12);
    CHECK(schedule_scale(&s, 29) < 0.01);
    CHECK_NEAR(schedule_scale(&s, 30), 1, 1e-12);
    CHECK_NEAR(schedule_scale(&s, 45), 0.5, 1e-12);
    CHECK_NEAR(schedule_scale(&s, 90), 0, 0);
}

/* A cycle is a number of steps from the end of the warm-up on, whatever the whole run has. */
static void cycles_have_a_length(void)
{
    for (int64_t total = 95; total < 400; total += 61) {
        schedule s = { .kind = SCHEDULE_COSINE_RESTARTS, .warmup = 5, .total = total, .cycles = 1, .cycle = 30 };
        CHECK_NEAR(schedule_scale(&s, 2), 0.4, 1e-15);
        CHECK_NEAR(schedule_scale(&s, 5), 1, 1e-15);
        CHECK_NEAR(schedule_scale(&s, 20), 0.5, 1e-12);
        CHECK(schedule_scale(&s, 34) < 0.01);
        CHECK_NEAR(schedule_scale(&s, 35), 1, 1e-12);
        CHECK_NEAR(schedule_scale(&s, 65), 1, 1e-12);
        CHECK_NEAR(schedule_scale(&s, total), 0, 0);
    }
}

static void constant_stays(void)
{
    schedule s = { .kind = SCHEDULE_CONST, .warmup = 4, .total = 50 };
    for (int64_t k = 4; k < 60; k++) CHECK_NEAR(schedule_scale(&s, k), 1, 0);
}

static void a_cooldown_falls_linearly_to_zero(void)
{
    schedule s = { .kind = SCHEDULE_CONST_COOLDOWN, .warmup = 4, .total = 50, .cooldown = 20 };
    CHECK_NEAR(schedule_scale(&s, 30), 1, 0);
    CHECK_NEAR(schedule_scale(&s, 35), 0.75, 1e-15);
    CHECK_NEAR(schedule_scale(&s, 40), 0.5, 1e-15);
    CHECK_NEAR(schedule_scale(&s, 49), 0.05, 1e-15);
    CHECK_NEAR(schedule_scale(&s, 50), 0, 0);
    s.cooldown = 0;
    CHECK_NEAR(schedule_scale(&s, 49), 1, 0);
}

static void names_are_known(void)
{
    schedule_kind kind;
    CHECK(schedule_from_name("const-cooldown", &kind) && kind == SCHEDULE_CONST_COOLDOWN);
    CHECK(schedule_from_name("cosine", &kind) && kind == SCHEDULE_COSINE);
    CHECK(!schedule_from_name("linear", &kind) && !schedule_from_name("", &kind));
}

/* A restart is where the rate jumps up. */
static void cycles_are_counted_at_restarts(void)
{
    schedule by_steps = { .kind = SCHEDULE_COSINE_RESTARTS, .warmup = 10, .total = 100, .cycle = 20 };
    schedule by_number = { .kind = SCHEDULE_COSINE_RESTARTS, .warmup = 10, .total = 100, .cycles = 4 };
    schedule plain = { .kind = SCHEDULE_COSINE, .warmup = 10, .total = 100, .cycle = 20 };
    for (int64_t step = 11; step < 100; step++)
        for (int k = 0; k < 2; k++) {
            const schedule *s = k ? &by_number : &by_steps;
            bool up = schedule_scale(s, step) > schedule_scale(s, step - 1);
            CHECK(schedule_cycle(s, step) - schedule_cycle(s, step - 1) == up);
        }
    CHECK(schedule_cycle(&by_steps, 0) == 0 && schedule_cycle(&by_steps, 99) == 4 &&
          schedule_cycle(&by_number, 99) == 3);
    CHECK(schedule_cycle(&plain, 99) == 0);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(cosine_shapes_are_as_frozen);
    RUN(a_warm_up_rises_from_zero);
    RUN(restarts_begin_at_the_full_rate);
    RUN(cycles_have_a_length);
    RUN(constant_stays);
    RUN(a_cooldown_falls_linearly_to_zero);
    RUN(names_are_known);
    cloob_ctx_destroy(ctx);
    RUN(cycles_are_counted_at_restarts);
    return check_summary();
}
