/* Runs many small trainings in parallel and prints one line of JSON for each when it ends.
 *
 *     bench_sweep JOBS RESULTS.jsonl [--parallel 8] [--seconds 150] [--logs DIR] [KEY=VALUE ...]
 *
 * A line of JOBS is a name and the options of `cloob train` as KEY=VALUE; also `world=DIR` (a folder of
 * `cloob synth`: its pairs, class folders and prompts), `zeroshot=DIR`, `prompts=P.json`, `device`, `seed`,
 * `precision`. Options of a line override the command line. `#` begins a comment.
 *
 * Trainings are threads of one process, so that their kernels run concurrently on a GPU: 14 small ones take half
 * the time of 14 processes. After --seconds the remaining jobs are skipped and the running ones stopped. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/sweep/runs.h"
#include "cloob/cloob.h"
#include "core/file.h"
#include "core/limits.h"
#include "core/option.h"
#include "train/settings.h"
#include "lab/sweep/sweep.h"

enum { MAX_JOBS = 1000, MAX_FOLDERS = 16, MAX_PARALLEL = 64 };

typedef struct job {
    const char *name;
    char *line; /* as it was written; words point into a copy */
    sweep_options o;
    const char *aug[8], *folder[MAX_FOLDERS];
    const char *train, *val, *prompts; /* made from world=; owned */
} job;

static struct {
    job *job;
    int jobs;
    atomic_int next;
    const char *out, *logs;
    double from;
    double seconds;
} work = { .logs = "sweep-logs", .seconds = 1e9 };

static double elapsed(void) { return clock_seconds() - work.from; }

static bool too_late(void *user)
{
    (void)user;
    return elapsed() > work.seconds;
}

static void complain(const char *name, const char *word, const char *why)
{
    fprintf(stderr, "bench_sweep: %s: %s: %s\n", name, word, why);
    exit(2);
}

/* ---- a line of words to options ------------------------------------------------------------------ */

/* Jobs are read one after the other, and each takes a copy. */
static cloob_train_options o;

static void set_option(const job *j, const char *name, const char *value)
{
    int64_t n;
    const option_desc *table = train_option_table(&n), *row = option_find(table, n, name);
    char must[256];
    if (!row) complain(j->name, name, "unknown");
    option_rule(row, must, sizeof must);
    if (!option_set(row, &o, value)) complain(j->name, name, must);
}

static char *joined(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    if (!path) complain(folder, name, "out of memory");
    return path;
}

static void set_world(job *j, const char *folder)
{
    static const char *const factor[] = { "background", "colour", "count",    "light",
                                          "material",   "object", "position", "size" };
    char *classes = joined(folder, "classes");
    o.train_data = j->train = joined(folder, "train.tsv");
    o.val_data = j->val = joined(folder, "val.tsv");
    j->o.prompts = j->prompts = joined(folder, "prompts.json");
    for (size_t i = 0; i < sizeof factor / sizeof *factor; i++)
        j->folder[j->o.zeroshot_count++] = joined(classes, factor[i]);
    free(classes);
}

static void set_word(job *j, char *word)
{
    char *value = strchr(word, '=');
    if (!value) complain(j->name, word, "needs KEY=VALUE");
    *value++ = '\0';
    if (strcmp(word, "world") == 0) set_world(j, value);
    else if (strcmp(word, "prompts") == 0) j->o.prompts = value;
    else if (strcmp(word, "zeroshot") == 0 && j->o.zeroshot_count < MAX_FOLDERS)
        j->folder[j->o.zeroshot_count++] = value;
    else if (strcmp(word, "aug-cfg") == 0 && o.aug_cfg_count < 8) j->aug[o.aug_cfg_count++] = value;
    else set_option(j, word, value);
}

static void read_job(job *j, char *line, char **shared, int n)
{
    j->line = strdup(line);
    j->name = strtok(line, " \t\n");
    sweep_options_init(&j->o);
    sweep_compare_objectives(&j->o);
    o = j->o.train;
    for (int i = 0; i < n; i++) set_word(j, strdup(shared[i]));
    for (char *word; (word = strtok(NULL, " \t\n"));) set_word(j, word);
    o.aug_cfg = j->aug;
    o.should_stop = too_late;
    o.name = j->name;
    j->o.train = o;
    j->o.zeroshot = j->folder;
}

static void read_jobs(const char *path, char **shared, int n)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    if (!f) complain(path, "", "cannot be read");
    work.job = calloc(MAX_JOBS, sizeof *work.job);
    while (work.job && work.jobs < MAX_JOBS && fgets(line, sizeof line, f)) {
        line[strcspn(line, "#\n")] = '\0';
        if (strspn(line, " \t") == strlen(line)) continue;
        read_job(&work.job[work.jobs++], strdup(line), shared, n);
    }
    fclose(f);
}

/* ---- doing them ---------------------------------------------------------------------------------- */

/* The run's summary, with what was asked for in front of it; one write, so that lines of several trainings
 * stay whole. */
static void report(const job *j, const sweep_run *r, cloob_status status, const char *why, double seconds)
{
    char path[SWEEP_PATH + 64], summary[16384] = "";
    sbuf s = { 0 };
    snprintf(path, sizeof path, "%s/summary.json", r->dir);
    FILE *f = status == CLOOB_OK ? fopen(path, "r") : NULL, *out = fopen(work.out, "a");
    if (f) {
        summary[fread(summary, 1, sizeof summary - 1, f)] = '\0';
        fclose(f);
    }
    sbuf_printf(&s, "{\"name\": \"%s\", \"job\": ", j->name);
    json_print_string(&s, j->line);
    sbuf_printf(&s, ", \"wall\": %.1f, \"at\": %.1f, ", seconds, elapsed());
    if (summary[0] == '{') sbuf_printf(&s, "%.*s\n", (int)strcspn(summary + 1, "\n"), summary + 1);
    else sbuf_printf(&s, "\"failed\": %d}\n", (int)status);
    if (out && !s.failed) fputs(s.data, out);
    if (out) fclose(out);
    sbuf_release(&s);
    printf("%6.1f s  %-20s %5.1f s %s\n", elapsed(), j->name, seconds, status == CLOOB_OK ? "done" : why);
    fflush(stdout);
}

static void do_job(job *j)
{
    cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    sweep_summary count = { 0 };
    run_setting method = { "method", j->o.train.method };
    sweep_run r = { .setting = &method, .settings = 1, .seed = j->o.train.seed };
    double from = elapsed();
    snprintf(r.name, sizeof r.name, "%s", j->name);
    snprintf(r.dir, sizeof r.dir, "%s/%s", work.logs, j->name);
    cloob_status status = sweep_do_run(ctx, &j->o, work.logs, &r, &count);
    report(j, &r, status, cloob_error(ctx), elapsed() - from);
    cloob_ctx_destroy(ctx);
}

static void *worker(void *user)
{
    (void)user;
    for (int i; (i = atomic_fetch_add(&work.next, 1)) < work.jobs && !too_late(NULL);) do_job(&work.job[i]);
    return NULL;
}

static void do_jobs(int parallel)
{
    pthread_t thread[MAX_PARALLEL];
    for (int i = 0; i < parallel; i++)
        if (pthread_create(&thread[i], NULL, worker, NULL) != 0) complain("--parallel", "", "no more threads");
    for (int i = 0; i < parallel; i++) pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
    int parallel = 8, at = 3;
    if (argc < 3) complain("usage", "JOBS RESULTS.jsonl", "[--parallel N] [--seconds S] [--logs DIR] [KEY=VALUE ...]");
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--parallel") == 0) parallel = atoi(argv[at + 1]);
        else if (strcmp(argv[at], "--seconds") == 0) work.seconds = atof(argv[at + 1]);
        else if (strcmp(argv[at], "--logs") == 0) work.logs = argv[at + 1];
        else complain("usage", argv[at], "unknown");
    }
    if (parallel < 1 || parallel > MAX_PARALLEL) complain("usage", "--parallel", "1 to 64");
    read_jobs(argv[1], argv + at, argc - at);
    work.out = argv[2];
    work.from = clock_seconds();
    do_jobs(parallel);
    return 0;
}
