/* cloob doctor: reports the parts of this build and machine and the features that lack one, and runs a short
 * self-test. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "lab/bench/bench.h"

/* ---- the self-test -------------------------------------------------------------------------------- */

typedef struct check {
    const char *name;
    cloob_status (*run)(cloob_ctx *ctx, char *text, size_t size); /* text: receives the measured value on success */
} check;

/* Compares the objective on the chosen device with its plain definition. */
static cloob_status check_objective(cloob_ctx *ctx, char *text, size_t size)
{
    enum { N = 96, D = 64 };
    static float x[N * D], y[N * D], dx[N * D], dy[N * D], rx[N * D], ry[N * D];
    cloob_objective_options o;
    cloob_objective_result fast, plain;
    cloob_objective_options_init(&o);
    for (int64_t i = 0; i < N; i++)
        random_unit(x + i * D, D, (uint64_t)i), random_unit(y + i * D, D, (uint64_t)(N + i));
    cloob_pairs e = { .x = x, .y = y, .n = N, .d = D };
    o.device = common.device;
    cloob_status status = cloob_objective(ctx, &o, &e, &(cloob_gradients){ .dx = dx, .dy = dy }, &fast);
    o.device = "ref";
    if (status == CLOOB_OK) status = cloob_objective(ctx, &o, &e, &(cloob_gradients){ .dx = rx, .dy = ry }, &plain);
    if (status != CLOOB_OK) return status;
    double worst = fabs(fast.loss - plain.loss);
    for (int i = 0; i < N * D; i++) worst = fmax(worst, fmax(fabs(dx[i] - rx[i]), fabs(dy[i] - ry[i])));
    snprintf(text, size, "loss and gradients within %.1e of the definition", worst);
    return worst < 1e-3 ? CLOOB_OK : CLOOB_ERR_NUMERIC;
}

static cloob_status check_bench(cloob_ctx *ctx, bool training, char *text, size_t size)
{
    bench_options o;
    bench_result r;
    bench_options_init(&o);
    o.model = "tiny";
    o.device = common.device;
    o.batch = 16;
    o.repeats = 3;
    cloob_status status = training ? step_timing(ctx, &o, &r) : embed_timing(ctx, &o, &r);
    if (status != CLOOB_OK) return status;
    snprintf(text, size, "%.0f %s per second with the model tiny", r.items_per_s, training ? "pairs" : "images");
    return !training || isfinite(r.loss) ? CLOOB_OK : CLOOB_ERR_NUMERIC;
}

static cloob_status check_embed(cloob_ctx *ctx, char *text, size_t size) { return check_bench(ctx, false, text, size); }
static cloob_status check_train(cloob_ctx *ctx, char *text, size_t size) { return check_bench(ctx, true, text, size); }

static const check checks[] = {
    { "objective", check_objective },
    { "embedding", check_embed },
    { "training step", check_train },
};
enum { CHECKS = sizeof checks / sizeof *checks };

typedef struct outcome {
    bool ok;
    char text[512];
} outcome;

static bool run_checks(cloob_ctx *ctx, outcome *out)
{
    bool all = true;
    for (int i = 0; i < CHECKS; i++) {
        cloob_progress p = { .task = "self-test", .unit = "checks", .done = i, .total = CHECKS, .per_unit = 1 };
        progress_show(NULL, &p);
        out[i] = (outcome){ 0 };
        cloob_status status = checks[i].run(ctx, out[i].text, sizeof out[i].text);
        out[i].ok = status == CLOOB_OK;
        if (status != CLOOB_OK && !out[i].text[0]) opt_with_flags(cloob_error(ctx), out[i].text, sizeof out[i].text);
        all = all && out[i].ok;
    }
    progress_end();
    return all;
}

/* ---- the command ----------------------------------------------------------------------------------- */

static void print_text(cloob_ctx *ctx, const outcome *out)
{
    machine_text(ctx);
    printf("\nself-test on --device %s\n", common.device);
    for (int i = 0; i < CHECKS; i++)
        printf("  %-14s %s  %s\n", checks[i].name, out[i].ok ? "ok    " : "FAILED", out[i].text);
}

static void print_json(cloob_ctx *ctx, const outcome *out, bool all)
{
    json_out_open(NULL, '{');
    json_out_bool("ok", all);
    machine_json(ctx);
    json_out_open("checks", '[');
    for (int i = 0; i < CHECKS; i++)
        json_out_object(NULL, J_TEXT("name", checks[i].name), J_BOOL("ok", out[i].ok), J_TEXT("text", out[i].text));
    json_out_close();
    json_out_close();
}

/* Reports the first check that failed. */
static int report_failure(const outcome *out)
{
    for (int i = 0; i < CHECKS; i++)
        if (!out[i].ok) {
            cli_error(&cmd_doctor, "self-test of the %s failed: %s", checks[i].name, out[i].text);
            break;
        }
    return 1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    outcome out[CHECKS];
    (void)self;
    bool all = run_checks(ctx, out);
    if (common.json) print_json(ctx, out, all);
    else print_text(ctx, out);
    return all ? 0 : report_failure(out);
}

const command cmd_doctor = {
    .name = "doctor",
    .run = run,
    .terse = true,
    .stray = "unexpected argument",
    .help = "check this build and machine: devices, parts, caches, a self-test",
    .usage = "[--device DEVICE]",
    .details =
        "Lists devices, instruction sets, cache folders, the optional parts of this build and their purpose, and the "
        "libraries that are loaded on first use, with the packages of missing ones. Then runs a short self-test "
        "on the device. Exit code 0 means that everything found works.\n"
        "\n"
        "  cloob doctor\n"
        "  cloob doctor --device cuda --json",
};
