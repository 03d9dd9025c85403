/* Frozen objectives from a float64 PyTorch: losses within 1e-6, gradients within 1e-5 norm-wise (f32). Reads
 * tests/ref/objective (tests/ref/make/make_objective_ref.py), or the folder that is its argument. */
#include <dirent.h>
#include <unistd.h>

#include "io/safetensors.h"
#include "loss/impl.h"
#include "objective.h"

static cloob_ctx *ctx;
static const char *folder;
static loss_backend backend;
static int files;
static double worst_loss, worst_gradient, worst_bf16;

static float *load(const st_file *f, const char *method, const char *name, int64_t n)
{
    char full[96];
    float *to = floats(n);
    snprintf(full, sizeof full, "%s%s%s", method, *method ? "." : "", name);
    const st_entry *e = st_find(f, full);
    if (e) dtype_convert(CLOOB_F32, to, e->t.dtype, e->t.data, n);
    return to;
}

static double number(const st_file *f, const char *method, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s%s", method, *method ? "." : "", name);
    const st_entry *e = st_find(f, full);
    return e ? *(const double *)e->t.data : 0;
}

static problem load_problem(const st_file *f)
{
    problem p = { 0 };
    const st_entry *x = st_find(f, "x"), *u = st_find(f, "U"), *v = st_find(f, "V");
    p.n = x->t.dim[0];
    p.d = x->t.dim[1];
    p.mu = u ? u->t.dim[0] : 0;
    p.mv = v ? v->t.dim[0] : 0;
    p.x = load(f, "", "x", p.n * p.d);
    p.y = load(f, "", "y", p.n * p.d);
    p.u = load(f, "", "U", p.mu * p.d);
    p.v = load(f, "", "V", p.mv * p.d);
    return p;
}

static answer load_answer(const st_file *f, const char *method, const problem *p)
{
    answer a = { .dx = load(f, method, "dx", p->n * p->d),
                 .dy = load(f, method, "dy", p->n * p->d),
                 .du = load(f, method, "dU", p->mu * p->d),
                 .dv = load(f, method, "dV", p->mv * p->d) };
    a.r.loss = number(f, method, "loss");
    a.r.image_term = number(f, method, "image_term");
    a.r.text_term = number(f, method, "text_term");
    a.r.dsum_dinv_tau = number(f, method, "dsum_dinv_tau");
    a.r.dsum_dbeta = number(f, method, "dsum_dbeta");
    return a;
}

static double larger(double a, double b) { return a > b ? a : b; }

static void remember(const problem *p, const answer *a, const answer *want)
{
    worst_loss = larger(worst_loss, value_error(a->r.loss, want->r.loss));
    worst_gradient = larger(worst_gradient, relative_error(a->dx, want->dx, p->n * p->d, 0.01));
    worst_gradient = larger(worst_gradient, relative_error(a->dy, want->dy, p->n * p->d, 0.01));
}

/* bf16 embeddings against the definition on the same rounded numbers: what the format itself loses is not
 * ours. */
static void check_bf16(const char *what, const problem *p, loss_options o)
{
    problem rounded = {
        p->n, p->d, p->mu, p->mv, floats(p->n * p->d), floats(p->n * p->d), floats(p->mu * p->d), floats(p->mv * p->d)
    };
    memcpy(rounded.x, p->x, (size_t)(p->n * p->d) * sizeof(float));
    memcpy(rounded.y, p->y, (size_t)(p->n * p->d) * sizeof(float));
    memcpy(rounded.u, p->u, (size_t)(p->mu * p->d) * sizeof(float));
    memcpy(rounded.v, p->v, (size_t)(p->mv * p->d) * sizeof(float));
    round_to_bf16(&rounded);
    answer a = evaluate(ctx, &rounded, o, CLOOB_BF16);
    o.backend = LOSS_REF;
    o.unchecked = true; /* rounding moved the lengths */
    answer want = evaluate(ctx, &rounded, o, CLOOB_F32);
    worst_bf16 = larger(worst_bf16, relative_error(a.dx, want.dx, p->n * p->d, 0.01));
    check_answer(what, p, &a, &want, 2e-2, 2e-2);
    answer_free(&a), answer_free(&want), problem_free(&rounded);
}

/* The gradients that learned scales follow, in files that have them. */
static void check_logits(const char *what, const st_file *f, const char *name, const loss_options *o,
                         const loss_result *r)
{
    char full[96];
    snprintf(full, sizeof full, "%s.train_dlogit_inv_tau", name);
    if (!st_find(f, full)) return;
    double t = number(f, name, "train_dlogit_inv_tau"), b = number(f, name, "train_dlogit_beta");
    CHECK_BELOW(fabs(loss_dlogit_inv_tau(o->method, r, o->inv_tau) - t) / fmax(fabs(t), 1), 1e-5, what);
    CHECK_BELOW(fabs(loss_dlogit_beta(o->method, r, o->inv_tau, o->beta) - b) / fmax(fabs(b), 1), 1e-5, what);
}

static void check_file(const char *path)
{
    static const char *const names[] = { "cloob", "infonce", "infoloob", "infonce_hopfield" };
    char what[512];
    st_file f;
    if (st_open(ctx, path, &f) != CLOOB_OK) {
        CHECK_OK(ctx, CLOOB_ERR_IO);
        return;
    }
    problem p = load_problem(&f);
    for (int m = 0; m < 4; m++) {
        loss_options o;
        loss_options_init(&o);
        o.method = (cloob_method)m;
        o.backend = backend;
        o.inv_tau = number(&f, "", "inv_tau");
        o.beta = number(&f, "", "beta");
        snprintf(what, sizeof what, "%s %s", strrchr(path, '/') + 1, names[m]);
        answer want = load_answer(&f, names[m], &p), a = evaluate(ctx, &p, o, CLOOB_F32);
        check_answer(what, &p, &a, &want, 1e-6, 1e-5);
        check_logits(what, &f, names[m], &o, &a.r);
        remember(&p, &a, &want);
        check_bf16(what, &p, o);
        answer_free(&a), answer_free(&want);
    }
    files++;
    problem_free(&p);
    st_close(&f);
}

static void check_folder(void)
{
    char path[1024];
    DIR *dir = opendir(folder);
    files = 0;
    worst_loss = worst_gradient = worst_bf16 = 0;
    if (!dir) SKIP("the folder of fixtures is not here");
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, "objective_", 10) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        check_file(path);
    }
    closedir(dir);
    CHECK(files > 0);
    printf("  %s: %d files, worst: loss %.2g, gradient %.2g, bf16 %.2g\n", folder, files, worst_loss, worst_gradient,
           worst_bf16);
}

static void ref_gives_the_frozen_values(void)
{
    backend = LOSS_REF;
    check_folder();
}

static void cpu_gives_the_frozen_values(void)
{
    backend = LOSS_CPU;
    check_folder();
}

int main(int argc, char **argv)
{
    ctx = cloob_ctx_create(NULL);
    folder = argc > 1 ? argv[1] : TESTS_DIR "/ref/objective";
    RUN(ref_gives_the_frozen_values);
    RUN(cpu_gives_the_frozen_values);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
