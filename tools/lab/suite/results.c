/* Results in and out: CLIP_benchmark's JSON and CSV, DataComp's lines, a table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/suite/suite.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "lab/grid.h"
#include "lab/memory.h"

/* ---- JSON ---------------------------------------------------------------------------------------- */

/* "metrics", left open. */
static void put_metrics(json_out *w, const benchmark_result *r)
{
    json_begin(w, "metrics", '{');
    for (int64_t i = 0; i < r->scores; i++) json_put_number(w, r->score[i].name, r->score[i].value);
}

char *benchmark_json(const benchmark_result *r)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_members(&w, J_OF(r, dataset), J_OF(r, model), J_OF(r, pretrained), J_OF(r, task));
    put_metrics(&w, r);
    json_end(&w);
    json_members(&w, J_OF(r, language), J_TEXT("weights", r->stamp), J_OF(r, n), J_OF(r, bad), J_OF(r, shots),
                 J_OF(r, main_metric));
    json_end(&w);
    return json_out_line(&w);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

char *benchmark_file_name(const benchmark_result *r)
{
    sbuf s = { 0 };
    sbuf_printf(&s, "%s_%s_%s_%s_%s", r->dataset, last_part(r->pretrained), r->model, r->language, r->task);
    if (r->shots > 0) sbuf_printf(&s, "_%lldshot", (long long)r->shots);
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] == '/' || (unsigned char)s.data[i] < ' ') s.data[i] = '_';
    sbuf_puts(&s, ".json");
    return sbuf_detach(&s);
}

static char *copy_of(const json *root, const char *key)
{
    const char *text = json_string(json_get(root, key));
    return must(strdup(text ? text : ""));
}

static cloob_status take(cloob_ctx *ctx, const json *root, const char *path, benchmark_result *r)
{
    const json *metrics = json_get(root, "metrics");
    if (!metrics || metrics->kind != JSON_OBJECT || !json_string(json_get(root, "dataset")) ||
        !json_string(json_get(root, "task")))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no result of a benchmark (dataset, task, metrics)", path);
    *r = (benchmark_result){ .dataset = copy_of(root, "dataset"),
                             .model = copy_of(root, "model"),
                             .pretrained = copy_of(root, "pretrained"),
                             .task = copy_of(root, "task"),
                             .language = copy_of(root, "language"),
                             .stamp = copy_of(root, "weights"),
                             .shots = -1 };
    json_int(json_get(root, "n"), &r->n), json_int(json_get(root, "bad"), &r->bad);
    json_int(json_get(root, "shots"), &r->shots);
    for (const json *m = metrics->child; m; m = m->next)
        if (m->kind == JSON_NUMBER || m->kind == JSON_NULL)
            result_score(r, m->key, m->kind == JSON_NUMBER ? m->number : NAN);
    result_know(r);
    return CLOOB_OK;
}

cloob_status benchmark_read(cloob_ctx *ctx, const char *path, benchmark_result *out)
{
    arena a = { 0 };
    json *root;
    *out = (benchmark_result){ 0 };
    cloob_status status = json_read_file(ctx, &a, path, &root);
    if (status == CLOOB_OK) status = take(ctx, root, path, out);
    arena_release(&a);
    return status;
}

/* ---- CSV ----------------------------------------------------------------------------------------- */

/* Whether an earlier result, or an earlier score of the same one, has the name. */
static bool seen(const benchmark_result *r, int64_t at, int64_t score)
{
    const char *name = r[at].score[score].name;
    for (int64_t i = 0; i <= at; i++)
        for (int64_t k = 0; k < (i == at ? score : r[i].scores); k++)
            if (strcmp(r[i].score[k].name, name) == 0) return true;
    return false;
}

static void put_row(sbuf *s, const benchmark_result *all, int64_t n, const benchmark_result *r)
{
    const char *text[] = { r->dataset, r->model, r->pretrained, r->task, r->language };
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < all[i].scores; k++) {
            if (seen(all, i, k)) continue;
            double v = benchmark_metric(r, all[i].score[k].name);
            if (isfinite(v)) json_print_number(s, v);
            sbuf_putc(s, ',');
        }
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) csv_put(s, text[i]), sbuf_putc(s, ',');
    sbuf full = { 0 };
    sbuf_printf(&full, "%s %s", r->model, r->pretrained);
    csv_put(s, full.data ? full.data : "");
    sbuf_putc(s, '\n');
    s->failed |= full.failed;
    sbuf_release(&full);
}

char *benchmark_csv(const benchmark_result *r, int64_t n)
{
    sbuf s = { 0 };
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < r[i].scores; k++)
            if (!seen(r, i, k)) csv_put(&s, r[i].score[k].name), sbuf_putc(&s, ',');
    sbuf_puts(&s, "dataset,model,pretrained,task,language,model_fullname\n");
    for (int64_t i = 0; i < n; i++) put_row(&s, r, n, &r[i]);
    return sbuf_detach(&s);
}

/* ---- DataComp ------------------------------------------------------------------------------------ */

char *datacomp_lines(const benchmark_result *r, int64_t n, const char *pretrained)
{
    sbuf s = { 0 };
    for (int64_t i = 0; i < n; i++) {
        if (!r[i].key || strcmp(r[i].pretrained, pretrained) != 0) continue;
        json_out w = { .spaced = true };
        json_begin(&w, NULL, '{');
        json_members(&w, J_TEXT("key", r[i].key), J_TEXT("dataset", r[i].title));
        put_metrics(&w, &r[i]);
        json_put_number(&w, "main_metric", r[i].main_metric ? benchmark_metric(&r[i], r[i].main_metric) : NAN);
        json_end(&w);
        json_end(&w);
        json_out_append(&w, &s);
    }
    if (!s.data) sbuf_puts(&s, "");
    return sbuf_detach(&s);
}

/* ---- results as a table: a row per data set and task, a column per model, the main metric in the cells --- */

typedef struct bench_row {
    const char *name, *metric; /* metric "": the set has no main metric, or is not there */
    double *value;             /* (models) NaN: not evaluated */
    bool there;                /* some model was evaluated */
} bench_row;

typedef struct bench_table {
    arena memory;
    const char **model; /* (models) names that distinguish them */
    int64_t models;
    bench_row *row;
    int64_t rows, room;
} bench_table;

static int64_t model_of(const benchmark_result *r, int64_t i)
{
    int64_t models = 0;
    for (int64_t k = 0; k <= i; k++) {
        bool first = true;
        for (int64_t j = 0; j < k && first; j++) first = strcmp(r[j].pretrained, r[k].pretrained) != 0;
        if (strcmp(r[k].pretrained, r[i].pretrained) == 0) return models;
        models += first;
    }
    return models;
}

/* The file's name, or the whole path where two files have the same name. */
static void name_models(const benchmark_result *r, int64_t n, bench_table *t)
{
    t->model = must(arena_push(&t->memory, (size_t)(n + 1) * sizeof *t->model));
    for (int64_t i = 0; i < n; i++)
        if (model_of(r, i) == t->models) t->model[t->models++] = r[i].pretrained;
    for (int64_t i = 0; i < t->models; i++) {
        bool alone = true;
        for (int64_t k = 0; k < t->models && alone; k++)
            alone = k == i || strcmp(last_part(t->model[k]), last_part(t->model[i])) != 0 ||
                    strcmp(t->model[k], last_part(t->model[k])) == 0;
        if (alone) t->model[i] = last_part(t->model[i]);
    }
}

static bench_row *add_row(bench_table *t, const char *name, const char *metric, bool there)
{
    t->row = must(arena_grow(&t->memory, t->row, t->rows, &t->room, 64, sizeof *t->row));
    bench_row *row = &t->row[t->rows++];
    *row = (bench_row){ name, metric ? metric : "", must(arena_push(&t->memory, (size_t)(t->models + 1) * 8)), there };
    for (int64_t m = 0; m < t->models; m++) row->value[m] = NAN;
    return row;
}

static void put_value(const benchmark_result *r, int64_t i, bench_row *row)
{
    row->value[model_of(r, i)] = r[i].main_metric ? benchmark_metric(&r[i], r[i].main_metric) : NAN;
    row->there = true;
}

/* DataComp's sets in its order, then its summary: ImageNet is a row of its own; means are over the sets that are
 * there. */
static void add_datacomp(const benchmark_result *r, int64_t n, bench_table *t)
{
    static const struct {
        const char *name;
        int group;
    } means[] = { { "mean: ImageNet shifts", DATACOMP_SHIFT },
                  { "mean: VTAB", DATACOMP_VTAB },
                  { "mean: retrieval", DATACOMP_RETRIEVAL },
                  { "mean: all", 0 } };
    for (const datacomp_set *set; (set = datacomp_at((int)t->rows));) {
        bench_row *row = add_row(t, set->title, set->main_metric, false);
        for (int64_t i = 0; i < n; i++)
            if (r[i].key && strcmp(r[i].key, set->key) == 0) put_value(r, i, row);
    }
    for (size_t k = 0; k < sizeof means / sizeof *means; k++) {
        bench_row *row = add_row(t, means[k].name, "", true);
        for (int64_t m = 0; m < t->models; m++) {
            double sum = 0;
            int64_t count = 0;
            for (int i = 0; datacomp_at(i); i++) {
                double v = t->row[i].value[m];
                bool counts = !means[k].group || (datacomp_at(i)->groups & means[k].group);
                if (counts && isfinite(v)) sum += v, count++;
            }
            if (count) row->value[m] = sum / (double)count;
        }
    }
}

static bool same_task(const benchmark_result *a, const benchmark_result *b)
{
    return strcmp(a->dataset, b->dataset) == 0 && strcmp(a->task, b->task) == 0 && a->shots == b->shots;
}

static void add_others(const benchmark_result *r, int64_t n, bool datacomp, bench_table *t)
{
    for (int64_t i = 0; i < n; i++) {
        bool first = !datacomp || !r[i].key;
        for (int64_t k = 0; k < i && first; k++) first = !same_task(&r[k], &r[i]);
        if (!first) continue;
        bench_row *row = add_row(t, r[i].dataset, r[i].main_metric, true);
        if (r[i].shots > 0) {
            char name[512];
            snprintf(name, sizeof name, "%s, %lld shots", r[i].dataset, (long long)r[i].shots);
            row->name = must(arena_string(&t->memory, name));
        }
        for (int64_t k = i; k < n; k++)
            if (same_task(&r[k], &r[i])) put_value(r, k, row);
    }
}

/* datacomp: its sets first, all of them; then whatever else was evaluated. The best of several models is in bold. */
static grid main_table(const benchmark_result *r, int64_t n, bool datacomp)
{
    bench_table t = { 0 };
    name_models(r, n, &t);
    if (datacomp) add_datacomp(r, n, &t);
    add_others(r, n, datacomp, &t);
    grid g = { .columns = 2 + t.models, .format = "%.4f" };
    grid_texts(&g, "data set", "metric");
    grid_row(&g, t.model, (size_t)t.models);
    for (const bench_row *row = t.row; row < t.row + t.rows; row++) {
        double best = NAN;
        for (int64_t m = 0; m < t.models && t.models > 1; m++)
            if (isfinite(row->value[m]) && !(row->value[m] <= best)) best = row->value[m];
        grid_texts(&g, row->name, row->metric);
        for (int64_t m = 0; m < t.models; m++) {
            if (isfinite(row->value[m])) grid_share(&g, row->value[m]);
            else grid_text(&g, row->there ? "–" : "not there");
            grid_bold(&g, row->value[m] == best);
        }
    }
    arena_release(&t.memory);
    return g;
}

char *benchmark_table(const benchmark_result *r, int64_t n, bool datacomp)
{
    sbuf s = { 0 };
    grid g = main_table(r, n, datacomp);
    grid_put(&g, GRID_PLAIN, &s);
    grid_release(&g);
    return sbuf_detach(&s);
}
