/* The life of a run as a random sequence of events, against an oracle that counts samples.
 *
 * Events: train on (some steps, then a stop), a kill at a random line of the log, another batch, more epochs, another
 * order of saving, a checkpoint deleted, and at the end a run to its end. After each, the oracle knows where the run
 * must stand: the place moves only forwards from the checkpoint that was resumed from, the end is at the last epoch
 * whatever the batches were, and every epoch that was due has one line of results. A sequence that fails is cut down to
 * the fewest events that still fail.
 *
 *     test_life [SEQUENCES [SEED]]         8 sequences by default; thousands by hand */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cloob/train.h"
#include "core/file.h"
#include "core/rng.h"
#include "model/weights.h"

static cloob_ctx *ctx;
static char logs[256];

enum { SAMPLES = 48, MAX_EVENTS = 15 };

typedef enum event_kind { STEPS, KILL, BATCH, EXTEND, FREQUENCY, DELETE, KINDS } event_kind;

typedef struct event {
    event_kind kind;
    int64_t value;
} event;

typedef struct life {
    int64_t batch, epochs, save_frequency;
    bool begun;
} life;

/* ---- one process of the run ---------------------------------------------------------------------- */

typedef struct orders {
    int64_t stop_after, steps; /* asked to stop after so many steps */
    int64_t kill_at, lines;    /* killed at this line of the log; 0: never */
} orders;

static bool between_steps(void *user)
{
    orders *o = user;
    return o->stop_after && ++o->steps >= o->stop_after;
}

static void on_line(void *user, cloob_log_level level, const char *line)
{
    orders *o = user;
    (void)level, (void)line;
    if (o->kill_at && ++o->lines >= o->kill_at) kill(getpid(), SIGKILL);
}

static cloob_status train(const life *l, orders *do_, const char *name)
{
    cloob_train_options o;
    cloob_ctx *own = cloob_ctx_create(&(cloob_ctx_options){ .threads = 1, .log = on_line, .log_user = do_ });
    cloob_train_options_init(&o);
    o.data.type = "synthetic";
    o.train_num_samples = SAMPLES;
    o.val_data = "synthetic", o.val_num_samples = 4;
    o.model = "tiny-rn";
    o.force_image_size = 32;
    o.vocab_size = 540;
    o.batch_size = l->batch;
    o.batch_size_eval = 4;
    o.epochs = l->epochs;
    o.warmup = 2;
    o.workers = 0;
    o.save_frequency = l->save_frequency;
    o.save_every = "2steps";
    o.report_to = "none";
    o.log_every_n_steps = 1;
    o.logs = logs, o.name = name;
    o.resume = l->begun ? "latest" : NULL;
    o.device = "cpu";
    o.should_stop = between_steps, o.stop_user = do_;
    cloob_status status = cloob_train(own, &o, NULL);
    if (status != CLOOB_OK && status != CLOOB_ERR_STOPPED) fprintf(stderr, "  (run) %s\n", cloob_error(own));
    cloob_ctx_destroy(own);
    return status;
}

/* The status; -1: killed. */
static int run(const life *l, orders o, const char *name)
{
    int how;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit((int)train(l, &o, name));
    waitpid(child, &how, 0);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

/* ---- what is on disk ------------------------------------------------------------------------------ */

typedef struct place {
    int64_t epoch, samples, updates;
    bool there;
} place;

static const char *file_of(const char *name, const char *file)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, 512, "%s/%s/checkpoints/%s", logs, name, file);
    return p;
}

static place look(const char *name)
{
    weights w;
    if (!file_exists(file_of(name, "latest.safetensors")) ||
        weights_read_native(ctx, file_of(name, "latest.safetensors"), &w) != CLOOB_OK)
        return (place){ 0 };
    place p = { atoll(weights_get_meta(&w, "train.epoch")), atoll(weights_get_meta(&w, "train.samples_in_epoch")),
                atoll(weights_get_meta(&w, "train.updates")), true };
    weights_release(&w);
    return p;
}

/* Lines of results of an epoch. */
static int results_of(const char *name, int64_t epoch)
{
    file_bytes b;
    char mark[48];
    int n = 0;
    snprintf(mark, sizeof mark, "\"epoch\": %lld}\n", (long long)epoch);
    if (!file_exists(file_of(name, "results.jsonl")) ||
        file_read(ctx, file_of(name, "results.jsonl"), 1 << 24, &b) != CLOOB_OK)
        return 0;
    for (const char *at = b.data; (at = strstr(at, mark)); at++) n++;
    file_bytes_release(&b);
    return n;
}

/* ---- a sequence ----------------------------------------------------------------------------------- */

static const int64_t batches[] = { 4, 6, 8, 12, 16, 24 };

static event draw(uint64_t key, int64_t i)
{
    uint64_t a = rng_u64(key, (uint64_t)(2 * i)), b = rng_u64(key, (uint64_t)(2 * i + 1));
    return (event){ (event_kind)(a % KINDS), (int64_t)(b % 1000) };
}

/* NULL, or what is wrong. */
static const char *apply(life *l, const event *e, const char *name)
{
    place before = look(name), after;
    int code = 0;
    switch (e->kind) {
    case BATCH: l->batch = batches[e->value % 6]; return NULL;
    case EXTEND: l->epochs += e->value % 2; return NULL;
    case FREQUENCY: l->save_frequency = e->value % 3; return NULL;
    case DELETE:
        if (before.there) unlink(file_of(name, e->value % 2 ? "recent.safetensors" : "interrupted.safetensors"));
        return NULL;
    case STEPS: code = run(l, (orders){ .stop_after = 1 + e->value % 9 }, name); break;
    default: code = run(l, (orders){ .kill_at = 1 + e->value % 40 }, name);
    }
    after = look(name);
    if (after.there) l->begun = true;
    if (code != CLOOB_OK && code != CLOOB_ERR_STOPPED && code != -1) return "it failed";
    if (e->kind == KILL && !after.there &&
        access(file_of(name, ""), F_OK) == 0) { /* killed before its first checkpoint */
        char command[600];
        snprintf(command, sizeof command, "rm -rf '%s/%s'", logs, name);
        if (system(command) != 0) return "cannot clean up";
        l->begun = false;
        return NULL;
    }
    if (after.there && (after.updates < before.updates || after.epoch < before.epoch)) return "it went backwards";
    if (after.there && after.epoch > l->epochs) return "it trained past the end";
    if (after.there && after.samples > SAMPLES) return "its place is outside the epoch";
    if (code == CLOOB_OK && after.epoch != l->epochs) return "it says done before the end";
    return NULL;
}

static const char *finish(life *l, const char *name)
{
    if (run(l, (orders){ 0 }, name) != CLOOB_OK) return "the last part failed";
    l->begun = true;
    place p = look(name);
    if (!p.there || p.epoch != l->epochs || p.samples != 0) return "it did not end at its last epoch";
    for (int64_t e = 1; e <= l->epochs; e++)
        if (results_of(name, e) != 1)
            return results_of(name, e) ? "an epoch was evaluated twice" : "an epoch was not evaluated";
    if (run(l, (orders){ 0 }, name) != CLOOB_OK) return "resuming a finished run failed";
    return look(name).updates == p.updates ? NULL : "a finished run went on";
}

static const char *live(const event *e, int n, char *name, size_t size)
{
    static int count;
    life l = { .batch = 8, .epochs = 2, .save_frequency = 1 };
    const char *why = NULL;
    snprintf(name, size, "life-%d", count++);
    for (int i = 0; i < n && !why; i++) why = apply(&l, &e[i], name);
    if (!why) why = finish(&l, name);
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s/%s'", logs, name);
    if (system(command) != 0) why = "cannot clean up";
    return why;
}

/* Leaves out one event after the other as long as the rest still fails. */
static int minimise(event *e, int n)
{
    char name[32];
    for (int i = 0; i < n;) {
        event less[MAX_EVENTS];
        for (int k = 0, to = 0; k < n; k++)
            if (k != i) less[to++] = e[k];
        if (live(less, n - 1, name, sizeof name)) memcpy(e, less, (size_t)--n * sizeof *e);
        else i++;
    }
    return n;
}

static int sequences = 8;
static uint64_t seed = 1;

static void lives_end_where_they_must(void)
{
    static const char *const words[KINDS] = { "steps", "kill", "batch", "extend", "frequency", "delete" };
    int64_t events = 0, kills = 0;
    for (int s = 0; s < sequences; s++) {
        event e[MAX_EVENTS];
        char name[32];
        uint64_t key = rng_key(seed + (uint64_t)s, "life");
        int n = 5 + (int)(rng_u64(key, 1000) % 11);
        for (int i = 0; i < n; i++) e[i] = draw(key, i), kills += e[i].kind == KILL;
        events += n;
        const char *why = live(e, n, name, sizeof name);
        CHECK(why == NULL);
        if (!why) continue;
        n = minimise(e, n);
        printf("  seed %llu: %s:", (unsigned long long)(seed + (uint64_t)s), why);
        for (int i = 0; i < n; i++) printf(" %s(%lld)", words[e[i].kind], (long long)e[i].value);
        printf("\n");
        fflush(stdout);
    }
    printf("  %d sequences, %lld events, %lld kills\n", sequences, (long long)events, (long long)kills);
}

int main(int argc, char **argv)
{
    ctx = cloob_ctx_create(NULL);
    if (argc > 1) sequences = atoi(argv[1]);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    snprintf(logs, sizeof logs, "%s/cloob-test-life-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(logs)) return 1;
    RUN(lives_end_where_they_must);
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", logs);
    if (system(command) != 0) printf("  %s is left\n", logs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
