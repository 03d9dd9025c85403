/* The objective through the public header and through `cloob loss`: files in and out, what is refused and
 * how. */
#include <sys/wait.h>
#include <unistd.h>

#include "cloob/cloob.h"
#include "io/safetensors.h"
#include "objective.h"
#include "infer/embeddings_file.h"
#include "lab/bench/bench.h"
#include "loss/loss.h"

static cloob_ctx *ctx;
static char dir[256];
static char in_path[512], out_path[512];

static void write_file(const problem *p, int64_t y_rows)
{
    st_entry e[4] = { { "x", TENSOR(CLOOB_F32, p->x, p->n, p->d) },
                      { "y", TENSOR(CLOOB_F32, p->y, y_rows, p->d) },
                      { "U", TENSOR(CLOOB_F32, p->u, p->mu, p->d) },
                      { "V", TENSOR(CLOOB_F32, p->v, p->mv, p->d) } };
    CHECK_OK(ctx, st_write(ctx, in_path, e, p->mu ? 4 : 2, NULL, 0));
}

static int shell(const char *arguments, char *output, size_t size)
{
    char line[1024];
    snprintf(line, sizeof line, "%s loss %s 2>&1", CLOOB_PROGRAM, arguments);
    FILE *f = popen(line, "r");
    size_t n = fread(output, 1, size - 1, f);
    output[n] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* cloob embed names its matrices image and text. */
static void embeddings_are_read_by_their_names(void)
{
    problem p = random_problem(2, 12, 16, 0, 0);
    cloob_objective_options o;
    cloob_objective_result file, memory;
    cloob_pairs e = { .x = p.x, .y = p.y, .n = p.n, .d = p.d };
    st_entry entry[] = { { "text", TENSOR(CLOOB_F32, p.y, p.n, p.d) }, { "image", TENSOR(CLOOB_F32, p.x, p.n, p.d) } };
    cloob_objective_options_init(&o);
    o.device = "cpu";
    CHECK_OK(ctx, st_write(ctx, in_path, entry, 2, NULL, 0));
    CHECK_OK(ctx, cloob_objective(ctx, &o, &e, NULL, &memory));
    CHECK_OK(ctx, objective_file(ctx, &o, in_path, NULL, &file));
    CHECK(file.loss == memory.loss && file.image_term == memory.image_term);
    problem_free(&p);
}

static void files_give_what_memory_gives(void)
{
    problem p = random_problem(1, 40, 24, 30, 50);
    cloob_objective_options o;
    cloob_objective_result file, memory;
    cloob_pairs e = { p.x, p.y, p.n, p.d, p.u, p.v, p.mu, p.mv };
    float *dx = poisoned(40 * 24), *dy = poisoned(40 * 24), *du = poisoned(30 * 24), *dv = poisoned(50 * 24);
    cloob_gradients g = { dx, dy, du, dv };
    st_file f;
    cloob_objective_options_init(&o);
    o.device = "cpu";
    write_file(&p, p.n);
    CHECK_OK(ctx, cloob_objective(ctx, &o, &e, &g, &memory));
    CHECK_OK(ctx, objective_file(ctx, &o, in_path, out_path, &file));
    CHECK(file.loss == memory.loss && file.nu == 30 && file.nv == 50);
    CHECK_OK(ctx, st_open(ctx, out_path, &f));
    const st_entry *entry = st_find(&f, "dV");
    CHECK(entry && memcmp(entry->t.data, dv, 50 * 24 * sizeof(float)) == 0);
    entry = st_find(&f, "dx");
    CHECK(entry && memcmp(entry->t.data, dx, 40 * 24 * sizeof(float)) == 0);
    st_close(&f);
    CHECK_OK(ctx, cloob_objective(ctx, &o, &e, NULL, &memory)); /* without gradients */
    CHECK(file.loss == memory.loss && memory.dsum_dinv_tau == 0);
    o.device = "ref";
    CHECK_OK(ctx, cloob_objective(ctx, &o, &e, &g, &memory));
    CHECK_NEAR(file.loss, memory.loss, 1e-6);
    o.compute = CLOOB_BF16;
    o.device = "cpu";
    CHECK_OK(ctx, cloob_objective(ctx, &o, &e, &g, &memory));
    CHECK_NEAR(file.loss, memory.loss, 2e-2);
    free(dx), free(dy), free(du), free(dv), problem_free(&p);
}

/* In place: the same numbers without a copy, new scales without a new plan, and doubles by ref. */
static void plans_work_in_place(void)
{
    enum { N = 20, D = 16, M = 12, K = 9 };
    problem p = random_problem(3, N, D, M, K);
    cloob_objective_options o;
    cloob_objective_result copied, placed;
    cloob_objective_plan *plan;
    cloob_objective_shape s = { N, D, M, K, CLOOB_F32, true };
    cloob_pairs e = { p.x, p.y, N, D, p.u, p.v, M, K };
    float dx[N * D], dy[N * D], ex[N * D], ey[N * D], eu[M * D];
    double x[N * D], y[N * D], u[M * D], v[K * D], wx[N * D], wy[N * D];
    cloob_objective_options_init(&o);
    o.device = "cpu";
    CHECK_OK(ctx, cloob_objective_plan_create(ctx, &o, &s, &plan));
    for (int round = 0; round < 2; round++) {
        cloob_objective_rows r = { p.x, p.y, p.u, p.v, dx, dy, round ? eu : NULL, NULL };
        if (round) o.inv_tau = 20, o.scale_hopfield = 5;
        if (round) CHECK_OK(ctx, cloob_objective_plan_scales(ctx, plan, 20, 5));
        CHECK_OK(ctx, cloob_objective(ctx, &o, &e, &(cloob_gradients){ ex, ey, NULL, NULL }, &copied));
        CHECK_OK(ctx, cloob_objective_plan_run(ctx, plan, &r, &placed));
        CHECK(copied.loss == placed.loss && memcmp(dx, ex, sizeof dx) == 0 && memcmp(dy, ey, sizeof dy) == 0);
        CHECK(placed.n == N && placed.nu == M && placed.nv == K);
    }
    cloob_objective_plan_destroy(plan);
    for (int i = 0; i < N * D; i++) x[i] = p.x[i], y[i] = p.y[i];
    for (int i = 0; i < M * D; i++) u[i] = p.u[i];
    for (int i = 0; i < K * D; i++) v[i] = p.v[i];
    s.dtype = CLOOB_F64;
    CHECK(cloob_objective_plan_create(ctx, &o, &s, &plan) == CLOOB_ERR_ARGUMENT && !plan);
    o.device = "auto";
    CHECK_OK(ctx, cloob_objective_plan_create(ctx, &o, &s, &plan));
    cloob_objective_rows r = { x, y, u, v, wx, wy, NULL, NULL };
    CHECK_OK(ctx, cloob_objective_plan_run(ctx, plan, &r, &placed));
    CHECK_NEAR(placed.loss, copied.loss, 1e-6);
    for (int i = 0; i < N * D; i++) CHECK_NEAR(wx[i], ex[i], 1e-6);
    /* The slope along one coordinate, which f32 could not show: 1e-6 steps leave about 1e-10. */
    double at[2], other[N * D];
    cloob_objective_rows slope = { x, y, u, v, other, wy, NULL, NULL };
    for (int side = 0; side < 2; side++) {
        x[5] += side ? -2e-6 : 1e-6;
        CHECK_OK(ctx, cloob_objective_plan_run(ctx, plan, &slope, &placed));
        at[side] = placed.loss;
    }
    CHECK_NEAR((at[0] - at[1]) / 2e-6, wx[5], 1e-8);
    r.dy = NULL;
    CHECK(cloob_objective_plan_run(ctx, plan, &r, &placed) == CLOOB_ERR_ARGUMENT);
    cloob_objective_plan_destroy(plan);
    problem_free(&p);
}

static void the_command_prints_and_writes(void)
{
    problem p = random_problem(2, 33, 16, 0, 0);
    char line[700], text[4096];
    write_file(&p, p.n);
    remove(out_path);
    snprintf(line, sizeof line,
             "--input %s --method infonce-hopfield --scale-hopfield 14.3 --device cpu --json --grad %s", in_path,
             out_path);
    CHECK(shell(line, text, sizeof text) == 0);
    CHECK(text[0] == '{' && strstr(text, "\"loss\": ") && strstr(text, "\"image_term\": ") &&
          strstr(text, "\"text_term\": "));
    CHECK(access(out_path, R_OK) == 0);
    problem_free(&p);
}

static void mistakes_get_one_line_and_their_code(void)
{
    problem p = random_problem(3, 33, 16, 0, 0);
    char line[700], text[4096];
    write_file(&p, p.n - 1);
    snprintf(line, sizeof line, "--input %s --device cpu", in_path);
    CHECK(shell(line, text, sizeof text) == 1);
    CHECK(strstr(text, "x has 33 rows and y 32") != NULL);
    p.y[7 * 16 + 2] = NAN;
    write_file(&p, p.n);
    CHECK(shell(line, text, sizeof text) == 1);
    CHECK(strstr(text, "y: row 7 holds NaN") != NULL);
    CHECK(strchr(text, '\n') == text + strlen(text) - 1);
    CHECK(shell("--input /nowhere/at.all --device cpu", text, sizeof text) == 1);
    CHECK(shell("--method cloob", text, sizeof text) == 2);
    snprintf(line, sizeof line, "--input %s --method mystery", in_path);
    CHECK(shell(line, text, sizeof text) == 2);
    snprintf(line, sizeof line, "--input %s --init-inv-tau -3 --device cpu", in_path);
    CHECK(shell(line, text, sizeof text) == 2);
    CHECK(strstr(text, "-3") != NULL);
    problem_free(&p);
}

static void the_benchmark_times_something(void)
{
    cloob_objective_options o;
    loss_bench b = { 512, 32, 2, false, 1 };
    bench_result t;
    cloob_objective_options_init(&o);
    o.device = "cpu";
    CHECK_OK(ctx, loss_timing(ctx, &o, &b, &t));
    CHECK(t.ms > 0 && t.items_per_s > 0 && t.peak_bytes >= 0);
    CHECK_STR(t.device, "cpu");
    b.n = 1;
    CHECK(loss_timing(ctx, &o, &b, &t) == CLOOB_ERR_ARGUMENT);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    scratch_folder(dir, sizeof dir);
    snprintf(in_path, sizeof in_path, "%s/in.safetensors", dir);
    snprintf(out_path, sizeof out_path, "%s/out.safetensors", dir);
    RUN(files_give_what_memory_gives);
    RUN(embeddings_are_read_by_their_names);
    RUN(plans_work_in_place);
    RUN(the_command_prints_and_writes);
    RUN(mistakes_get_one_line_and_their_code);
    RUN(the_benchmark_times_something);
    check_remove(dir);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
