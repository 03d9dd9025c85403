#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/suite/suite.h"
#include "core/sbuf.h"

enum { SETS = 64, MEANS = 5 };

/* ---- models -------------------------------------------------------------------------------------- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

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
static bool name_models(arena *a, const benchmark_result *r, int64_t n, bench_table *t)
{
    t->model = arena_push(a, (size_t)(n + 1) * sizeof *t->model);
    if (!t->model) return false;
    for (int64_t i = 0; i < n; i++) {
        int64_t m = model_of(r, i);
        if (m < t->models) continue;
        t->model[t->models++] = r[i].pretrained;
    }
    for (int64_t i = 0; i < t->models; i++) {
        bool alone = true;
        for (int64_t k = 0; k < t->models && alone; k++)
            alone = k == i || strcmp(last_part(t->model[k]), last_part(t->model[i])) != 0 ||
                    strcmp(t->model[k], last_part(t->model[k])) == 0;
        if (alone) t->model[i] = last_part(t->model[i]);
    }
    return true;
}

/* ---- rows ---------------------------------------------------------------------------------------- */

static bench_row *add_row(arena *a, bench_table *t, const char *name, const char *metric, double **value)
{
    *value = arena_push(a, (size_t)(t->models + 1) * sizeof **value);
    if (!*value) return NULL;
    for (int64_t m = 0; m < t->models; m++) (*value)[m] = NAN;
    bench_row *row = &t->row[t->rows++];
    *row = (bench_row){ name, metric ? metric : "", *value, false };
    return row;
}

static double main_value(const benchmark_result *r)
{
    return r->main_metric ? benchmark_metric(r, r->main_metric) : NAN;
}

static bool add_datacomp(arena *a, const benchmark_result *r, int64_t n, bench_table *t)
{
    double *value;
    for (int k = 0; datacomp_at(k); k++) {
        const datacomp_set *set = datacomp_at(k);
        bench_row *row = add_row(a, t, set->title, set->main_metric, &value);
        if (!row) return false;
        for (int64_t i = 0; i < n; i++)
            if (r[i].key && strcmp(r[i].key, set->key) == 0)
                value[model_of(r, i)] = main_value(&r[i]), row->there = true;
        t->missing += !row->there && set->main_metric;
    }
    return true;
}

/* DataComp's summary: ImageNet is a row of its own above; means are over the sets that are there. */
static bool add_means(arena *a, bench_table *t)
{
    static const struct {
        const char *name;
        int group;
    } means[MEANS] = { { "mean: ImageNet shifts", DATACOMP_SHIFT },
                       { "mean: VTAB", DATACOMP_VTAB },
                       { "mean: retrieval", DATACOMP_RETRIEVAL },
                       { "mean: all", 0 } };
    for (int k = 0; means[k].name; k++) {
        double *value;
        bench_row *row = add_row(a, t, means[k].name, "", &value);
        if (!row) return false;
        row->there = true;
        for (int64_t m = 0; m < t->models; m++) {
            double sum = 0;
            int64_t count = 0;
            for (int i = 0; datacomp_at(i); i++) {
                double v = t->row[i].value[m];
                bool counts = !means[k].group || (datacomp_at(i)->groups & means[k].group);
                if (counts && isfinite(v)) sum += v, count++;
            }
            if (count) value[m] = sum / (double)count;
        }
    }
    return true;
}

static bool add_others(arena *a, const benchmark_result *r, int64_t n, bool datacomp, bench_table *t)
{
    for (int64_t i = 0; i < n; i++) {
        double *value;
        bool first = true;
        if (datacomp && r[i].key) continue;
        for (int64_t k = 0; k < i && first; k++)
            first = strcmp(r[k].dataset, r[i].dataset) != 0 || strcmp(r[k].task, r[i].task) != 0 ||
                    r[k].shots != r[i].shots;
        if (!first) continue;
        bench_row *row = add_row(a, t, r[i].dataset, r[i].main_metric, &value);
        if (!row) return false;
        row->there = true;
        if (r[i].shots > 0) {
            char name[512];
            snprintf(name, sizeof name, "%s, %lld shots", r[i].dataset, (long long)r[i].shots);
            if (!(row->name = arena_string(a, name))) return false;
        }
        for (int64_t k = i; k < n; k++)
            if (strcmp(r[k].dataset, r[i].dataset) == 0 && strcmp(r[k].task, r[i].task) == 0 &&
                r[k].shots == r[i].shots)
                value[model_of(r, k)] = main_value(&r[k]);
    }
    return true;
}

bool bench_table_make(arena *a, const benchmark_result *r, int64_t n, bool datacomp, bench_table *out)
{
    *out = (bench_table){ 0 };
    out->row = arena_push(a, (size_t)(n + SETS + MEANS) * sizeof *out->row);
    if (!out->row || !name_models(a, r, n, out)) return false;
    if (datacomp && (!add_datacomp(a, r, n, out) || !add_means(a, out))) return false;
    return add_others(a, r, n, datacomp, out);
}

/* ---- as text ------------------------------------------------------------------------------------- */

static void put_row(sbuf *s, const bench_table *t, const bench_row *row, int name, const int *width)
{
    sbuf_printf(s, "%-*s  %-24s", name, row->name, row->metric);
    for (int64_t m = 0; m < t->models; m++) {
        if (isfinite(row->value[m])) sbuf_printf(s, "  %*.4f", width[m], row->value[m]);
        else sbuf_printf(s, "  %*s", width[m], row->there ? "-" : "not there");
    }
    sbuf_putc(s, '\n');
}

char *benchmark_table(const benchmark_result *r, int64_t n, bool datacomp)
{
    arena a = { 0 };
    bench_table t;
    sbuf s = { 0 };
    if ((!r && n) || !bench_table_make(&a, r, n, datacomp, &t)) return NULL;
    int *width = arena_push(&a, (size_t)(t.models + 1) * sizeof *width), name = 8;
    for (int64_t i = 0; i < t.rows; i++)
        if ((int)strlen(t.row[i].name) > name) name = (int)strlen(t.row[i].name);
    sbuf_printf(&s, "%-*s  %-24s", name, "data set", "metric");
    for (int64_t m = 0; m < t.models && width; m++) {
        width[m] = (int)strlen(t.model[m]) > 9 ? (int)strlen(t.model[m]) : 9;
        sbuf_printf(&s, "  %*s", width[m], t.model[m]);
    }
    sbuf_putc(&s, '\n');
    for (int64_t i = 0; i < t.rows && width; i++) put_row(&s, &t, &t.row[i], name, width);
    if (!width) s.failed = true;
    arena_release(&a);
    return sbuf_detach(&s);
}
