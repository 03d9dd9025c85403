/* Runs through the public call: stopped, killed, damaged and resumed, they end with the very bytes of a run
 * that was left alone. Every run is a process of its own, so that it can be killed. */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cloob/train.h"
#include "core/file.h"
#include "model/weights.h"

static cloob_ctx *ctx;
static char logs[256];

enum { STEPS = 20, PER_EPOCH = 8 };

typedef struct plan {
    const char *name, *resume;
    int64_t stop_at;    /* asked to stop after this many steps; 0: never */
    int64_t limit_at;   /* from this step on files may not grow beyond 64 KiB: a full disk; 0: never */
    int64_t batch;      /* 8 */
    const char *memory; /* what is stored; NULL: the batch */
    bool packed;        /* texts packed to their length */
    int64_t seen;
} plan;

static bool between_steps(void *user)
{
    plan *p = user;
    p->seen++;
    if (p->limit_at && p->seen == p->limit_at) {
        struct rlimit small = { 1 << 16, 1 << 16 };
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
    }
    return p->stop_at && p->seen >= p->stop_at;
}

static cloob_status train(plan *p)
{
    cloob_train_options o;
    cloob_train_summary s;
    cloob_ctx *own = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    cloob_train_options_init(&o);
    o.data.type = "synthetic";
    o.train_num_samples = 8 * PER_EPOCH;
    o.model = "tiny-rn"; /* batch norm: running statistics must come back, too */
    o.force_image_size = 32;
    o.vocab_size = 540;
    o.batch_size = p->batch ? p->batch : 8;
    o.epochs = 32;
    o.max_steps = STEPS;
    o.warmup = 4;
    o.workers = 1;
    o.logs = logs;
    o.name = p->name;
    o.resume = p->resume;
    o.save_every = "5steps";
    if (p->memory) o.memory = p->memory;
    o.pack_texts = p->packed;
    o.device = "cpu";
    o.learnable_inv_tau = true;
    o.should_stop = between_steps;
    o.stop_user = p;
    cloob_status status = cloob_train(own, &o, &s);
    if (status != CLOOB_OK && status != CLOOB_ERR_STOPPED) printf("  (child) %s\n", cloob_error(own));
    fflush(stdout);
    cloob_ctx_destroy(own);
    return status;
}

static pid_t begin(plan p)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit((int)train(&p));
    return child;
}

/* The status of a run that ended by itself; -1: it was killed. */
static int end(pid_t child)
{
    int how;
    waitpid(child, &how, 0);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static int run_to_end(plan p) { return end(begin(p)); }

static const char *file_of(const char *name, const char *checkpoint)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, 512, "%s/%s/checkpoints/%s.safetensors", logs, name, checkpoint);
    return p;
}

static bool same_checkpoint(const char *a, const char *b)
{
    weights x, y;
    bool same = true;
    if (weights_read_native(ctx, a, &x) != CLOOB_OK) return false;
    if (weights_read_native(ctx, b, &y) != CLOOB_OK) return weights_release(&x), false;
    same = x.count == y.count && x.count > 100;
    for (int64_t i = 0; same && i < x.count; i++) {
        const tensor *t = weights_find(&y, x.entry[i].name);
        same = t && tensor_bytes(t) == tensor_bytes(&x.entry[i].t) &&
               memcmp(t->data, x.entry[i].t.data, tensor_bytes(t)) == 0;
        if (!same) printf("  %s differs\n", x.entry[i].name);
    }
    static const char *const keys[] = { "train.updates", "train.epoch", "train.step_in_epoch", "train.logit_inv_tau",
                                        "digest.train" };
    for (int k = 0; k < 5 && same; k++)
        same = strcmp(weights_get_meta(&x, keys[k]), weights_get_meta(&y, keys[k])) == 0;
    weights_release(&x);
    weights_release(&y);
    return same;
}

static bool ends_as_whole(const char *name)
{
    return same_checkpoint(file_of("whole", "latest"), file_of(name, "latest"));
}

static void a_whole_run(void)
{
    CHECK(run_to_end((plan){ .name = "whole" }) == CLOOB_OK);
    CHECK(run_to_end((plan){ .name = "again" }) == CLOOB_OK);
    CHECK(ends_as_whole("again"));
    CHECK(run_to_end((plan){ .name = "whole" }) == CLOOB_ERR_ARGUMENT); /* the name is taken */
}

/* Inside an epoch, at its last step, and twice. */
static void stopped_runs_resume_exactly(void)
{
    CHECK(run_to_end((plan){ .name = "stopped", .stop_at = 3 }) == CLOOB_ERR_STOPPED);
    CHECK(run_to_end((plan){ .name = "stopped", .resume = "latest", .stop_at = 5 }) == CLOOB_ERR_STOPPED);
    CHECK(run_to_end((plan){ .name = "stopped", .resume = "latest", .stop_at = 2 }) == CLOOB_ERR_STOPPED);
    CHECK(run_to_end((plan){ .name = "stopped", .resume = "latest" }) == CLOOB_OK);
    CHECK(ends_as_whole("stopped"));
    CHECK(run_to_end((plan){ .name = "stopped", .resume = "latest" }) == CLOOB_OK); /* nothing left to do */
    CHECK(ends_as_whole("stopped"));
}

static void nap(long microseconds) { nanosleep(&(struct timespec){ 0, microseconds * 1000 }, NULL); }

static void killed_runs_resume_exactly(void)
{
    unsigned state = 12345;
    int kills = 0;
    pid_t child = begin((plan){ .name = "killed" });
    for (int i = 0; i < 60000 && !file_exists(file_of("killed", "latest")); i++) nap(2000);
    CHECK(file_exists(file_of("killed", "latest")));
    for (int round = 0; round < 6; round++) {
        state = state * 1103515245u + 12345u;
        nap((long)(state >> 16) % 120000);
        kill(child, SIGKILL);
        if (end(child) == -1) kills++;
        child = begin((plan){ .name = "killed", .resume = "latest" });
    }
    CHECK(end(child) == CLOOB_OK);
    printf("  killed %d times\n", kills);
    CHECK(ends_as_whole("killed"));
}

static void damage(const char *path, long at)
{
    int f = open(path, O_WRONLY);
    struct stat st;
    CHECK(f >= 0 && fstat(f, &st) == 0);
    if (f < 0) return;
    if (at < 0) CHECK(ftruncate(f, st.st_size + at) == 0);
    else CHECK(pwrite(f, "\x55\xAA", 2, st.st_size - at) == 2);
    close(f);
}

/* latest is a second name of the newest checkpoint: damaging it damages both; the one before is found. */
static void a_damaged_checkpoint_is_passed_over(void)
{
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "cut" : "flipped";
        CHECK(run_to_end((plan){ .name = name, .stop_at = 9 }) == CLOOB_ERR_STOPPED);
        damage(file_of(name, "latest"), k ? -1000 : 2000);
        CHECK(run_to_end((plan){ .name = name, .resume = file_of(name, "latest") }) == CLOOB_ERR_FORMAT);
        CHECK(run_to_end((plan){ .name = name, .resume = "latest" }) == CLOOB_OK);
        CHECK(ends_as_whole(name));
    }
}

static void a_full_disk_leaves_the_last_checkpoint(void)
{
    CHECK(run_to_end((plan){ .name = "full", .limit_at = 7 }) == CLOOB_ERR_IO);
    CHECK(run_to_end((plan){ .name = "full", .resume = "latest" }) == CLOOB_OK);
    CHECK(ends_as_whole("full"));
}

/* Another batch: the place inside the epoch is kept in samples. 3 steps of 8 pairs are 6 of 4. */
static void another_batch_resumes_at_the_same_sample(void)
{
    weights w;
    CHECK(run_to_end((plan){ .name = "batch", .stop_at = 3 }) == CLOOB_ERR_STOPPED);
    CHECK(run_to_end((plan){ .name = "batch", .resume = "latest", .batch = 4, .stop_at = 1 }) == CLOOB_ERR_STOPPED);
    CHECK_OK(ctx, weights_read_native(ctx, file_of("batch", "latest"), &w));
    CHECK_STR(weights_get_meta(&w, "train.step_in_epoch"), "7");
    CHECK_STR(weights_get_meta(&w, "train.updates"), "4");
    weights_release(&w);
}

/* A queue is part of the state: 20 rows, so that it is caught while it fills and after it wrapped. */
static void a_queue_resumes_exactly(void)
{
    plan p = { .name = "queue", .memory = "queue:20" }, q = { .name = "requeue", .memory = "queue:20" };
    CHECK(run_to_end(p) == CLOOB_OK);
    CHECK(!same_checkpoint(file_of("whole", "latest"), file_of("queue", "latest")));
    for (int k = 0; k < 3; k++) {
        static const int64_t stops[] = { 2, 5, 6 };
        q.stop_at = stops[k];
        CHECK(run_to_end(q) == CLOOB_ERR_STOPPED);
        q.resume = "latest";
    }
    q.stop_at = 0;
    CHECK(run_to_end(q) == CLOOB_OK);
    CHECK(same_checkpoint(file_of("queue", "latest"), file_of("requeue", "latest")));
}

/* Packed texts are the same run to rounding, and the same bytes again when it resumes. */
static void packed_texts_resume_exactly(void)
{
    plan p = { .name = "packed", .packed = true }, q = { .name = "repacked", .packed = true, .stop_at = 7 };
    CHECK(run_to_end(p) == CLOOB_OK);
    CHECK(run_to_end(q) == CLOOB_ERR_STOPPED);
    q.resume = "latest", q.stop_at = 0;
    CHECK(run_to_end(q) == CLOOB_OK);
    CHECK(same_checkpoint(file_of("packed", "latest"), file_of("repacked", "latest")));
}

/* Another length, none, and one where there was none: said in the log, and gone on with. */
static void a_run_may_change_what_it_stores(void)
{
    static const char *const memory[] = { "queue:20", "queue:12", "batch", "queue:12" };
    plan p = { .name = "changed", .stop_at = 4 };
    for (int k = 0; k < 4; k++) {
        p.memory = memory[k];
        CHECK(run_to_end(p) == CLOOB_ERR_STOPPED);
        p.resume = "latest";
    }
    weights w;
    CHECK_OK(ctx, weights_read_native(ctx, file_of("changed", "latest"), &w));
    CHECK_STR(weights_get_meta(&w, "train.updates"), "16");
    CHECK(weights_find(&w, "train.queue.text") && weights_find(&w, "train.queue.text")->dim[0] == 12);
    weights_release(&w);
}

/* Two processes in one folder would write over each other; a killed one leaves nothing in the way. */
static void one_process_trains_in_a_folder(void)
{
    pid_t child = begin((plan){ .name = "locked" });
    for (int i = 0; i < 4000 && !file_exists(file_of("locked", "latest")); i++) nap(2000);
    kill(child, SIGSTOP);
    CHECK(run_to_end((plan){ .name = "locked", .resume = "latest" }) == CLOOB_ERR_IO);
    kill(child, SIGKILL);
    end(child);
    CHECK(run_to_end((plan){ .name = "locked", .resume = "latest" }) == CLOOB_OK);
    CHECK(ends_as_whole("locked"));
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    scratch_folder(logs, sizeof logs);
    RUN(a_whole_run);
    RUN(stopped_runs_resume_exactly);
    RUN(killed_runs_resume_exactly);
    RUN(a_damaged_checkpoint_is_passed_over);
    RUN(a_full_disk_leaves_the_last_checkpoint);
    RUN(another_batch_resumes_at_the_same_sample);
    RUN(a_queue_resumes_exactly);
    RUN(packed_texts_resume_exactly);
    RUN(a_run_may_change_what_it_stores);
    RUN(one_process_trains_in_a_folder);
    check_remove(logs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
