/* Results in and out: CLIP_benchmark's JSON and CSV, DataComp's lines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/suite/suite.h"
#include "core/json.h"
#include "core/text.h"

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
    sbuf s;
    if (!r || !r->dataset) return NULL;
    json_begin(&w, NULL, '{');
    json_members(&w, J_OF(r, dataset), J_OF(r, model), J_OF(r, pretrained), J_OF(r, task));
    put_metrics(&w, r);
    json_end(&w);
    json_members(&w, J_OF(r, language), J_TEXT("weights", r->stamp), J_OF(r, n), J_OF(r, bad), J_OF(r, shots));
    json_end(&w);
    json_out_back(&w, &s);
    return sbuf_detach(&s);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

char *benchmark_file_name(const benchmark_result *r)
{
    sbuf s = { 0 };
    if (!r || !r->dataset) return NULL;
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
    return strdup(text ? text : "");
}

static cloob_status take(cloob_ctx *ctx, const json *root, const char *path, benchmark_result *r)
{
    const json *metrics = json_get(root, "metrics");
    bool ok = true;
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
    ok = r->dataset && r->model && r->pretrained && r->task && r->language && r->stamp;
    json_int(json_get(root, "n"), &r->n), json_int(json_get(root, "bad"), &r->bad);
    json_int(json_get(root, "shots"), &r->shots);
    for (const json *m = metrics->child; m && ok; m = m->next)
        if (m->kind == JSON_NUMBER || m->kind == JSON_NULL)
            ok = result_score(r, m->key, m->kind == JSON_NUMBER ? m->number : NAN);
    if (ok) {
        result_know(r);
        return CLOOB_OK;
    }
    benchmark_release(r);
    return ctx_no_memory(ctx, 256, path);
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
    if (!r && n) return NULL;
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
    if ((!r && n) || !pretrained) return NULL;
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
