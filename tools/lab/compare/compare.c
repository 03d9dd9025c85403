/* Two files with a JSON object per run: a table of metrics with the means of both, and a test for each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/compare/groups.h"

typedef struct reader {
    groups g;               /* "a" and "b" */
    int64_t epoch;          /* of the lines that count; -1: all */
    int64_t first_epoch[2]; /* -1: none seen */
    bool epochs_differ[2];
    int64_t searches; /* lines of a sweep's search, left out beside final runs */
} reader;

static cloob_status add_line(cloob_ctx *ctx, reader *r, int side, const json *line, const char *name)
{
    int64_t epoch = -1;
    if (line->kind != JSON_OBJECT)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: needs an object with the metrics of one run", name);
    bool has = json_int(json_get(line, "epoch"), &epoch);
    if (r->epoch >= 0 && !(has && epoch == r->epoch)) return CLOOB_OK;
    if (has && r->first_epoch[side] < 0) r->first_epoch[side] = epoch;
    r->epochs_differ[side] |= has && r->first_epoch[side] != epoch;
    return groups_add(ctx, &r->g, side ? "b" : "a", line);
}

static cloob_status add_file(cloob_ctx *ctx, reader *r, int side, const char *path)
{
    run_lines lines;
    CLOOB_TRY(run_lines_read(ctx, r->g.memory, path, &lines));
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < lines.count && status == CLOOB_OK; i++) {
        char name[1200];
        const char *stage = json_string(json_get(lines.line[i], "stage"));
        snprintf(name, sizeof name, "%.1000s, run %lld", path, (long long)i + 1);
        if (lines.has_final && stage && strcmp(stage, "final") != 0) r->searches++;
        else status = add_line(ctx, r, side, lines.line[i], name);
    }
    free(lines.line);
    if (status != CLOOB_OK || r->g.count > side) return status;
    if (r->epoch >= 0) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no line has epoch %lld", path, (long long)r->epoch);
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds no run; needs one JSON object per line", path);
}

/* ---- the result ---------------------------------------------------------------------------------- */

static cloob_status compare_metric(cloob_ctx *ctx, compared_metric *row, const group_metric *m, double alpha)
{
    group_values a = group_values_of(m, 0), b = group_values_of(m, 1);
    *row = (compared_metric){ .metric = m->name, .a = group_mean_of(&a), .b = group_mean_of(&b) };
    if (!a.n || !b.n) return CLOOB_OK;
    row->tested = true;
    CLOOB_TRY(ranksum_test(ctx, &row->test, a.value, a.n, b.value, b.n, RANK_SUM_AUTO));
    row->significant = row->test.two_sided < alpha;
    return CLOOB_OK;
}

static cloob_status compare_all(cloob_ctx *ctx, const reader *r, comparison *out)
{
    const groups *g = &r->g;
    out->row = arena_push(g->memory, (size_t)(g->metrics + 1) * sizeof *out->row);
    if (!out->row) return ctx_no_memory(ctx, (size_t)g->metrics * sizeof *out->row, "a comparison");
    for (int64_t i = 0; i < g->metrics; i++)
        if (strcmp(g->metric[i].name, "epoch") != 0) /* says when, not how well */
            CLOOB_TRY(compare_metric(ctx, &out->row[out->metrics++], &g->metric[i], out->alpha));
    out->runs_a = g->runs[0], out->runs_b = g->runs[1], out->skipped = g->skipped;
    return CLOOB_OK;
}

static void warn(cloob_ctx *ctx, const reader *r, const char *const *path)
{
    for (int side = 0; side < 2; side++)
        if (r->epochs_differ[side])
            ctx_log(ctx, CLOOB_LOG_WARN,
                    "%s: lines of different epochs: evaluations of one run are no sample of runs; choose one epoch",
                    path[side]);
    if (r->searches)
        ctx_log(ctx, CLOOB_LOG_INFO,
                "%lld runs of a search are left out, final runs compared; `where` stage=search compares the search",
                (long long)r->searches);
}

cloob_status compare_files(cloob_ctx *ctx, comparison *out, const char *path_a, const char *path_b, int64_t epoch,
                           double alpha)
{
    arena *memory = calloc(1, sizeof *memory);
    *out = (comparison){ .alpha = alpha, .memory = memory };
    if (!memory) return ctx_no_memory(ctx, sizeof *memory, "a comparison");
    reader r = { .g = { .memory = memory, .all = true }, .epoch = epoch, .first_epoch = { -1, -1 } };
    cloob_status status = add_file(ctx, &r, 0, path_a);
    if (status == CLOOB_OK) status = add_file(ctx, &r, 1, path_b);
    if (status == CLOOB_OK) status = compare_all(ctx, &r, out);
    if (status == CLOOB_OK) warn(ctx, &r, (const char *const[]){ path_a, path_b });
    else comparison_release(out);
    return status;
}

void comparison_release(comparison *c)
{
    if (!c) return;
    if (c->memory) arena_release(c->memory);
    free(c->memory);
    c->memory = NULL, c->row = NULL;
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static void put_group(json_out *w, const char *name, const group_mean *g)
{
    json_begin(w, name, '{');
    json_put_int(w, "n", g->n);
    if (g->n) json_put_number(w, "mean", g->mean);
    if (g->n) json_put_number(w, "spread", g->deviation);
    json_end(w);
}

static void put_metric(json_out *w, const compared_metric *m)
{
    json_begin(w, m->metric, '{');
    put_group(w, "a", &m->a);
    put_group(w, "b", &m->b);
    if (m->tested) {
        json_members(w, J_NUMBER("U", m->test.U, 0), J_NUMBER("p", m->test.two_sided, 0),
                     J_NUMBER("p_less", m->test.less, 0), J_NUMBER("p_greater", m->test.greater, 0),
                     J_TEXT("method", m->test.exact ? "exact" : "normal"), J_OF(m, significant));
    }
    json_end(w);
}

char *comparison_json(const comparison *c)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_members(&w, J_OF(c, runs_a), J_OF(c, runs_b), J_NUMBER("alpha", c->alpha, 0), J_OF(c, skipped));
    json_begin(&w, "metrics", '{');
    for (int64_t i = 0; i < c->metrics; i++) put_metric(&w, &c->row[i]);
    json_end(&w);
    json_end(&w);
    return json_out_line(&w);
}
