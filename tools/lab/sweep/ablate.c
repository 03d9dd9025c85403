/* All runs, then the tables and the page. */
#include "lab/sweep/ablate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/sweep/runs.h"
#include "lab/report/report.h"
#include "core/file.h"
#include "core/limits.h"
#include "lab/compare/ablation.h"
#include "train/settings.h"
#include "core/option_row.h"
#include "dist/comm.h"

static const cloob_option table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(ablate_options, , __VA_ARGS__)
#include "lab/sweep/ablate_options.def"
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(ablate_options, , __VA_ARGS__)
#include "lab/sweep/runs_options.def"
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(ablate_options, train., __VA_ARGS__)
#include "cloob/train_options.def"
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(ablate_options, train.data., __VA_ARGS__)
#include "cloob/data_options.def"
};

const cloob_option *ablate_option_table(int64_t *count) { return OPTION_TABLE(table, count); }

void ablate_options_init(ablate_options *o)
{
    if (!o) return;
    *o = (ablate_options){ .methods_count = 0 };
    OPTION_DEFAULTS(table, o);
    o->train.name = "ablation";
    o->train.analyze = true;
    o->train.save_frequency = 0;
}

static cloob_status check(cloob_ctx *ctx, const ablate_options *o)
{
    if (o->methods_count < 2 || o->methods_count > ABLATION_METHODS)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`methods`: give 2 to %d", ABLATION_METHODS);
    for (int64_t i = 0; i < o->methods_count; i++)
        for (int64_t k = 0; k < i; k++)
            if (strcmp(o->methods[i], o->methods[k]) == 0)
                return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`methods`: %s is listed twice", o->methods[i]);
    if (o->seeds < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`seeds` %lld: needs 1 or more", (long long)o->seeds);
    if (!(o->alpha > 0 && o->alpha < 1))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`alpha` %g: needs a number between 0 and 1", o->alpha);
    if (o->train.resume)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "an ablation continues automatically; leave out `resume`");
    if (!o->train.val_data && !o->zeroshot_count)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "nothing to compare runs by; give `val_data`, `zeroshot`, or both");
    if (o->prompts && !o->zeroshot_count) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`prompts` needs `zeroshot`");
    if (o->seeds < 4)
        ctx_log(ctx, CLOOB_LOG_WARN,
                "%lld seeds: the exact rank-sum test of so few cannot fall below 5 %%; four or more can be "
                "significant",
                (long long)o->seeds);
    return CLOOB_OK;
}

/* ---- tables and page ----------------------------------------------------------------------------- */

static cloob_status write_tables(cloob_ctx *ctx, const char *folder, const ablation *t)
{
    sbuf markdown = { 0 }, numbers = { 0 };
    ablation_markdown(t, &markdown);
    ablation_json(t, &numbers);
    cloob_status status = file_write_in(ctx, folder, "ablation.md", &markdown);
    if (status == CLOOB_OK) status = file_write_in(ctx, folder, "ablation.json", &numbers);
    sbuf_release(&markdown), sbuf_release(&numbers);
    return status;
}

static cloob_status write_page(cloob_ctx *ctx, arena *a, const char *folder, const char *title, const ablate_run *run,
                               int64_t runs)
{
    char page[ABLATE_PATH + 64];
    const char **dir = arena_push(a, (size_t)runs * sizeof *dir);
    if (!dir) return ctx_no_memory(ctx, (size_t)runs * sizeof *dir, "runs");
    for (int64_t i = 0; i < runs; i++) dir[i] = run[i].dir;
    snprintf(page, sizeof page, "%s/report.html", folder);
    report_options o = { .title = title };
    return report_write(ctx, dir, runs, page, &o, NULL);
}

/* ---- the runs ------------------------------------------------------------------------------------ */

/* Seed by seed rather than method by method: what is there after half of the time can be compared already. */
static cloob_status name_runs(cloob_ctx *ctx, const ablate_options *o, const ablate_summary *s,
                              const run_setting *method, ablate_run *run)
{
    for (int64_t i = 0; i < s->runs; i++) {
        ablate_run *r = &run[i];
        *r = (ablate_run){ &method[i % o->methods_count], 1, .seed = o->train.seed + i / o->methods_count };
        snprintf(r->name, sizeof r->name, "%.64s-seed%lld", r->setting->value, (long long)r->seed);
        if (snprintf(r->dir, sizeof r->dir, "%s/%s", s->folder, r->name) >= (int)sizeof r->dir)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: path too long", s->folder);
    }
    return CLOOB_OK;
}

static cloob_status collect(cloob_ctx *ctx, arena *a, const ablate_summary *s, const ablate_run *run, ablation *t)
{
    for (int64_t i = 0; i < s->runs; i++) {
        json *summary;
        CLOOB_TRY(ablate_read_summary(ctx, a, &run[i], &summary));
        CLOOB_TRY(ablation_add(ctx, a, t, (int)(i % t->methods), summary));
    }
    return CLOOB_OK;
}

static cloob_status ablate(cloob_ctx *ctx, arena *a, const ablate_options *o, ablate_summary *s)
{
    ablation t = { .methods = (int)o->methods_count, .seeds = o->seeds, .alpha = o->alpha };
    ablate_run *run = arena_push(a, (size_t)s->runs * sizeof *run);
    run_setting *method = arena_push(a, (size_t)o->methods_count * sizeof *method);
    if (!run || !method) return ctx_no_memory(ctx, (size_t)s->runs * sizeof *run, "runs");
    for (int64_t k = 0; k < o->methods_count; k++) {
        t.method[k] = o->methods[k];
        method[k] = (run_setting){ "method", o->methods[k] };
    }
    CLOOB_TRY(ablate_check_settings(ctx, o, s->folder));
    CLOOB_TRY(name_runs(ctx, o, s, method, run));
    cloob_status status = ablate_do_runs(ctx, o, s->folder, run, s->runs, s);
    if (status == CLOOB_ERR_STOPPED)
        return ctx_fail(ctx, status,
                        "stopped after %lld of %lld runs, all saved; run the same command again to continue",
                        (long long)(s->found + s->trained + s->resumed), (long long)s->runs);
    CLOOB_TRY(status);
    CLOOB_TRY(collect(ctx, a, s, run, &t));
    CLOOB_TRY(ablation_test(ctx, &t));
    s->metrics = t.count;
    for (int64_t i = 0; i < t.count; i++) s->significant += t.metric[i].significant;
    CLOOB_TRY(write_tables(ctx, s->folder, &t));
    return write_page(ctx, a, s->folder, o->train.name ? o->train.name : "ablation", run, s->runs);
}

cloob_status run_ablation(cloob_ctx *ctx, const ablate_options *given, ablate_summary *summary)
{
    static const char *const all[] = { "clip", "infoloob", "infonce-hopfield", "cloob" };
    arena a = { 0 };
    ablate_options with = *given, *o = &with;
    if (!o->methods_count) o->methods = all, o->methods_count = sizeof all / sizeof *all;
    ablate_summary s = { .runs = o->methods_count * o->seeds };
    comm_env env;
    CLOOB_TRY(check(ctx, o));
    CLOOB_TRY(settings_check_name(ctx, o->train.name));
    CLOOB_TRY(comm_env_read(ctx, &env));
    s.rank = env.rank;
    char *folder = file_join(o->train.logs, o->train.name ? o->train.name : "ablation");
    if (!folder) return ctx_no_memory(ctx, 64, "a path");
    int length = snprintf(s.folder, sizeof s.folder, "%s", folder);
    free(folder);
    if (length > ABLATE_PATH - 128) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`logs`: path too long");
    double from = clock_seconds();
    cloob_status status = ablate(ctx, &a, o, &s);
    s.seconds = clock_seconds() - from;
    arena_release(&a);
    if (summary) *summary = s;
    return status;
}
