/* JSONL in, a table of metrics with values of both groups, then a test for each. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "lab/compare/groups.h"

typedef struct metric {
    const char *name;
    double *value[2]; /* of group a and b; owned */
    int64_t n[2], room[2];
} metric;

typedef struct reader {
    cloob_ctx *ctx;
    arena *memory;
    metric *metric;
    int64_t count, room, runs[2], skipped, epoch;
    int64_t first_epoch[2]; /* -1: none seen */
    bool epochs_differ[2];
    bool final_only;  /* the file is a sweep's with final runs */
    int64_t searches; /* lines that were left out because of it */
    bool failed;
} reader;

/* ---- the table ----------------------------------------------------------------------------------- */

static metric *find_metric(reader *r, const char *name)
{
    for (int64_t i = 0; i < r->count; i++)
        if (strcmp(r->metric[i].name, name) == 0) return &r->metric[i];
    if (!heap_grow(&r->metric, r->count, &r->room, sizeof *r->metric)) return NULL;
    metric *m = &r->metric[r->count];
    *m = (metric){ .name = arena_string(r->memory, name) };
    if (!m->name) return NULL;
    r->count++;
    return m;
}

static void add_value(reader *r, int group, const char *name, double x)
{
    metric *m = find_metric(r, name);
    if (m && heap_grow(&m->value[group], m->n[group], &m->room[group], sizeof *m->value[group]))
        m->value[group][m->n[group]++] = x;
    else r->failed = true;
}

/* Numbers by name; objects inside by "outer/inner". Texts, lists and truth values are no metrics; null is
 * what a number that was not finite is written as. */
static void add_object(reader *r, int group, const json *object, const char *prefix)
{
    for (const json *j = object->child; j; j = j->next) {
        sbuf name = { 0 };
        sbuf_printf(&name, "%s%s%s", prefix, *prefix ? "/" : "", j->key);
        if (name.failed) r->failed = true;
        else if (j->kind == JSON_OBJECT) add_object(r, group, j, name.data);
        else if (j->kind == JSON_NULL || (j->kind == JSON_NUMBER && !isfinite(j->number))) r->skipped++;
        else if (j->kind == JSON_NUMBER) add_value(r, group, name.data, j->number);
        sbuf_release(&name);
    }
}

/* ---- files --------------------------------------------------------------------------------------- */

static void note_epoch(reader *r, int group, int64_t epoch)
{
    if (r->first_epoch[group] < 0) r->first_epoch[group] = epoch;
    else if (r->first_epoch[group] != epoch) r->epochs_differ[group] = true;
}

static cloob_status add_line(reader *r, int group, const char *path, int64_t number, const char *text, size_t len)
{
    arena a = { 0 };
    json *root;
    char name[512];
    int64_t epoch = -1;
    snprintf(name, sizeof name, "%.400s, line %lld", path, (long long)number);
    cloob_status status = json_parse(r->ctx, &a, text, len, name, &root);
    if (status == CLOOB_OK && root->kind != JSON_OBJECT)
        status = ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: needs an object with the metrics of one run", name);
    const char *stage = status == CLOOB_OK ? json_string(json_get(root, "stage")) : NULL;
    if (r->final_only && stage && strcmp(stage, "final") != 0) r->searches++;
    else if (status == CLOOB_OK) {
        bool has = json_int(json_get(root, "epoch"), &epoch);
        if (r->epoch < 0 || (has && epoch == r->epoch)) {
            if (has) note_epoch(r, group, epoch);
            add_object(r, group, root, "");
            r->runs[group]++;
        }
    }
    arena_release(&a);
    if (status == CLOOB_OK && r->failed) return ctx_no_memory(r->ctx, len, "metrics");
    return status;
}

static bool blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", text[i])) return false;
    return true;
}

static cloob_status add_file(reader *r, int group, const char *path)
{
    file_bytes text;
    CLOOB_TRY(file_read(r->ctx, path, FILE_TEXT_LIMIT, &text));
    cloob_status status = CLOOB_OK;
    int64_t number = 1;
    /* as cloob sweep writes it */
    r->final_only = strstr(text.data, "\"stage\": \"final\"") != NULL;
    for (size_t at = 0; at < text.size && status == CLOOB_OK; number++) {
        const char *line = text.data + at, *end = memchr(line, '\n', text.size - at);
        size_t n = end ? (size_t)(end - line) : text.size - at;
        if (!blank(line, n)) status = add_line(r, group, path, number, line, n);
        at += n + 1;
    }
    file_bytes_release(&text);
    if (status != CLOOB_OK || r->runs[group]) return status;
    if (r->epoch >= 0)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: no line has epoch %lld", path, (long long)r->epoch);
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: holds no run; needs one JSON object per line", path);
}

/* ---- the result ---------------------------------------------------------------------------------- */

static group_mean describe(const double *x, int64_t n)
{
    group_mean g = { .n = n };
    double square = 0;
    for (int64_t i = 0; i < n; i++) g.mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) square += (x[i] - g.mean) * (x[i] - g.mean);
    g.deviation = n > 1 ? sqrt(square / (double)(n - 1)) : 0;
    return g;
}

static cloob_status compare_metric(cloob_ctx *ctx, compared_metric *row, const metric *m, double alpha)
{
    *row = (compared_metric){ .metric = m->name,
                              .a = describe(m->value[0], m->n[0]),
                              .b = describe(m->value[1], m->n[1]) };
    if (!m->n[0] || !m->n[1]) return CLOOB_OK;
    row->tested = true;
    CLOOB_TRY(ranksum_test(ctx, &row->test, m->value[0], m->n[0], m->value[1], m->n[1], RANK_SUM_AUTO));
    row->significant = row->test.two_sided < alpha;
    return CLOOB_OK;
}

static cloob_status compare_all(reader *r, comparison *out)
{
    out->row = calloc((size_t)(r->count + 1), sizeof *out->row);
    if (!out->row) return ctx_no_memory(r->ctx, (size_t)r->count * sizeof *out->row, "a comparison");
    for (int64_t i = 0; i < r->count; i++) {
        if (strcmp(r->metric[i].name, "epoch") == 0) continue; /* says when, not how well */
        CLOOB_TRY(compare_metric(r->ctx, &out->row[out->metrics++], &r->metric[i], out->alpha));
    }
    return CLOOB_OK;
}

static void warn_epochs(reader *r, int group, const char *path)
{
    if (r->epochs_differ[group])
        ctx_log(r->ctx, CLOOB_LOG_WARN,
                "%s: lines of different epochs: evaluations of one run are no sample of runs; "
                "choose one epoch",
                path);
}

cloob_status compare_files(cloob_ctx *ctx, comparison *out, const char *path_a, const char *path_b, int64_t epoch,
                           double alpha)
{
    arena *memory = calloc(1, sizeof *memory);
    *out = (comparison){ .alpha = alpha, .memory = memory };
    if (!memory) return ctx_no_memory(ctx, sizeof *memory, "a comparison");
    reader r = { .ctx = ctx, .memory = memory, .epoch = epoch, .first_epoch = { -1, -1 } };
    cloob_status status = add_file(&r, 0, path_a);
    if (status == CLOOB_OK) status = add_file(&r, 1, path_b);
    if (status == CLOOB_OK) status = compare_all(&r, out);
    if (r.searches)
        ctx_log(ctx, CLOOB_LOG_INFO,
                "%lld runs of a search are left out, final runs compared; `where` stage=search compares "
                "the search",
                (long long)r.searches);
    if (status == CLOOB_OK) warn_epochs(&r, 0, path_a), warn_epochs(&r, 1, path_b);
    out->runs_a = r.runs[0], out->runs_b = r.runs[1], out->skipped = r.skipped;
    for (int64_t i = 0; i < r.count; i++) free(r.metric[i].value[0]), free(r.metric[i].value[1]);
    free(r.metric);
    if (status != CLOOB_OK) comparison_release(out);
    return status;
}

void comparison_release(comparison *c)
{
    if (!c) return;
    if (c->memory) arena_release(c->memory);
    free(c->memory), free(c->row);
    c->memory = NULL, c->row = NULL;
}

/* ---- comparison ---------------------------------------------------------------------------------- */

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
        json_put_number(w, "U", m->test.U);
        json_put_number(w, "p", m->test.two_sided);
        json_put_number(w, "p_less", m->test.less);
        json_put_number(w, "p_greater", m->test.greater);
        json_put_text(w, "method", m->test.exact ? "exact" : "normal");
        json_put_bool(w, "significant", m->significant);
    }
    json_end(w);
}

char *comparison_json(const comparison *c)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_put_int(&w, "runs_a", c->runs_a);
    json_put_int(&w, "runs_b", c->runs_b);
    json_put_number(&w, "alpha", c->alpha);
    json_put_int(&w, "skipped", c->skipped);
    json_begin(&w, "metrics", '{');
    for (int64_t i = 0; i < c->metrics; i++) put_metric(&w, &c->row[i]);
    json_end(&w);
    json_end(&w);
    return json_out_line(&w);
}
