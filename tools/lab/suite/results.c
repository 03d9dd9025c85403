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
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not a result of a benchmark (needs dataset, task, metrics)", path);
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

/* True when an earlier result, or an earlier score of the same result, has the name. */
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

/* The distinct weights, in order of appearance. The caller frees *out. */
static int64_t list_models(const benchmark_result *r, int64_t n, const char ***out)
{
    int64_t models = 0;
    *out = must(malloc((size_t)(n + 1) * sizeof **out));
    for (int64_t i = 0; i < n; i++) {
        bool known = false;
        for (int64_t k = 0; k < models; k++) known |= strcmp((*out)[k], r[i].pretrained) == 0;
        if (!known) (*out)[models++] = r[i].pretrained;
    }
    return models;
}

/* The file's name, or the whole path where two files have the same name. */
static const char *short_name(const char *const *path, int64_t n, int64_t at)
{
    for (int64_t k = 0; k < n; k++)
        if (k != at && strcmp(last_part(path[k]), last_part(path[at])) == 0) return path[at];
    return last_part(path[at]);
}

/* One table: its models, and the values of the row that is being filled. */
typedef struct table {
    grid g;
    const benchmark_result *r;
    int64_t n, models;
    const char **model;
    double *value; /* (models) NaN: not evaluated, or no main metric */
    bool there;    /* some model was evaluated */
} table;

static bool is_of_set(const benchmark_result *r, const void *set)
{
    return r->key && strcmp(r->key, ((const datacomp_set *)set)->key) == 0;
}

static bool is_same_task(const benchmark_result *r, const void *other)
{
    const benchmark_result *o = other;
    return strcmp(r->dataset, o->dataset) == 0 && strcmp(r->task, o->task) == 0 && r->shots == o->shots;
}

/* The values of every model's result that is `of` something. */
static void fill_values(table *t, bool (*is)(const benchmark_result *r, const void *of), const void *of)
{
    t->there = false;
    for (int64_t m = 0; m < t->models; m++) t->value[m] = NAN;
    for (int64_t i = 0; i < t->n; i++) {
        if (!is(&t->r[i], of)) continue;
        t->there = true;
        for (int64_t m = 0; m < t->models; m++)
            if (strcmp(t->model[m], t->r[i].pretrained) == 0)
                t->value[m] = benchmark_metric(&t->r[i], t->r[i].main_metric);
    }
}

/* The best of several models is in bold. */
static void add_row(table *t, const char *name, const char *metric)
{
    double best = NAN;
    for (int64_t m = 0; m < t->models && t->models > 1; m++) best = fmax(best, t->value[m]); /* skips NaN */
    grid_texts(&t->g, name, metric);
    for (int64_t m = 0; m < t->models; m++) {
        if (isfinite(t->value[m])) grid_share(&t->g, t->value[m]);
        else grid_text(&t->g, t->there ? "–" : "not there");
        grid_bold(&t->g, t->value[m] == best);
    }
}

/* DataComp's sets in its order, then its summary: ImageNet is a row of its own; means are over the sets that are
 * there. */
static void add_datacomp(table *t)
{
    static const struct {
        const char *name;
        int group;
    } means[] = { { "mean: ImageNet shifts", DATACOMP_SHIFT },
                  { "mean: VTAB", DATACOMP_VTAB },
                  { "mean: retrieval", DATACOMP_RETRIEVAL },
                  { "mean: all", 0 } };
    enum { MEANS = sizeof means / sizeof *means };
    double *sum = must(calloc((size_t)(MEANS * t->models + 1), sizeof *sum));
    int64_t *count = must(calloc((size_t)(MEANS * t->models + 1), sizeof *count));
    const datacomp_set *set;
    for (int i = 0; (set = datacomp_at(i)); i++) {
        fill_values(t, is_of_set, set);
        add_row(t, set->title, set->main_metric);
        for (int64_t k = 0; k < MEANS * t->models; k++) {
            double v = t->value[k % t->models];
            int group = means[k / t->models].group;
            if (isfinite(v) && (!group || (set->groups & group))) sum[k] += v, count[k]++;
        }
    }
    t->there = true;
    for (int64_t k = 0; k < MEANS; k++) {
        for (int64_t m = 0; m < t->models; m++) {
            int64_t at = k * t->models + m;
            t->value[m] = count[at] ? sum[at] / (double)count[at] : NAN;
        }
        add_row(t, means[k].name, "");
    }
    free(sum), free(count);
}

static void add_others(table *t, bool datacomp)
{
    for (int64_t i = 0; i < t->n; i++) {
        const benchmark_result *r = &t->r[i];
        char name[512];
        bool first = !datacomp || !r->key;
        for (int64_t k = 0; k < i && first; k++) first = !is_same_task(&t->r[k], r);
        if (!first) continue;
        snprintf(name, sizeof name, r->shots > 0 ? "%s, %lld shots" : "%s", r->dataset, (long long)r->shots);
        fill_values(t, is_same_task, r);
        add_row(t, name, r->main_metric);
    }
}

/* datacomp: all of DataComp's sets first, then the other evaluated sets. */
char *benchmark_table(const benchmark_result *r, int64_t n, bool datacomp)
{
    sbuf s = { 0 };
    table t = { .g = { .format = "%.4f" }, .r = r, .n = n };
    t.models = list_models(r, n, &t.model);
    t.value = must(malloc((size_t)(t.models + 1) * sizeof *t.value));
    t.g.columns = 2 + t.models;
    grid_texts(&t.g, "data set", "metric");
    for (int64_t m = 0; m < t.models; m++) grid_text(&t.g, short_name(t.model, t.models, m));
    if (datacomp) add_datacomp(&t);
    add_others(&t, datacomp);
    grid_put(&t.g, GRID_PLAIN, &s);
    grid_release(&t.g);
    free(t.model), free(t.value);
    return sbuf_detach(&s);
}
