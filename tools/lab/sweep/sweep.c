/* The search, the choice, the chosen settings with fresh seeds, and the test; or the settings compared. */
#include "lab/sweep/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/sweep/runs.h"
#include "lab/report/report.h"
#include "core/arith.h"
#include "core/file.h"
#include "core/limits.h"
#include "core/option.h"
#include "dist/comm.h"
#include "lab/compare/groups.h"
#include "lab/memory.h"
#include "train/settings.h"

static const option_desc table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(sweep_options, , __VA_ARGS__)
#include "lab/sweep/sweep_options.def"
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(sweep_options, train., __VA_ARGS__)
#include "cloob/train_options.def"
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(sweep_options, train.data., __VA_ARGS__)
#include "cloob/data_options.def"
};

const option_desc *sweep_option_table(int64_t *count) { return OPTION_TABLE(table, count); }

void sweep_options_init(sweep_options *o)
{
    *o = (sweep_options){ .axes = 0 };
    OPTION_DEFAULTS(table, o);
    o->train.name = "sweep";
    o->train.save_frequency = 0;
}

void sweep_compare_objectives(sweep_options *o)
{
    static const char *const all[] = { "clip", "infoloob", "infonce-hopfield", "cloob" };
    static const sweep_axis method = { "method", all, 4 };
    o->axis = &method, o->axes = 1;
    o->seeds = 5;
    o->train.name = "ablation";
    o->train.analyze = true;
}

static cloob_status check(cloob_ctx *ctx, const sweep_options *o)
{
    bool tested = o->test_data || o->test_zeroshot_count;
    const struct {
        bool broken;
        const char *rule;
    } rules[] = {
        { o->axes < 1, "`axis`: give an option and its values" },
        { o->seeds < 1 || o->final_seeds < 0 || o->random < 0,
          "`seeds` is 1 or more, `final_seeds` and `random` are 0 or more" },
        { o->parts && (o->part < 0 || o->part >= o->parts), "`part`: must be below the number of parts" },
        { tested && !o->final_seeds, "test data is for the chosen settings; give `final_seeds`" },
        { !o->select && o->final_seeds, "`final_seeds` needs `select`" },
        { !(o->alpha > 0 && o->alpha < 1), "`alpha` must be between 0 and 1" },
        { o->train.resume, "a sweep continues automatically; leave out `resume`" },
        { !o->train.val_data && !o->zeroshot_count,
          "nothing to compare runs by; give `val_data`, `zeroshot`, or both" },
        { o->prompts && !o->zeroshot_count && !o->test_zeroshot_count, "`prompts` needs `zeroshot`" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].broken) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s", rules[i].rule);
    if (!o->select && o->seeds < 4)
        ctx_log(
            ctx, CLOOB_LOG_WARN,
            "%lld seed%s: the p-value of the exact rank-sum test cannot fall below 5 %% with so few runs; use four or "
            "more seeds",
            (long long)o->seeds, o->seeds == 1 ? "" : "s");
    return CLOOB_OK;
}

/* ---- one round of training ----------------------------------------------------------------------- */

/* Trains this process's share of the runs; *complete: every one has its summary. */
static cloob_status train_runs(cloob_ctx *ctx, sweep *s, const sweep_run *run, int64_t runs, bool *complete)
{
    const sweep_options *o = s->o;
    cloob_status status = CLOOB_OK;
    const sweep_run *mine = run;
    int64_t n = runs;
    if (o->parts > 1) {
        sweep_run *share = must(arena_push(s->memory, (size_t)(runs + 1) * sizeof *share));
        n = 0;
        for (int64_t i = o->part; i < runs; i += o->parts) share[n++] = run[i];
        mine = share;
    }
    if (n) status = sweep_do_runs(ctx, o, s->summary.folder, mine, n, &s->summary);
    s->summary.runs += runs;
    *complete = true;
    for (int64_t i = 0; i < runs && status == CLOOB_OK; i++) *complete = *complete && run_is_done(&run[i]);
    return status;
}

/* Runs of all points, or of those that are chosen, seed by seed. */
static cloob_status make_runs(cloob_ctx *ctx, sweep *s, int64_t seed, int64_t seeds, bool chosen, sweep_stage *out)
{
    const points *p = &s->points;
    *out = (sweep_stage){ .run = must(arena_push(s->memory, (size_t)(p->count * seeds + 1) * sizeof *out->run)),
                          .point = must(arena_push(s->memory, (size_t)(p->count * seeds + 1) * sizeof *out->point)) };
    for (int64_t k = 0; k < seeds; k++)
        for (int64_t i = 0; i < p->count; i++) {
            if (chosen && !p->item[i].chosen) continue;
            out->point[out->runs] = i;
            CLOOB_TRY(point_run(ctx, p, &p->item[i], seed + k, s->summary.folder, &out->run[out->runs++]));
        }
    return CLOOB_OK;
}

/* ---- choosing ------------------------------------------------------------------------------------ */

static cloob_status no_such_number(cloob_ctx *ctx, const char *name, const json *summary)
{
    sbuf known = { 0 };
    for (const json *j = summary->child; j; j = j->next)
        if (j->kind == JSON_NUMBER) sbuf_printf(&known, "%s%s", known.len ? ", " : "", j->key);
    cloob_status status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`select` %s: runs have no such number; they have %s", name,
                                   known.data ? known.data : "none");
    sbuf_release(&known);
    return status;
}

/* The mean over seeds; a run that failed makes it NaN, which is never chosen. */
static cloob_status score_points(cloob_ctx *ctx, sweep *s, const sweep_stage *stage)
{
    points *p = &s->points;
    for (int64_t i = 0; i < p->count; i++) p->item[i].score = 0;
    for (int64_t i = 0; i < stage->runs; i++) {
        json *summary;
        CLOOB_TRY(run_read(ctx, s->memory, &stage->run[i], "summary.json", &summary));
        const json *v = json_get(summary, s->o->select);
        bool failed = json_get(summary, "failed") != NULL || (v && v->kind == JSON_NULL);
        if (!failed && (!v || v->kind != JSON_NUMBER)) return no_such_number(ctx, s->o->select, summary);
        s->summary.failed += failed;
        p->item[stage->point[i]].score += failed ? NAN : v->number / (double)s->o->seeds;
    }
    return CLOOB_OK;
}

/* Whether a comes before b; NaN last, then by position, so that the order is one. */
static bool is_better(const sweep *s, int64_t a, int64_t b)
{
    double sign = group_aim_of(s->o->select) == AIM_LOW ? -1 : 1;
    double x = sign * s->points.item[a].score, y = sign * s->points.item[b].score;
    if (isnan(x) || isnan(y)) return isnan(x) == isnan(y) ? a < b : isnan(y);
    return x != y ? x > y : a < b;
}

/* The best of each group; a point without a score is never chosen. */
static void choose(sweep *s)
{
    const points *p = &s->points;
    for (int64_t i = 0; i < p->count; i++) {
        bool best = !isnan(p->item[i].score);
        for (int64_t k = 0; k < p->count && best; k++)
            best = k == i || strcmp(p->item[k].group, p->item[i].group) != 0 || !is_better(s, k, i);
        p->item[i].chosen = best;
    }
}

/* ---- the search ---------------------------------------------------------------------------------- */

static cloob_status search(cloob_ctx *ctx, sweep *s, bool *complete)
{
    CLOOB_TRY(make_runs(ctx, s, s->o->train.seed, s->o->seeds, false, &s->search));
    CLOOB_TRY(train_runs(ctx, s, s->search.run, s->search.runs, complete));
    if (!*complete || !s->o->select) return CLOOB_OK;
    CLOOB_TRY(score_points(ctx, s, &s->search));
    choose(s);
    return CLOOB_OK;
}

static cloob_status run_final(cloob_ctx *ctx, sweep *s, bool *complete)
{
    const sweep_options *o = s->o;
    CLOOB_TRY(make_runs(ctx, s, o->train.seed + o->seeds, o->final_seeds, true, &s->final));
    for (int64_t i = 0; i < s->final.runs && (o->test_data || o->test_zeroshot_count); i++) {
        s->final.run[i].tested = true;
        s->final.run[i].may_fail = false;
    }
    return train_runs(ctx, s, s->final.run, s->final.runs, complete);
}

static cloob_status write_page(cloob_ctx *ctx, const sweep *s)
{
    const sweep_stage *stage = s->final.runs ? &s->final : &s->search;
    char page[SWEEP_PATH + 64];
    int64_t n = 0;
    const char **dir = must(arena_push(s->memory, (size_t)(stage->runs + 1) * sizeof *dir));
    for (int64_t i = 0; i < stage->runs; i++)
        if (!s->o->select || !isnan(s->points.item[stage->point[i]].score)) dir[n++] = stage->run[i].dir;
    snprintf(page, sizeof page, "%s/report.html", s->summary.folder);
    return n ? report_write(ctx, dir, n, page, &(report_options){ .title = s->o->train.name }, NULL) : CLOOB_OK;
}

static cloob_status run_all(cloob_ctx *ctx, sweep *s)
{
    bool complete;
    CLOOB_TRY(points_make(ctx, s->memory, s->o, &s->points));
    s->summary.settings = s->points.count;
    CLOOB_TRY(sweep_check_settings(ctx, s->o, s->summary.folder));
    cloob_status status = search(ctx, s, &complete);
    if (status == CLOOB_OK && complete && s->o->final_seeds) status = run_final(ctx, s, &complete);
    if (status == CLOOB_ERR_STOPPED)
        return ctx_fail(ctx, status,
                        "stopped after %lld of %lld runs, all saved; run the same command again to continue",
                        (long long)(s->summary.found + s->summary.trained + s->summary.resumed),
                        (long long)s->summary.runs);
    CLOOB_TRY(status);
    s->summary.complete = complete;
    if (!complete) return CLOOB_OK;
    CLOOB_TRY(s->o->select ? sweep_write_tables(ctx, s) : comparison_write_tables(ctx, s));
    return write_page(ctx, s);
}

cloob_status run_sweep(cloob_ctx *ctx, const sweep_options *o, sweep_summary *summary)
{
    arena a = { 0 };
    comm_env env;
    sweep s = { .o = o, .memory = &a };
    CLOOB_TRY(check(ctx, o));
    CLOOB_TRY(settings_check_name(ctx, o->train.name));
    CLOOB_TRY(comm_env_read(ctx, &env));
    s.summary.rank = env.rank;
    char *folder = must(file_join(o->train.logs, o->train.name));
    int length = snprintf(s.summary.folder, sizeof s.summary.folder, "%s", folder);
    free(folder);
    if (length > SWEEP_PATH - 256) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`logs`: path too long");
    double from = clock_seconds();
    cloob_status status = run_all(ctx, &s);
    s.summary.seconds = clock_seconds() - from;
    if (summary) *summary = s.summary;
    arena_release(&a);
    return status;
}
