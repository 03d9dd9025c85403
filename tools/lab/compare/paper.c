/* Results of cloob next to those that the authors of CLOOB published (paper_tables.csv, data_sets.def). */
#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/text.h"
#include "lab/compare/groups.h"
#include "lab/grid.h"
#include "lab/memory.h"
#include "lab/run_files.h"

/* ---- data sets ----------------------------------------------------------------------------------- */

static const data_set known[] = {
#define SET(...) { __VA_ARGS__ },
#include "lab/compare/data_sets.def"
#undef SET
};
enum { SETS = sizeof known / sizeof *known, TASKS = 2 };
static const char *const task_name[TASKS] = { "zeroshot", "probe" };

/* Letters and digits of one part of a path, in lower case, without the affixes of export programs:
 * "wds_vtab-flowers_test" -> "flowers". */
static void plain_name(const char *part, size_t n, char out[64])
{
    static const char *const around[] = { "wds", "vtab" }, *const end[] = { "test", "val", "validation", "train" };
    size_t len = 0;
    for (size_t i = 0; i < n && part[i] != '.' && len < 63; i++)
        if (isalnum((unsigned char)part[i])) out[len++] = (char)tolower((unsigned char)part[i]);
    out[len] = '\0';
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        if (strncmp(out, around[i], strlen(around[i])) == 0)
            memmove(out, out + strlen(around[i]), strlen(out) - strlen(around[i]) + 1);
    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (text_ends_with(out, end[i])) out[strlen(out) - strlen(end[i])] = '\0';
}

const data_set *data_set_find(const char *name)
{
    char plain[64] = "";
    size_t end = strlen(name);
    while (!*plain && end > 0) { /* of ".../birdsnap/test" the folder above */
        while (end > 0 && name[end - 1] == '/') end--;
        size_t from = end;
        while (from > 0 && name[from - 1] != '/') from--;
        plain_name(name + from, end - from, plain);
        end = from;
    }
    for (int i = 0; i < SETS; i++)
        if (strcmp(known[i].name, plain) == 0 || text_has_word(known[i].other, plain)) return &known[i];
    return NULL;
}

/* ---- our results --------------------------------------------------------------------------------- */

typedef struct scores {
    group_values of[SETS][TASKS]; /* in per cent */
    arena memory;
    int64_t found;
} scores;

static void add(scores *s, const data_set *set, int task, const json *value)
{
    double x;
    if (!set || !json_number(value, &x) || !isfinite(x)) return;
    group_values_add(&s->memory, &s->of[set - known][task], 100 * x);
    s->found++;
}

static bool by_class(const data_set *set) { return set && strcmp(set->metric, "mean_per_class") == 0; }

/* One object of eval suite, of eval zeroshot --json, or of a run's results.jsonl, recognised by its keys. */
static void add_object(scores *s, const json *o)
{
    const json *metrics = json_get(o, "metrics");
    const char *name = json_string(json_get(o, metrics ? "dataset" : "data"));
    const data_set *set = name ? data_set_find(name) : NULL;
    if (!set && json_string(json_get(o, "set"))) set = data_set_find(json_string(json_get(o, "set")));
    if (metrics) {
        const char *task = json_string(json_get(o, "task"));
        bool probe = task && strcmp(task, "linear_probe") == 0;
        const char *key = by_class(set) ? "lp_mean_per_class_recall" : "lp_acc1";
        add(s, set, probe, json_get(metrics, probe ? key : key + 3));
        return;
    }
    if (set) add(s, set, 0, json_get(o, by_class(set) ? "mean_per_class" : "top1"));
    const json *sets = json_get(o, "sets");
    for (const json *each = sets ? sets->child : NULL; each; each = each->next) add_object(s, each);
    add(s, data_set_find("imagenet"), 0, json_get(o, "imagenet-zeroshot-val-top1"));
    add(s, data_set_find("imagenetv2"), 0, json_get(o, "imagenetv2-zeroshot-val-top1"));
}

static cloob_status add_file(cloob_ctx *ctx, scores *s, const char *path)
{
    json_lines lines;
    if (!text_ends_with(path, ".jsonl")) {
        json *root;
        CLOOB_TRY(json_read_file(ctx, &s->memory, path, &root));
        return add_object(s, root), CLOOB_OK;
    }
    CLOOB_TRY(json_lines_read(ctx, &s->memory, path, NULL, &lines));
    for (int64_t i = 0; i < lines.count; i++) add_object(s, lines.line[i]);
    return CLOOB_OK;
}

/* A training run, else the results of a suite: the .json files of the folder. */
static cloob_status add_folder(cloob_ctx *ctx, scores *s, const char *path, DIR *d)
{
    const json *last;
    char file[1400];
    CLOOB_TRY(last_result_read(ctx, &s->memory, path, &last));
    if (last) return add_object(s, last), CLOOB_OK;
    for (struct dirent *e; (e = readdir(d));) {
        if (!text_ends_with(e->d_name, ".json")) continue;
        snprintf(file, sizeof file, "%.1100s/%.255s", path, e->d_name);
        CLOOB_TRY(add_file(ctx, s, file));
    }
    return CLOOB_OK;
}

static cloob_status read_all(cloob_ctx *ctx, scores *s, const char *const *path, int64_t paths)
{
    for (int64_t i = 0; i < paths; i++) {
        DIR *d = opendir(path[i]);
        int64_t before = s->found;
        cloob_status status = d ? add_folder(ctx, s, path[i], d) : add_file(ctx, s, path[i]);
        if (d) closedir(d);
        CLOOB_TRY(status);
        if (s->found == before)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "%s: has no result on a published data set; give the folder of cloob eval suite, a file "
                            "of cloob eval zeroshot `json`, or a run with `imagenet_val`",
                            path[i]);
    }
    return CLOOB_OK;
}

/* ---- their results ------------------------------------------------------------------------------- */

extern const unsigned char asset_paper_tables[];
extern const size_t asset_paper_tables_bytes;

typedef struct paper_row {
    const char *table, *column, *preset;
    const data_set *set;
    int task;
    double mean, deviation; /* deviation NaN: not given */
} paper_row;

typedef struct paper_tables {
    paper_row *row; /* (rows); all columns of a table, one after the other */
    int64_t rows;
    const char *name[16], *title[16]; /* (tables), from the lines "# table NAME: TITLE" */
    int tables;
} paper_tables;

static void take_line(paper_tables *p, char *line)
{
    char *field[7];
    if (strncmp(line, "# table ", 8) == 0 && p->tables < 16) {
        p->name[p->tables] = line + 8;
        char *colon = strchr(line, ':');
        if (colon) *colon = '\0', p->title[p->tables++] = colon + 2;
    }
    if (*line == '#' || strncmp(line, "table,", 6) == 0) return;
    for (int i = 0; i < 7; i++) field[i] = strsep(&line, ",");
    if (!field[6]) return;
    p->row[p->rows++] = (paper_row){ .table = field[0],
                                     .task = strcmp(field[1], task_name[1]) == 0,
                                     .column = field[2],
                                     .preset = field[3],
                                     .set = data_set_find(field[4]),
                                     .mean = strtod(field[5], NULL),
                                     .deviation = *field[6] ? strtod(field[6], NULL) : NAN };
}

static void read_tables(arena *a, paper_tables *p)
{
    int64_t lines = 1;
    char *rest = must(arena_string_n(a, (const char *)asset_paper_tables, asset_paper_tables_bytes));
    for (const char *at = rest; *at; at++) lines += *at == '\n';
    p->row = must(arena_push(a, (size_t)lines * sizeof *p->row));
    for (char *line; (line = strsep(&rest, "\n"));)
        if (*line) take_line(p, line);
}

/* ---- tables -------------------------------------------------------------------------------------- */

static bool is_first(const paper_tables *p, const paper_row *r, bool of_column)
{
    for (const paper_row *q = p->row; q < r; q++)
        if (strcmp(q->table, r->table) == 0 && (of_column ? strcmp(q->column, r->column) == 0 : q->set == r->set))
            return false;
    return true;
}

static const paper_row *cell_of(const paper_tables *p, const paper_row *column, const data_set *set)
{
    for (const paper_row *q = p->row; q < p->row + p->rows; q++)
        if (strcmp(q->table, column->table) == 0 && strcmp(q->column, column->column) == 0 && q->set == set) return q;
    return NULL;
}

/* The rows of `table` that have a result of cloob; all of them when no result was given. */
static const paper_row *next_row(const paper_tables *p, const scores *s, const char *table, const paper_row *after,
                                 bool of_column)
{
    for (const paper_row *q = after ? after + 1 : p->row; q < p->row + p->rows; q++)
        if (strcmp(q->table, table) == 0 && is_first(p, q, of_column) &&
            (of_column || !s->found || s->of[q->set - known][q->task].n))
            return q;
    return NULL;
}

static void add_value(grid *g, double mean, double deviation, int64_t n)
{
    char spread[24] = "", count[24] = "";
    if (isfinite(deviation)) snprintf(spread, sizeof spread, " +- %.2f", deviation);
    if (n > 1) snprintf(count, sizeof count, " (%lld)", (long long)n);
    if (isfinite(mean)) grid_printf(g, "%.2f%s%s", mean, spread, count);
    else grid_text(g, "-");
}

static void put_table(sbuf *out, const paper_tables *p, const scores *s, int t, bool markdown)
{
    const char *table = p->name[t];
    grid g = { .columns = 2 + (s->found > 0) };
    sbuf_printf(out, markdown ? "%s**%s: %s**\n\n" : "%s%s: %s\n", out->len ? "\n" : "", table, p->title[t]);
    grid_texts(&g, "data set", "metric");
    if (s->found) grid_text(&g, "ours");
    for (const paper_row *c = NULL; (c = next_row(p, s, table, c, true)); g.columns++) grid_text(&g, c->column);
    for (const paper_row *r = NULL; (r = next_row(p, s, table, r, false));) {
        group_stats v = group_describe(&s->of[r->set - known][r->task]);
        grid_texts(&g, r->set->title, r->set->metric);
        if (s->found) add_value(&g, v.mean, v.n > 1 ? v.deviation : NAN, v.n);
        for (const paper_row *c = NULL; (c = next_row(p, s, table, c, true));) {
            const paper_row *q = cell_of(p, c, r->set);
            add_value(&g, q ? q->mean : NAN, q ? q->deviation : NAN, 0);
        }
    }
    grid_put(&g, markdown ? GRID_MARKDOWN : GRID_PLAIN, out);
    grid_release(&g);
}

static void put_json(json_out *w, const paper_tables *p, const scores *s, int t)
{
    const char *table = p->name[t];
    json_begin(w, NULL, '{');
    json_members(w, J_TEXT("table", table), J_TEXT("title", p->title[t]));
    json_begin(w, "rows", '[');
    for (const paper_row *r = NULL; (r = next_row(p, s, table, r, false));) {
        group_stats v = group_describe(&s->of[r->set - known][r->task]);
        json_begin(w, NULL, '{');
        json_members(w, J_TEXT("dataset", r->set->name), J_TEXT("task", task_name[r->task]),
                     J_TEXT("metric", r->set->metric));
        json_object(w, "ours", J_OF(&v, n), J_NUMBER("mean", v.mean, 10),
                    J_NUMBER("deviation", v.n > 1 ? v.deviation : NAN, 10));
        json_begin(w, "paper", '[');
        for (const paper_row *c = NULL; (c = next_row(p, s, table, c, true));) {
            const paper_row *q = cell_of(p, c, r->set);
            if (q)
                json_object(w, NULL, J_OF(q, column), J_OF(q, preset), J_NUMBER("mean", q->mean, 10),
                            J_NUMBER("deviation", q->deviation, 10));
        }
        json_end(w);
        json_end(w);
    }
    json_end(w);
    json_end(w);
}

static bool has_any(const paper_tables *p, const scores *s)
{
    for (int t = 0; t < p->tables; t++)
        if (next_row(p, s, p->name[t], NULL, false)) return true;
    return false;
}

static char *all_tables(const paper_tables *p, const scores *s, const char *format)
{
    json_out w = { .spaced = true };
    sbuf out = { 0 };
    bool as_json = strcmp(format, "json") == 0;
    if (as_json) json_begin(&w, NULL, '[');
    for (int t = 0; t < p->tables; t++) {
        if (!next_row(p, s, p->name[t], NULL, false)) continue;
        if (as_json) put_json(&w, p, s, t);
        else put_table(&out, p, s, t, strcmp(format, "markdown") == 0);
    }
    if (!as_json) return sbuf_detach(&out);
    json_end(&w);
    return json_out_line(&w);
}

cloob_status compare_paper(cloob_ctx *ctx, const char *const *path, int64_t paths, const char *format, char **text)
{
    scores *s = must(calloc(1, sizeof *s));
    paper_tables p = { 0 };
    *text = NULL;
    cloob_status status = read_all(ctx, s, path, paths);
    read_tables(&s->memory, &p);
    if (status == CLOOB_OK && !has_any(&p, s))
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: no published table has its data sets", path[0]);
    if (status == CLOOB_OK) *text = must(all_tables(&p, s, format));
    arena_release(&s->memory);
    free(s);
    return status;
}
