/* The life of a run as a random sequence of events, against an oracle that counts samples.
 *
 * Events: train on (some steps, then a stop), a kill at a random line of the log, another batch, other micro-batches,
 * another number of ranks, more epochs, another order of saving, a checkpoint deleted, a checkpoint damaged, and at the
 * end a run to its end. After each, the oracle knows where the run must stand: the place moves only forwards from the
 * newest whole checkpoint, the end is at the last epoch whatever the batches were, every epoch that was due has one
 * line of results, and a run without a whole checkpoint is refused with a line. A third of the lives keep their batch
 * and their end: these must finish with the bytes of an undisturbed run. A sequence that fails is cut down to the
 * fewest events that still fail.
 *
 *     test_life [SEQUENCES [SEED [MPIRUN]]]     12 sequences by default; thousands by hand; MPIRUN: also with two
 * ranks */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cloob/train.h"
#include "core/file.h"
#include "core/rng.h"
#include "model/digest.h"
#include "model/weights.h"
#include "train/checkpoint.h"

static cloob_ctx *ctx;
static char logs[256];
static const char *mpirun, *self;

enum { SAMPLES = 48, MAX_EVENTS = 15, KILLED = -1, CRASHED = -2 };

typedef enum event_kind { STEPS, KILL, FREQUENCY, DELETE, DAMAGE, BATCH, MICRO, RANKS, EXTEND, KINDS } event_kind;
enum { SAME_BYTES = BATCH }; /* events before this one leave the bytes of the result as they are */

static const char *const words[KINDS] = { "steps", "kill",  "frequency", "delete", "damage",
                                          "batch", "micro", "ranks",     "extend" };

typedef struct event {
    event_kind kind;
    int64_t value;
} event;

typedef struct life {
    int64_t batch, micro, ranks, epochs, save_frequency;
    bool begun;
    char name[32];
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

static const char small[] =
    "{\"embed_dim\":8,\"vision_cfg\":{\"image_size\":16,\"layers\":1,\"width\":8,\"head_width\":4,\"patch_size\":8},"
    "\"text_cfg\":{\"context_length\":8,\"vocab_size\":540,\"width\":8,\"heads\":2,\"layers\":1}}";

static cloob_status train(const life *l, orders *do_)
{
    cloob_train_options o;
    char model[300];
    cloob_ctx *own = cloob_ctx_create(
        &(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1, .log = on_line, .log_user = do_ });
    snprintf(model, sizeof model, "%s/small.json", logs);
    cloob_train_options_init(&o);
    o.data.type = "synthetic";
    o.train_num_samples = SAMPLES;
    o.val_data = "synthetic", o.val_num_samples = 4;
    o.model = model;
    o.vocab_size = 540;
    o.batch_size = l->batch / l->ranks;
    o.accum_freq = l->micro;
    o.batch_size_eval = 4;
    o.epochs = l->epochs;
    o.warmup = 2;
    o.workers = 0;
    o.save_frequency = l->save_frequency;
    o.save_every = "2steps";
    o.report_to = "none";
    o.log_every_n_steps = 1;
    o.logs = logs, o.name = l->name;
    o.resume = l->begun ? "latest" : NULL;
    o.device = "cpu";
    o.should_stop = between_steps, o.stop_user = do_;
    cloob_status status = cloob_train(own, &o, NULL);
    if (status != CLOOB_OK && status != CLOOB_ERR_STOPPED) fprintf(stderr, "%s\n", cloob_error(own));
    cloob_ctx_destroy(own);
    return status;
}

/* A rank of a run with several is this program again: test_life --rank and the numbers. */
static void exec_ranks(const life *l, const orders *o)
{
    char text[8][24], ranks[24];
    int64_t number[8] = { l->batch,          l->micro, l->ranks,   l->epochs,
                          l->save_frequency, l->begun, o->kill_at, o->stop_after };
    for (int i = 0; i < 8; i++) snprintf(text[i], sizeof text[i], "%lld", (long long)number[i]);
    snprintf(ranks, sizeof ranks, "%lld", (long long)l->ranks);
    execlp(mpirun, mpirun, "--allow-run-as-root", "--oversubscribe", "-np", ranks, self, "--rank", logs, l->name,
           text[0], text[1], text[2], text[3], text[4], text[5], text[6], text[7], (char *)NULL);
    _exit(99);
}

static int as_rank(char **argv)
{
    int64_t v[8];
    life l = { 0 };
    snprintf(logs, sizeof logs, "%s", argv[2]);
    snprintf(l.name, sizeof l.name, "%s", argv[3]);
    for (int i = 0; i < 8; i++) v[i] = atoll(argv[4 + i]);
    l.batch = v[0], l.micro = v[1], l.ranks = v[2], l.epochs = v[3], l.save_frequency = v[4], l.begun = v[5];
    return (int)train(&l, &(orders){ .kill_at = v[6], .stop_after = v[7] });
}

/* What it printed to stderr, for the reader of a failure. */
static char said[400];

/* The status, KILLED or CRASHED. */
static int run(const life *l, orders o)
{
    int how, ends[2];
    fflush(NULL);
    if (pipe(ends) != 0) return CRASHED;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2), dup2(ends[1], 1);
        if (l->ranks > 1) exec_ranks(l, &o);
        _exit((int)train(l, &o));
    }
    close(ends[1]);
    char rest[4096];
    ssize_t n = read(ends[0], said, sizeof said - 1);
    said[n > 0 ? n : 0] = '\0';
    while (read(ends[0], rest, sizeof rest) > 0) {}
    close(ends[0]);
    waitpid(child, &how, 0);
    if (WIFSIGNALED(how)) return WTERMSIG(how) == SIGKILL ? KILLED : CRASHED;
    return l->ranks > 1 && WEXITSTATUS(how) == 128 + SIGKILL ? KILLED : WEXITSTATUS(how);
}

/* ---- what is on disk ------------------------------------------------------------------------------ */

typedef struct place {
    int64_t epoch, samples, updates;
    bool there;
} place;

static const char *file_of(const life *l, const char *file)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, 512, "%s/%s/checkpoints/%s", logs, l->name, file);
    return p;
}

static place place_of(const char *path)
{
    weights w;
    place p = { 0 };
    if (weights_read_native(ctx, path, &w) != CLOOB_OK) return p;
    if (checkpoint_verify(ctx, path, &w) == CLOOB_OK && weights_get_meta(&w, "train.updates"))
        p = (place){ atoll(weights_get_meta(&w, "train.epoch")), atoll(weights_get_meta(&w, "train.samples_in_epoch")),
                     atoll(weights_get_meta(&w, "train.updates")), true };
    weights_release(&w);
    return p;
}

/* Two checkpoints may stand at one update: before and after the epoch was closed. */
static bool is_newer(const place *a, const place *b)
{
    return a->updates != b->updates ? a->updates > b->updates : a->epoch >= b->epoch;
}

/* The newest whole checkpoint; its path when wanted. */
static place look(const life *l, char found[512])
{
    place best = { 0 };
    DIR *d = opendir(file_of(l, ""));
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *end = strrchr(e->d_name, '.');
        if (!end || strcmp(end, ".safetensors") != 0) continue;
        place p = place_of(file_of(l, e->d_name));
        if (!p.there || (best.there && !is_newer(&p, &best))) continue;
        best = p;
        if (found) snprintf(found, 512, "%s", file_of(l, e->d_name));
    }
    if (d) closedir(d);
    return best;
}

/* Lines of results of an epoch. */
static int results_of(const life *l, int64_t epoch)
{
    file_bytes b;
    char mark[48];
    int n = 0;
    snprintf(mark, sizeof mark, "\"epoch\": %lld}\n", (long long)epoch);
    if (!file_exists(file_of(l, "results.jsonl")) ||
        file_read(ctx, file_of(l, "results.jsonl"), 1 << 24, &b) != CLOOB_OK)
        return 0;
    for (const char *at = b.data; (at = strstr(at, mark)); at++) n++;
    file_bytes_release(&b);
    return n;
}

/* Weights and state of the newest checkpoint, without the metadata. */
static void bytes_of(const life *l, char text[2 * DIGEST_TEXT])
{
    char path[512] = "";
    weights w;
    text[0] = '\0';
    if (!look(l, path).there || weights_read_native(ctx, path, &w) != CLOOB_OK) return;
    digest_input in = { .entry = w.entry, .count = w.count };
    if (digest_model(ctx, &in, text) == CLOOB_OK) digest_train(ctx, &in, text + strlen(text));
    weights_release(&w);
}

/* One byte in the middle of the newest checkpoint, or its second half. */
static void damage(const char *path, int64_t how)
{
    int fd = open(path, O_RDWR);
    if (fd < 0) return;
    off_t size = lseek(fd, 0, SEEK_END);
    unsigned char byte = 0;
    if (how % 2 && ftruncate(fd, size / 2) != 0) perror("ftruncate");
    if (how % 2 == 0 && pread(fd, &byte, 1, size * 3 / 4) == 1) {
        byte ^= 0x40;
        if (pwrite(fd, &byte, 1, size * 3 / 4) != 1) perror("pwrite");
    }
    close(fd);
}

static void forget(life *l)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s/%s'", logs, l->name);
    if (system(command) != 0) perror(command);
    l->begun = false;
}

/* ---- a sequence ----------------------------------------------------------------------------------- */

static const int64_t batches[] = { 4, 6, 8, 12, 16, 24 };

static event draw(uint64_t key, int64_t i, event_kind kinds)
{
    uint64_t a = rng_u64(key, (uint64_t)(2 * i)), b = rng_u64(key, (uint64_t)(2 * i + 1));
    return (event){ (event_kind)(a % (uint64_t)kinds), (int64_t)(b % 1000) };
}

/* The run is taken up again; NULL, or what is wrong. */
static const char *go_on(life *l, orders o)
{
    place before = look(l, NULL);
    int code = run(l, o);
    place after = look(l, NULL);
    if (code == CRASHED) return "it crashed";
    if (code == KILLED && !o.kill_at) return "it was killed by another";
    if (l->begun && !before.there) { /* no whole checkpoint is left: it must say so */
        if (code == CLOOB_OK || code == CLOOB_ERR_STOPPED) return "it went on from nothing";
        forget(l);
        return NULL;
    }
    if (after.there) l->begun = true;
    if (code == KILLED && !after.there) { /* before its first checkpoint */
        forget(l);
        return NULL;
    }
    if (code != CLOOB_OK && code != CLOOB_ERR_STOPPED && code != KILLED) return "it failed";
    if (after.there && (after.updates < before.updates || after.epoch < before.epoch)) return "it went backwards";
    if (after.there && after.epoch > l->epochs) return "it trained past the end";
    if (after.there && after.samples > SAMPLES) return "its place is outside the epoch";
    if (code == CLOOB_OK && after.epoch != l->epochs) return "it says done before the end";
    return NULL;
}

static const char *apply(life *l, const event *e)
{
    char path[512] = "";
    static const char *const names[] = { "recent", "interrupted", "latest", "epoch_1" };
    switch (e->kind) {
    case FREQUENCY: l->save_frequency = e->value % 3; return NULL;
    case BATCH: l->batch = batches[e->value % 6]; return NULL;
    case MICRO: l->micro = 1 + e->value % 2; return NULL;
    case RANKS: l->ranks = mpirun ? 1 + e->value % 2 : 1; return NULL;
    case EXTEND: l->epochs += e->value % 2; return NULL;
    case DELETE:
        snprintf(path, sizeof path, "%s.safetensors", names[e->value % 4]);
        unlink(file_of(l, path));
        return NULL;
    case DAMAGE:
        if (look(l, path).there) damage(path, e->value);
        return NULL;
    case STEPS: return go_on(l, (orders){ .stop_after = 1 + e->value % 9 });
    default: return go_on(l, (orders){ .kill_at = 1 + e->value % 40 });
    }
}

static const char *finish(life *l)
{
    if (l->begun && !look(l, NULL).there) forget(l);
    if (run(l, (orders){ 0 }) != CLOOB_OK) return "the last part failed";
    l->begun = true;
    place p = look(l, NULL);
    if (!p.there || p.epoch != l->epochs || p.samples != 0) {
        snprintf(said, sizeof said, "at epoch %lld, sample %lld, update %lld\n", (long long)p.epoch,
                 (long long)p.samples, (long long)p.updates);
        return "it did not end at its last epoch";
    }
    for (int64_t e = 1; e <= l->epochs; e++)
        if (results_of(l, e) != 1)
            return results_of(l, e) ? "an epoch was evaluated twice" : "an epoch was not evaluated";
    if (run(l, (orders){ 0 }) != CLOOB_OK) return "resuming a finished run failed";
    return look(l, NULL).updates == p.updates ? NULL : "a finished run went on";
}

/* Events for a run that begins with the batch of this number. */
static const char *live(const event *e, int n, int first, bool same_bytes)
{
    static char undisturbed[6][2 * DIGEST_TEXT];
    static int count;
    char bytes[2 * DIGEST_TEXT];
    life l = { .batch = batches[first], .micro = 1, .ranks = 1, .epochs = 2, .save_frequency = 1 };
    if (same_bytes && n > 0 && !undisturbed[first][0]) {
        const char *why = live(NULL, 0, first, true);
        if (why) return why;
    }
    const char *why = NULL;
    snprintf(l.name, sizeof l.name, "life-%d", count++);
    for (int i = 0; i < n && !why; i++) why = apply(&l, &e[i]);
    if (!why) why = finish(&l);
    if (!why && same_bytes) {
        bytes_of(&l, bytes);
        if (!undisturbed[first][0]) memcpy(undisturbed[first], bytes, sizeof bytes);
        if (!bytes[0] || strcmp(bytes, undisturbed[first]) != 0) why = "its bytes are not those of an undisturbed run";
    }
    forget(&l);
    return why;
}

/* Leaves out one event after the other as long as the rest still fails. */
static int minimise(event *e, int n, int first, bool same_bytes)
{
    for (int i = 0; i < n;) {
        event less[MAX_EVENTS];
        for (int k = 0, to = 0; k < n; k++)
            if (k != i) less[to++] = e[k];
        if (live(less, n - 1, first, same_bytes)) memcpy(e, less, (size_t)--n * sizeof *e);
        else i++;
    }
    return n;
}

/* What once failed: a checkpoint that is called `latest` alone, as a copied folder has it. Results of the lost steps
 * stayed, and an evaluation that was owed was not made. */
static void runs_that_failed_before(void)
{
    static const event latest_alone[] = { { FREQUENCY, 600 }, { KILL, 898 },  { FREQUENCY, 707 }, { DELETE, 280 },
                                          { EXTEND, 263 },    { EXTEND, 70 }, { BATCH, 656 } };
    static const event owed[] = { { FREQUENCY, 1 }, { KILL, 19 }, { FREQUENCY, 2 }, { DELETE, 3 } };
    const char *why = live(latest_alone, 7, 3, false);
    CHECK_STR(why ? why : "", "");
    for (int64_t line = 17; line < 22; line++) { /* around the end of the first epoch, wherever its lines are */
        event e[4];
        memcpy(e, owed, sizeof e);
        e[1].value = line;
        why = live(e, 4, 2, false);
        CHECK_STR(why ? why : "", "");
    }
}

static int sequences = 12;
static uint64_t seed = 1;

static void runs_end_as_specified(void)
{
    int64_t events = 0, kills = 0, damaged = 0, compared = 0;
    for (int s = 0; s < sequences; s++) {
        event e[MAX_EVENTS];
        uint64_t key = rng_key(seed + (uint64_t)s, "life");
        int n = 5 + (int)(rng_u64(key, 1000) % 11), first = (int)(rng_u64(key, 1001) % 6);
        bool same_bytes = rng_u64(key, 1002) % 3 == 0;
        for (int i = 0; i < n; i++) {
            e[i] = draw(key, i, same_bytes ? SAME_BYTES : KINDS);
            kills += e[i].kind == KILL, damaged += e[i].kind == DAMAGE;
        }
        events += n, compared += same_bytes;
        const char *why = live(e, n, first, same_bytes);
        CHECK(why == NULL);
        if (!why) continue;
        printf("  (it said) %s", said);
        n = minimise(e, n, first, same_bytes);
        printf("  seed %llu, batch %lld: %s:", (unsigned long long)(seed + (uint64_t)s), (long long)batches[first],
               why);
        for (int i = 0; i < n; i++) printf(" %s(%lld)", words[e[i].kind], (long long)e[i].value);
        printf("\n");
        fflush(stdout);
    }
    printf("  %d sequences, %lld events, %lld kills, %lld damaged, %lld compared by bytes\n", sequences,
           (long long)events, (long long)kills, (long long)damaged, (long long)compared);
}

int main(int argc, char **argv)
{
    if (argc > 11 && strcmp(argv[1], "--rank") == 0) return as_rank(argv);
    ctx = cloob_ctx_create(NULL);
    self = argv[0];
    if (argc > 1) sequences = atoi(argv[1]);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    if (argc > 3) mpirun = argv[3];
    scratch_folder(logs, sizeof logs);
    char path[300];
    snprintf(path, sizeof path, "%s/small.json", logs);
    FILE *f = fopen(path, "w");
    if (!f || fputs(small, f) < 0 || fclose(f) != 0) return 1;
    RUN(runs_that_failed_before);
    RUN(runs_end_as_specified);
    check_remove(logs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
