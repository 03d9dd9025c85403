/* The runs of an ablation or a sweep. */
#include "lab/sweep/runs.h"

#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/file.h"
#include "dist/comm.h"
#include "train/settings.h"
#include "core/json.h"
#include "core/option.h"
#include "lab/memory.h"
#include "lab/run_files.h"

/* ---- settings ------------------------------------------------------------------------------------ */

/* The first line that differs. */
static cloob_status refuse_difference(cloob_ctx *ctx, const char *folder, char *was, char *is)
{
    for (;;) {
        char *a = strsep(&was, "\n"), *b = strsep(&is, "\n");
        if (!a && !b) return CLOOB_OK;
        if (a && b && strcmp(a, b) == 0) continue;
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "%s: was started with other settings (%s, now %s); give another `name`, or those settings",
                        folder, a && *a ? a : "nothing", b && *b ? b : "nothing");
    }
}

/* Settings cannot change once a run has a checkpoint; before that a mistyped option may be corrected. */
static bool has_runs(const char *folder)
{
    char pattern[SWEEP_PATH + 64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*-seed*/checkpoints/latest.safetensors", folder);
    bool any = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    if (any) globfree(&found);
    return any;
}

cloob_status sweep_check_settings(cloob_ctx *ctx, const sweep_options *o, const char *folder)
{
    sbuf now = { 0 };
    file_bytes old;
    settings_put(&now, &o->train, SETTINGS_LEARNING); /* seeds and methods may grow */
    char path[FILE_PATH];
    cloob_status status = file_in(ctx, folder, "settings.txt", path);
    if (status == CLOOB_OK) status = file_make_dirs(ctx, folder);
    if (status == CLOOB_OK && !(file_exists(path) && has_runs(folder)))
        status = file_write(ctx, path, must(now.data), now.len);
    else if (status == CLOOB_OK && (status = file_read(ctx, path, FILE_TEXT_LIMIT, &old)) == CLOOB_OK) {
        status = refuse_difference(ctx, folder, old.data, now.data);
        file_bytes_release(&old);
    }
    sbuf_release(&now);
    return status;
}

/* ---- training ------------------------------------------------------------------------------------ */

static bool has_checkpoint(const char *dir)
{
    char path[SWEEP_PATH + 64];
    snprintf(path, sizeof path, "%s/checkpoints/latest.safetensors", dir);
    return file_exists(path);
}

/* A run that ended before its first checkpoint starts again; its folder is renamed. */
static cloob_status rename_unsaved_run(cloob_ctx *ctx, const char *dir)
{
    char aside[SWEEP_PATH + 64];
    for (int i = 1; i < 1000; i++) {
        snprintf(aside, sizeof aside, "%s.unfinished%d", dir, i);
        if (file_exists(aside)) continue;
        if (rename(dir, aside) != 0) break;
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: ended before its first checkpoint; kept as %s, and started again", dir,
                aside);
        return CLOOB_OK;
    }
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: ended before its first checkpoint and cannot be renamed; remove it", dir);
}

/* NULL: the run does not set it. */
static const char *setting_value(const sweep_run *r, const char *name)
{
    for (int64_t i = 0; i < r->settings; i++)
        if (strcmp(r->setting[i].name, name) == 0) return r->setting[i].value;
    return NULL;
}

static cloob_status apply_settings(cloob_ctx *ctx, const sweep_run *r, cloob_train_options *t)
{
    int64_t n;
    const option_desc *table = train_option_table(&n);
    for (int64_t i = 0; i < r->settings; i++) {
        const option_desc *option = option_find(table, n, r->setting[i].name);
        if (!option || !option_set(option, t, r->setting[i].value))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`%s` cannot be %s", r->setting[i].name, r->setting[i].value);
    }
    if (setting_value(r, "lr_scheduler"))
        settings_drop_restarts(t, setting_value(r, "restart_epochs") != NULL,
                               setting_value(r, "restart_cycles") != NULL);
    return CLOOB_OK;
}

static cloob_status train_run(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *r,
                              sweep_summary *count, cloob_train_summary *s)
{
    cloob_train_options t = o->train;
    bool resume = has_checkpoint(r->dir);
    t.logs = folder;
    t.name = r->name;
    t.seed = r->seed;
    CLOOB_TRY(apply_settings(ctx, r, &t));
    t.analyze = t.analyze && t.val_data; /* the analysis is of the validation pairs */
    t.resume = resume ? "latest" : NULL;
    if (resume) t.pretrained = NULL; /* the checkpoint already contains its weights */
    if (!resume && file_exists(r->dir)) CLOOB_TRY(rename_unsaved_run(ctx, r->dir));
    ctx_log(ctx, CLOOB_LOG_INFO, "%s: %s", r->name, resume ? "resuming from its checkpoint" : "training");
    t.size = sizeof t;
    CLOOB_TRY(cloob_train(ctx, &t, s));
    *(resume ? &count->resumed : &count->trained) += 1;
    return CLOOB_OK;
}

/* ---- results ------------------------------------------------------------------------------------ */

/* The numbers of the last line of results.jsonl; epoch does not change if there is none. */
static cloob_status put_last_result(cloob_ctx *ctx, const char *dir, int64_t *epoch, json_out *out)
{
    arena a = { 0 };
    const json *root = NULL;
    cloob_status status = last_result_read(ctx, &a, dir, &root);
    for (const json *j = root ? root->child : NULL; j; j = j->next)
        if (j->kind == JSON_NUMBER) json_put_number(out, j->key, j->number);
    if (root) json_int(json_get(root, "epoch"), epoch);
    arena_release(&a);
    return status;
}

/* Mean similarities, of the analysis of the last epoch. */
static cloob_status put_similarities(cloob_ctx *ctx, const char *dir, int64_t epoch, json_out *out)
{
    static const char *const key[][2] = { { "matched_mean", "matched_similarity" },
                                          { "top10_unmatched_mean", "top10_unmatched_similarity" },
                                          { "top1000_unmatched_mean", "top1000_unmatched_similarity" } };
    char path[SWEEP_PATH + 64];
    arena a = { 0 };
    json *root;
    snprintf(path, sizeof path, "%s/analysis/epoch_%lld/analysis.json", dir, (long long)epoch);
    if (!file_exists(path)) return CLOOB_OK;
    cloob_status status = json_read_file(ctx, &a, path, &root);
    for (size_t i = 0; status == CLOOB_OK && i < sizeof key / sizeof *key; i++) {
        const json *v = json_get(root, key[i][0]);
        if (v && v->kind == JSON_NUMBER) json_put_number(out, key[i][1], v->number);
    }
    arena_release(&a);
    return status;
}

static cloob_status put_validation(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, json_out *out)
{
    cloob_model *m;
    if (!o->zeroshot_count) return CLOOB_OK;
    CLOOB_TRY(run_open_model(ctx, o, r, &m));
    cloob_status status = run_put_zeroshots(ctx, o, r, m, "", out);
    cloob_model_close(m);
    return status;
}

static cloob_status write_summary(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r,
                                  const cloob_train_summary *s, const char *path)
{
    const char *method = setting_value(r, "method");
    int64_t epoch = s->epochs;
    json_out out = { .spaced = true };
    json_begin(&out, NULL, '{');
    json_members(&out, J_TEXT("method", method ? method : s->method), J_OF(r, seed), J_OF(s, steps),
                 J_NUMBER("seconds", s->seconds, 6));
    cloob_status status = put_last_result(ctx, r->dir, &epoch, &out);
    if (status == CLOOB_OK) status = put_similarities(ctx, r->dir, epoch, &out);
    if (status == CLOOB_OK) status = put_validation(ctx, o, r, &out);
    return run_write_object(ctx, status, &out, path);
}

/* False for a finished run whose summary lacks a requested set: the run is then evaluated again, not trained. */
static bool is_complete(const sweep_options *o, const json *summary)
{
    if (json_get(summary, "failed")) return true;
    for (int64_t i = 0; i < o->zeroshot_count; i++) {
        char set[128], key[160];
        run_set_name(o->zeroshot[i], set);
        snprintf(key, sizeof key, "zeroshot/%s", set);
        if (!json_get(summary, key)) return false;
    }
    return true;
}

cloob_status run_read(cloob_ctx *ctx, arena *a, const sweep_run *r, const char *name, json **out)
{
    char path[SWEEP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return json_read_file(ctx, a, path, out);
}

static cloob_status find_finished(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, bool *found)
{
    arena a = { 0 };
    json *summary;
    cloob_status status = run_read(ctx, &a, r, "summary.json", &summary);
    *found = status == CLOOB_OK && is_complete(o, summary);
    arena_release(&a);
    return status;
}

/* ---- a run --------------------------------------------------------------------------------------- */

/* The summary of a run with a loss that is not finite. */
static cloob_status write_failure(cloob_ctx *ctx, const sweep_run *r, const char *path, sweep_summary *count)
{
    json_out out = { .spaced = true };
    json_begin(&out, NULL, '{');
    json_members(&out, J_OF(r, seed), J_TEXT("failed", cloob_error(ctx)));
    ctx_log(ctx, CLOOB_LOG_WARN, "%s: %s; counted as failed", r->name, cloob_error(ctx));
    count->trained++;
    return run_write_object(ctx, CLOOB_OK, &out, path);
}

static cloob_status do_training(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *r,
                                sweep_summary *count)
{
    char path[SWEEP_PATH + 64];
    cloob_train_summary s;
    bool found = false;
    snprintf(path, sizeof path, "%s/summary.json", r->dir);
    if (file_exists(path)) CLOOB_TRY(find_finished(ctx, o, r, &found));
    if (found) return count->found++, CLOOB_OK;
    cloob_status status = train_run(ctx, o, folder, r, count, &s);
    if (status == CLOOB_ERR_NUMERIC && r->may_fail) return write_failure(ctx, r, path, count);
    return status == CLOOB_OK ? write_summary(ctx, o, r, &s, path) : status;
}

cloob_status sweep_do_run(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *r,
                          sweep_summary *count)
{
    CLOOB_TRY(do_training(ctx, o, folder, r, count));
    return r->tested ? run_test_once(ctx, o, r) : CLOOB_OK;
}

bool run_is_done(const sweep_run *r)
{
    char path[SWEEP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", r->dir, r->tested ? "test.json" : "summary.json");
    return file_exists(path);
}

/* ---- several runs at a time: threads that take the next one, each with its own context -------------- */

enum { MAX_JOBS = 64 };

typedef struct jobs {
    const sweep_options *o;
    const char *folder;
    const sweep_run *run;
    int64_t runs;
    int threads;          /* of each */
    pthread_mutex_t lock; /* guards the members below and the caller's log */
    cloob_ctx *ctx;       /* the caller's */
    sweep_summary *count;
    int64_t next, done;
    cloob_status status; /* of the first run that failed or was stopped */
    char why[CTX_ERROR_BYTES];
} jobs;

typedef struct named_log { /* prefixes lines with the name of the run */
    jobs *j;
    const char *name;
} named_log;

static void log_named(void *user, cloob_log_level level, const char *line)
{
    const named_log *l = user;
    pthread_mutex_lock(&l->j->lock);
    ctx_log(l->j->ctx, level, "%s: %s", l->name, line);
    pthread_mutex_unlock(&l->j->lock);
}

/* A failed run stops the others, which save first. */
static bool stop_all(void *user)
{
    jobs *j = user;
    const cloob_train_options *t = &j->o->train;
    pthread_mutex_lock(&j->lock);
    bool stop = j->status != CLOOB_OK || (t->should_stop && t->should_stop(t->stop_user));
    pthread_mutex_unlock(&j->lock);
    return stop;
}

static void finish(jobs *j, const cloob_ctx *ctx, cloob_status status, const sweep_summary *count)
{
    pthread_mutex_lock(&j->lock);
    j->count->found += count->found, j->count->trained += count->trained, j->count->resumed += count->resumed;
    bool worse = status != CLOOB_OK && (j->status == CLOOB_OK || j->status == CLOOB_ERR_STOPPED);
    if (worse) {
        j->status = status;
        snprintf(j->why, sizeof j->why, "%s", cloob_error(ctx));
    }
    ctx_progress(j->ctx, "runs", ++j->done, j->runs, "runs");
    pthread_mutex_unlock(&j->lock);
}

static void run_one(jobs *j, const sweep_run *r)
{
    named_log log = { j, r->name };
    sweep_summary count = { 0 };
    sweep_options o = *j->o;
    cloob_ctx *ctx = must(cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options),
                                                                 .threads = j->threads,
                                                                 .log = log_named,
                                                                 .log_user = &log,
                                                                 .log_level = j->ctx->log_level }));
    ctx->kernels = j->ctx->kernels;
    o.train.should_stop = stop_all;
    o.train.stop_user = j;
    finish(j, ctx, sweep_do_run(ctx, &o, j->folder, r, &count), &count);
    cloob_ctx_destroy(ctx);
}

static const sweep_run *take(jobs *j)
{
    pthread_mutex_lock(&j->lock);
    const sweep_run *r = j->next < j->runs && j->status == CLOOB_OK ? &j->run[j->next++] : NULL;
    pthread_mutex_unlock(&j->lock);
    return r;
}

static void *worker(void *user)
{
    for (const sweep_run *r; (r = take(user));) run_one(user, r);
    return NULL;
}

static cloob_status run_concurrently(jobs *j, int64_t width)
{
    pthread_t thread[MAX_JOBS];
    int64_t started = 0;
    pthread_mutex_init(&j->lock, NULL);
    ctx_progress(j->ctx, "runs", 0, j->runs, "runs");
    while (started < width && pthread_create(&thread[started], NULL, worker, j) == 0) started++;
    for (int64_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&j->lock);
    if (!started) return ctx_fail(j->ctx, CLOOB_ERR_MEMORY, "`jobs` %lld: no thread can be started", (long long)width);
    return j->status == CLOOB_OK ? CLOOB_OK : ctx_fail(j->ctx, j->status, "%s", j->why);
}

static cloob_status run_in_order(const jobs *j)
{
    for (int64_t i = 0; i < j->runs; i++) CLOOB_TRY(sweep_do_run(j->ctx, j->o, j->folder, &j->run[i], j->count));
    return CLOOB_OK;
}

cloob_status sweep_do_runs(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *run,
                           int64_t runs, sweep_summary *count)
{
    comm_env env;
    int64_t width = min64(o->jobs, runs);
    jobs j = { .o = o, .folder = folder, .run = run, .runs = runs, .ctx = ctx, .count = count };
    if (o->jobs < 1 || o->jobs > MAX_JOBS)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`jobs` %lld: needs 1 to %d", (long long)o->jobs, MAX_JOBS);
    if (width == 1) return run_in_order(&j);
    CLOOB_TRY(comm_env_read(ctx, &env));
    if (env.size > 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "`jobs` %lld: with %d ranks, runs are trained one after the other; leave it out",
                        (long long)o->jobs, env.size);
    j.threads = (int)max64(1, ctx->threads / width);
    return run_concurrently(&j, width);
}
