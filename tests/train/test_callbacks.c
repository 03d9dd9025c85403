/* The callbacks of a run: a loss of the caller's own against the same loss of the library, alone and with ranks
 * (under mpirun); what steps and epochs report. */
#include "check.h"

#include <unistd.h>

#include "cloob/cloob.h"
#include "dist/comm.h"
#include "model/weights.h"

static cloob_ctx *ctx;
static comm *all;
static char logs[256], model[300];

enum { SAMPLES = 48, BATCH = 8, EPOCHS = 2 };

/* ---- what is passed to a run --------------------------------------------------------------------- */

typedef struct told {
    int64_t losses, validations, steps, epochs, fail_at;
    bool wrong; /* the gradients have the other sign */
    double loss[64], last_inv_tau;
    char metrics[2048];
} told;

/* InfoLOOB by the library's own function. */
static bool infoloob(void *user, cloob_loss_call *c)
{
    told *t = user;
    cloob_objective_options o;
    cloob_objective_result r;
    cloob_objective_options_init(&o);
    o.method = CLOOB_METHOD_INFOLOOB, o.device = "cpu", o.inv_tau = c->inv_tau;
    cloob_pairs e = { .x = c->x, .y = c->y, .n = c->n, .d = c->d };
    cloob_gradients g = { .dx = c->dx, .dy = c->dy };
    CHECK(c->size == sizeof *c && c->n == (c->dx ? BATCH : c->n));
    CHECK(!c->dx == !c->dy);
    if (c->dx) CHECK(c->step == t->losses++);
    else t->validations++;
    if (c->dx) CHECK(c->dx[0] == 0 && c->dy[c->n * c->d - 1] == 0);
    CHECK_OK(ctx, cloob_objective(ctx, &o, &e, c->dx ? &g : NULL, &r));
    c->loss = r.loss;
    c->dinv_tau = (r.dsum_dinv_tau - r.loss) / c->inv_tau;
    for (int64_t i = 0; i < c->n * c->d && c->dx && t->wrong; i++) c->dx[i] = -c->dx[i], c->dy[i] = -c->dy[i];
    return t->fail_at == 0 || t->losses < t->fail_at;
}

static void on_step(void *user, const cloob_train_step *s)
{
    told *t = user;
    CHECK(s->size == sizeof *s && s->step == t->steps + 1 && s->steps == EPOCHS * SAMPLES / BATCH);
    CHECK(s->epoch == t->steps / (SAMPLES / BATCH) + 1 && !s->skipped && s->grad_norm > 0);
    if (t->steps < 64) t->loss[t->steps] = s->loss;
    t->last_inv_tau = s->inv_tau;
    t->steps++;
}

static void on_epoch(void *user, const cloob_train_epoch *e)
{
    told *t = user;
    CHECK(e->size == sizeof *e && e->epoch == ++t->epochs && e->epochs == EPOCHS && e->step == t->steps);
    CHECK(e->loss == t->loss[t->steps - 1] && strstr(e->checkpoint, ".safetensors"));
    CHECK(!e->metrics == (comm_rank(all) != 0));
    snprintf(t->metrics, sizeof t->metrics, "%s", e->metrics ? e->metrics : "");
}

/* ---- runs ---------------------------------------------------------------------------------------- */

static cloob_train_options options_of(const char *name, told *t)
{
    cloob_train_options o;
    cloob_train_options_init(&o);
    o.data.type = "synthetic";
    o.train_num_samples = SAMPLES;
    o.val_data = "synthetic", o.val_num_samples = 11;
    o.model = model, o.vocab_size = 540;
    o.batch_size = BATCH / comm_size(all), o.epochs = EPOCHS, o.warmup = 2;
    o.batch_size_eval = 4, o.workers = 0;
    o.init_inv_tau = 14.3, o.learnable_inv_tau = true;
    o.method = "infoloob", o.report_to = "none", o.device = "cpu";
    o.logs = logs, o.name = name;
    o.on_step = on_step, o.step_user = t;
    o.on_epoch = on_epoch, o.epoch_user = t;
    return o;
}

static void weights_of(const char *name, weights *w)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/checkpoints/latest.safetensors", logs, name);
    weights_init(w);
    CHECK_OK(ctx, weights_read_native(ctx, path, w));
}

/* The largest difference of two runs' tensors. */
static double apart(const char *a, const char *b)
{
    weights x, y;
    double most = 0;
    weights_of(a, &x), weights_of(b, &y);
    CHECK(x.count == y.count && x.count > 0);
    for (int i = 0; i < x.count && i < y.count; i++) {
        int64_t n = tensor_count(&x.entry[i].t);
        const float *p = x.entry[i].t.data, *q = y.entry[i].t.data;
        for (int64_t k = 0; k < n && x.entry[i].t.dtype == CLOOB_F32; k++)
            most = fmax(most, fabs((double)p[k] - (double)q[k]));
    }
    weights_release(&x), weights_release(&y);
    return most;
}

static void the_same_loss_gives_the_same_run(void)
{
    told ours = { 0 }, own = { 0 }, wrong = { .wrong = true };
    cloob_train_options o = options_of("ours", &ours);
    CHECK_OK(ctx, cloob_train(ctx, &o, NULL));
    o = options_of("own", &own);
    o.loss = infoloob, o.loss_user = &own;
    CHECK_OK(ctx, cloob_train(ctx, &o, NULL));
    o = options_of("wrong", &wrong);
    o.loss = infoloob, o.loss_user = &wrong;
    CHECK_OK(ctx, cloob_train(ctx, &o, NULL));
    CHECK(own.steps == EPOCHS * SAMPLES / BATCH && own.losses == own.steps && own.epochs == EPOCHS);
    CHECK(comm_rank(all) != 0 || own.validations == EPOCHS * 2); /* 11 pairs: 8 and 3 */
    for (int64_t i = 0; i < own.steps; i++) CHECK_NEAR(own.loss[i], ours.loss[i], 1e-5);
    CHECK_NEAR(own.last_inv_tau, ours.last_inv_tau, 1e-6);
    CHECK(fabs(ours.last_inv_tau - 14.3) > 1e-4); /* it is learned */
    if (comm_rank(all) != 0) return;
    CHECK(strstr(own.metrics, "\"val_loss\": ") && strstr(own.metrics, "\"epoch\": 2}"));
    CHECK(apart("own", "ours") < 1e-5);
    CHECK(apart("wrong", "ours") > 1e-4);
}

static void what_cannot_go_with_it_is_refused(void)
{
    told t = { .fail_at = 3 };
    cloob_train_options o = options_of("failing", &t);
    o.loss = infoloob, o.loss_user = &t;
    cloob_status status = cloob_train(ctx, &o, NULL);
    CHECK(status == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "`loss`: the function failed at step 3"));
    o.name = "siglip", o.method = "siglip";
    CHECK(cloob_train(ctx, &o, NULL) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "siglip"));
    o.method = "cloob", o.memory = "queue:16";
    CHECK(cloob_train(ctx, &o, NULL) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "memory"));
    o.memory = "batch", o.learnable_scale_hopfield = true;
    CHECK(cloob_train(ctx, &o, NULL) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "learnable_scale_hopfield"));
    o = options_of("own", &t);
    o.resume = "latest", o.epochs = EPOCHS + 1;
    CHECK(cloob_train(ctx, &o, NULL) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "give its `loss` again"));
}

static void settings_have_names(void)
{
    cloob_train_options o;
    cloob_train_options_init(&o);
    CHECK_OK(ctx, cloob_train_options_set(ctx, &o, "batch-size", "12"));
    CHECK_OK(ctx, cloob_train_options_set(ctx, &o, "lock_image", "True"));
    CHECK_OK(ctx, cloob_train_options_set(ctx, &o, "lr", "0.25"));
    CHECK(o.batch_size == 12 && o.lock_image && o.lr == 0.25);
    CHECK(cloob_train_options_set(ctx, &o, "batch-size", "none") == CLOOB_ERR_ARGUMENT);
    CHECK(cloob_train_options_set(ctx, &o, "batch-size", "0") == CLOOB_ERR_ARGUMENT);
    CHECK(o.batch_size == 12); /* left as it was */
    CHECK(cloob_train_options_set(ctx, &o, "no-such", "1") == CLOOB_ERR_ARGUMENT);
}

static const char small[] =
    "{\"embed_dim\":8,\"vision_cfg\":{\"image_size\":16,\"layers\":1,\"width\":8,\"head_width\":4,\"patch_size\":8},"
    "\"text_cfg\":{\"context_length\":8,\"vocab_size\":540,\"width\":8,\"heads\":2,\"layers\":1}}";

int main(void)
{
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (comm_create(ctx, &all) != CLOOB_OK) return 1; /* a run inside does not end MPI */
    const char *where = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    long key = (long)(comm_size(all) > 1 ? getppid() : getpid()); /* the ranks share one folder */
    snprintf(logs, sizeof logs, "%s/cloob-test-callbacks-%ld", where, key);
    snprintf(model, sizeof model, "%s-%d.json", logs, comm_rank(all));
    FILE *f = fopen(model, "w");
    if (!f || fputs(small, f) < 0 || fclose(f) != 0) return 1;
    RUN(the_same_loss_gives_the_same_run);
    if (comm_size(all) == 1) RUN(what_cannot_go_with_it_is_refused);
    RUN(settings_have_names);
    unlink(model);
    comm_barrier(ctx, all);
    if (comm_rank(all) == 0) check_remove(logs);
    comm_destroy(all);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
