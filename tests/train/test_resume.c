/* The place in a run, and what a finished epoch owes: runs that are stopped, killed at a chosen line of their log, and
 * resumed with another batch end where an undisturbed run ends, with every evaluation made once. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cloob/train.h"
#include "core/file.h"
#include "model/weights.h"

static cloob_ctx *ctx;
static char logs[256];

typedef struct plan {
    const char *name, *resume;
    int64_t batch, epochs, max_steps;
    const char *killed_at; /* the process dies when its log prints this; NULL: never */
    bool validates, deletes;
    int64_t schedule_steps;
} plan;

static void log_or_die(void *user, cloob_log_level level, const char *line)
{
    const plan *p = user;
    (void)level;
    if (p->killed_at && strstr(line, p->killed_at)) kill(getpid(), SIGKILL);
}

static cloob_status train(plan *p)
{
    cloob_train_options o;
    cloob_train_summary s;
    cloob_ctx *own = cloob_ctx_create(
        &(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1, .log = log_or_die, .log_user = p });
    cloob_train_options_init(&o);
    o.data.type = "synthetic";
    o.train_num_samples = 48;
    if (p->validates) o.val_data = "synthetic", o.val_num_samples = 8;
    o.model = "tiny-rn";
    o.force_image_size = 32;
    o.vocab_size = 540;
    o.batch_size = p->batch;
    o.batch_size_eval = 8;
    o.epochs = p->epochs;
    o.max_steps = p->max_steps;
    o.schedule_steps = p->schedule_steps;
    o.warmup = 2;
    o.workers = 0;
    o.logs = logs;
    o.name = p->name;
    o.resume = p->resume;
    o.delete_previous_checkpoint = p->deletes;
    o.device = "cpu";
    cloob_status status = cloob_train(own, &o, &s);
    if (status != CLOOB_OK && status != CLOOB_ERR_STOPPED) printf("  (child) %s\n", cloob_error(own));
    fflush(stdout);
    cloob_ctx_destroy(own);
    return status;
}

/* The status of a run that ended by itself; -1: it was killed. */
static int run(plan p)
{
    int how;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit((int)train(&p));
    waitpid(child, &how, 0);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static const char *file_of(const char *name, const char *file)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, 512, "%s/%s/checkpoints/%s", logs, name, file);
    return p;
}

static long meta_of(const char *name, const char *key)
{
    weights w;
    if (weights_read_native(ctx, file_of(name, "latest.safetensors"), &w) != CLOOB_OK) return -1;
    const char *text = weights_get_meta(&w, key);
    long n = text ? atol(text) : -1;
    weights_release(&w);
    return n;
}

/* 48 pairs: 6 steps of 8 or 3 steps of 16 an epoch. */
static void the_end_survives_two_changes_of_batch(void)
{
    CHECK(run((plan){ .name = "wider", .batch = 8, .epochs = 10, .max_steps = 36 }) == CLOOB_OK);
    CHECK(run((plan){ .name = "wider", .batch = 16, .epochs = 10, .max_steps = 40, .resume = "latest" }) == CLOOB_OK);
    CHECK(meta_of("wider", "train.epoch") == 7 && meta_of("wider", "train.step_in_epoch") == 1);
    CHECK(run((plan){ .name = "wider", .batch = 16, .epochs = 10, .resume = "latest" }) == CLOOB_OK);
    CHECK(meta_of("wider", "train.epoch") == 10 && meta_of("wider", "train.step_in_epoch") == 0);
    CHECK(meta_of("wider", "train.updates") == 36 + 4 * 3);
}

static void a_smaller_batch_does_not_train_past_the_end(void)
{
    CHECK(run((plan){ .name = "narrower", .batch = 16, .epochs = 4, .max_steps = 6 }) == CLOOB_OK);
    CHECK(run((plan){ .name = "narrower", .batch = 8, .epochs = 4, .max_steps = 9, .resume = "latest" }) == CLOOB_OK);
    CHECK(run((plan){ .name = "narrower", .batch = 8, .epochs = 4, .resume = "latest" }) == CLOOB_OK);
    CHECK(meta_of("narrower", "train.epoch") == 4);
    CHECK(meta_of("narrower", "train.updates") == 6 + 2 * 6);
    CHECK(run((plan){ .name = "narrower", .batch = 8, .epochs = 4, .resume = "latest" }) == CLOOB_OK);
    CHECK(meta_of("narrower", "train.updates") == 6 + 2 * 6);
}

/* 40 of 48 pairs are done, and no batch of 32 is left: the epoch ends and is evaluated, without a step. */
static void an_epoch_without_a_whole_batch_left_ends(void)
{
    CHECK(run((plan){ .name = "rest", .batch = 8, .epochs = 1, .max_steps = 5, .validates = true }) == CLOOB_OK);
    CHECK(run((plan){ .name = "rest", .batch = 32, .epochs = 1, .resume = "latest", .validates = true }) == CLOOB_OK);
    CHECK(meta_of("rest", "train.epoch") == 1 && meta_of("rest", "train.updates") == 5);
}

static bool same_results(const char *a, const char *b)
{
    file_bytes x = { 0 }, y = { 0 };
    bool same = file_read(ctx, file_of(a, "results.jsonl"), 1 << 20, &x) == CLOOB_OK &&
                file_read(ctx, file_of(b, "results.jsonl"), 1 << 20, &y) == CLOOB_OK && x.size == y.size &&
                memcmp(x.data, y.data, x.size) == 0;
    if (!same) printf("  %s:\n%s  %s:\n%s", a, x.data ? x.data : "none\n", b, y.data ? y.data : "none\n");
    file_bytes_release(&x);
    file_bytes_release(&y);
    return same;
}

/* Killed after the save and before the evaluation, in the middle of the evaluation, and after it; in a middle epoch and
 * in the last; the results are those of a run that was left alone, each epoch once. */
static void an_evaluation_is_made_once(void)
{
    static const char *const moments[] = { "epoch_1.safetensors", "epoch_3.safetensors", "epoch 2: image to text",
                                           "epoch 3: validation loss", "done:" };
    CHECK(run((plan){ .name = "calm", .batch = 16, .epochs = 3, .validates = true }) == CLOOB_OK);
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "killed-%d", i);
        plan p = { .name = name, .batch = 16, .epochs = 3, .validates = true, .killed_at = moments[i] };
        CHECK(run(p) == -1);
        p.killed_at = NULL, p.resume = "latest";
        CHECK(run(p) == CLOOB_OK);
        CHECK(same_results("calm", name));
        CHECK(run(p) == CLOOB_OK); /* nothing is owed twice */
        CHECK(same_results("calm", name));
    }
}

/* The line was cut in the middle by a kill: it goes, and the evaluation is made again. */
static void half_a_result_is_replaced(void)
{
    plan p = { .name = "cut", .batch = 16, .epochs = 3, .validates = true };
    CHECK(run(p) == CLOOB_OK);
    file_bytes b;
    CHECK_OK(ctx, file_read(ctx, file_of("cut", "results.jsonl"), 1 << 20, &b));
    CHECK(truncate(file_of("cut", "results.jsonl"), (long)b.size - 20) == 0);
    file_bytes_release(&b);
    p.resume = "latest";
    CHECK(run(p) == CLOOB_OK);
    CHECK(same_results("calm", "cut"));
}

/* The file that the run was resumed from is a previous checkpoint, too. */
static void the_resumed_from_checkpoint_is_deleted(void)
{
    plan p = { .name = "lean", .batch = 16, .epochs = 4, .max_steps = 3, .deletes = true };
    CHECK(run(p) == CLOOB_OK);
    CHECK(file_exists(file_of("lean", "epoch_1.safetensors")));
    p.resume = "latest", p.max_steps = 6;
    CHECK(run(p) == CLOOB_OK);
    CHECK(file_exists(file_of("lean", "epoch_2.safetensors")) && file_exists(file_of("lean", "latest.safetensors")));
    CHECK(!file_exists(file_of("lean", "epoch_1.safetensors")));
}

/* Everything but the header, whose metadata hold the run's name. */
static bool same_weights(const char *a, const char *b)
{
    file_bytes x = { 0 }, y = { 0 };
    uint64_t skip_x = 0, skip_y = 0;
    bool same = file_read(ctx, file_of(a, "latest.safetensors"), 1 << 26, &x) == CLOOB_OK &&
                file_read(ctx, file_of(b, "latest.safetensors"), 1 << 26, &y) == CLOOB_OK;
    if (same) {
        memcpy(&skip_x, x.data, 8), memcpy(&skip_y, y.data, 8);
        same = x.size - skip_x == y.size - skip_y &&
               memcmp(x.data + 8 + skip_x, y.data + 8 + skip_y, x.size - 8 - skip_x) == 0;
    }
    file_bytes_release(&x);
    file_bytes_release(&y);
    return same;
}

/* Stopped in the middle of an epoch, twice, and at the end of one: neither the schedule nor the results tell. */
static void max_steps_is_a_stop_and_nothing_else(void)
{
    static const int64_t stops[] = { 2, 2, 4, 6, 0 };
    plan p = { .name = "stopped", .batch = 16, .epochs = 3, .validates = true };
    for (int i = 0; i < 5; i++) {
        p.max_steps = stops[i];
        CHECK(run(p) == CLOOB_OK);
        CHECK(meta_of("stopped", "train.updates") == (stops[i] ? stops[i] : 9));
        p.resume = "latest";
    }
    CHECK(same_weights("calm", "stopped"));
    CHECK(same_results("calm", "stopped"));
}

/* The end of the schedule is the end of the run; a run of as many epochs has the same learning rates. */
static void schedule_steps_shorten_the_run(void)
{
    plan p = { .name = "short", .batch = 16, .epochs = 9, .schedule_steps = 9, .validates = true };
    CHECK(run(p) == CLOOB_OK);
    CHECK(same_weights("calm", "short"));
    p.name = "short-stopped", p.max_steps = 4;
    CHECK(run(p) == CLOOB_OK);
    p.resume = "latest", p.max_steps = 0;
    CHECK(run(p) == CLOOB_OK);
    CHECK(same_weights("calm", "short-stopped"));
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    scratch_folder(logs, sizeof logs);
    RUN(the_end_survives_two_changes_of_batch);
    RUN(a_smaller_batch_does_not_train_past_the_end);
    RUN(an_epoch_without_a_whole_batch_left_ends);
    RUN(an_evaluation_is_made_once);
    RUN(half_a_result_is_replaced);
    RUN(max_steps_is_a_stop_and_nothing_else);
    RUN(schedule_steps_shorten_the_run);
    RUN(the_resumed_from_checkpoint_is_deleted);
    check_remove(logs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
