/* Charts and tables as files: those of a page, those of an analysis, and those of your own numbers. */
#include "lab/report/export.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "lab/report/report.h"

/* The way from one absolute folder to another, "" or with a slash at its end; NULL: memory is out. */
static char *way(const char *from, const char *to)
{
    sbuf s = { 0 };
    size_t same = 0; /* bytes of the folders that both share */
    for (size_t i = 0;; i++) {
        if ((!from[i] || from[i] == '/') && (!to[i] || to[i] == '/')) same = i;
        if (!from[i] || from[i] != to[i]) break;
    }
    for (const char *c = from + same; *c; c++)
        if (*c == '/') sbuf_puts(&s, "../");
    if (to[same]) sbuf_printf(&s, "%s/", to + same + 1);
    else sbuf_puts(&s, "");
    if (!s.failed) return s.data ? s.data : strdup("");
    sbuf_release(&s);
    return NULL;
}

static char *way_to(const char *dir, const char *page)
{
    const char *slash = strrchr(page, '/');
    char *folder = !slash ? strdup(".") : strndup(page, slash == page ? 1 : (size_t)(slash - page));
    char *from = folder ? realpath(folder, NULL) : NULL, *to = realpath(dir, NULL);
    char *found = from && to ? way(from, to) : NULL;
    free(folder), free(from), free(to);
    return found;
}

void export_begin(export_files *e, cloob_ctx *ctx, const char *dir, const char *page)
{
    *e = (export_files){ .ctx = ctx, .dir = dir };
    if (dir) e->status = file_make_dirs(ctx, dir);
    if (dir && e->status == CLOOB_OK) e->href = way_to(dir, page);
}

void export_end(export_files *e)
{
    free(e->href);
    e->href = NULL;
}

/* "Recall, image to text" -> "recall-image-to-text" */
static void name_of(const char *title, char out[96])
{
    size_t n = 0;
    for (const char *c = title; *c && n < 90; c++) {
        if (isalnum((unsigned char)*c)) out[n++] = (char)tolower((unsigned char)*c);
        else if (n && out[n - 1] != '-') out[n++] = '-';
    }
    while (n && out[n - 1] == '-') n--;
    out[n] = '\0';
}

void export_file(export_files *e, const char *name, const char *ending, const sbuf *text)
{
    char file[128];
    if (e->status != CLOOB_OK) return;
    snprintf(file, sizeof file, "%s.%s", name, ending);
    e->status = file_write_in(e->ctx, e->dir, file, text);
    e->files += e->status == CLOOB_OK;
}

/* ---- charts -------------------------------------------------------------------------------------- */

static bool has_bands(const chart *c)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->series[i].low && c->series[i].high) return true;
    return false;
}

static void put_point(sbuf *csv, const chart *c, const chart_series *s, int64_t k, bool bands)
{
    int64_t at = (int64_t)s->x[k];
    csv_put(csv, s->name);
    sbuf_putc(csv, ',');
    if (c->category && at < c->categories) csv_put(csv, c->category[at]);
    else sbuf_printf(csv, "%.9g", s->x[k]);
    sbuf_printf(csv, ",%.9g", s->y[k]);
    if (bands && s->low && s->high) sbuf_printf(csv, ",%.9g,%.9g", s->low[k], s->high[k]);
    else if (bands) sbuf_puts(csv, ",,");
    sbuf_putc(csv, '\n');
}

static void put_link(const export_files *e, const char *name, const char *ending, const char *text, sbuf *links)
{
    if (!e->href || !links) return;
    html_put(links, "<a href=\"%s%s.%s\">%s</a> ", e->href, name, ending, text);
}

/* links may be NULL. False: the build has no cairo, only the CSV is written. */
static bool export_chart_as(export_files *e, const char *name, const chart *c, sbuf *links)
{
    static const struct {
        chart_frame frame;
        const char *ending, *text;
    } drawing[] = { { CHART_ALONE, "svg", "SVG" }, { CHART_PDF, "pdf", "PDF" } };
    bool bands = has_bands(c), drawn = true;
    sbuf csv = { 0 };
    if (!e->dir || e->status != CLOOB_OK) return false;
    for (int i = 0; i < 2; i++) {
        sbuf out = { 0 };
        drawn = drawn && chart_draw(&out, c, drawing[i].frame);
        if (drawn) export_file(e, name, drawing[i].ending, &out);
        if (drawn) put_link(e, name, drawing[i].ending, drawing[i].text, links);
        sbuf_release(&out);
    }
    sbuf_puts(&csv, "series,");
    csv_put(&csv, *c->x_label ? c->x_label : "category");
    sbuf_putc(&csv, ',');
    csv_put(&csv, c->y_label);
    sbuf_puts(&csv, bands ? ",low,high\n" : "\n");
    for (int64_t i = 0; i < c->count; i++)
        for (int64_t k = 0; k < c->series[i].n; k++) put_point(&csv, c, &c->series[i], k, bands);
    export_file(e, name, "csv", &csv);
    put_link(e, name, "csv", "CSV", links);
    sbuf_release(&csv);
    return drawn;
}

void export_chart(export_files *e, const chart *c, sbuf *links)
{
    char name[96];
    name_of(c->title, name);
    export_chart_as(e, name, c, links);
}

void export_grid(export_files *e, const char *name, const grid *g)
{
    static const struct {
        grid_form form;
        const char *ending;
    } forms[] = { { GRID_CSV, "csv" }, { GRID_LATEX, "tex" }, { GRID_MARKDOWN, "md" } };
    for (int i = 0; i < 3 && e->dir && g->cells > g->columns; i++) {
        sbuf out = { 0 };
        grid_put(g, forms[i].form, &out);
        export_file(e, name, forms[i].ending, &out);
        sbuf_release(&out);
    }
}

/* ---- a figure of your own numbers, from JSON -------------------------------------------------------- */

typedef struct reader {
    cloob_ctx *ctx;
    const char *path;
    arena *a;
} reader;

static cloob_status bad(const reader *r, const char *what)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %s", r->path, what);
}

static const char *text_of(const json *o, const char *key)
{
    const char *s = json_string(json_get(o, key));
    return s ? s : "";
}

static bool flag(const json *o, const char *key)
{
    const json *v = json_get(o, key);
    return v && v->kind == JSON_BOOL && v->boolean;
}

/* n numbers under a key. */
static cloob_status numbers(const reader *r, const json *o, const char *key, int64_t n, double **out)
{
    const json *list = json_get(o, key);
    int64_t i = 0;
    if (!list || list->kind != JSON_ARRAY || list->count != n)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" of series \"%.60s\" must be a list of %lld numbers",
                        r->path, key, text_of(o, "name"), (long long)n);
    *out = arena_push(r->a, (size_t)(n + 1) * sizeof **out);
    if (!*out) return ctx_no_memory(r->ctx, (size_t)n * sizeof **out, r->path);
    for (const json *v = list->child; v; v = v->next) {
        if (v->kind != JSON_NUMBER) return bad(r, "a list holds something that is no number");
        (*out)[i++] = v->number;
    }
    return CLOOB_OK;
}

static cloob_status add_series(const reader *r, const json *o, chart *c)
{
    const json *points = json_get(o, "y");
    int64_t n = points && points->kind == JSON_ARRAY ? points->count : 0, color = c->count;
    double *x, *y, *low = NULL, *high = NULL;
    CLOOB_TRY(numbers(r, o, "x", n, &x));
    CLOOB_TRY(numbers(r, o, "y", n, &y));
    if (json_get(o, "low")) CLOOB_TRY(numbers(r, o, "low", n, &low));
    if (low) CLOOB_TRY(numbers(r, o, "high", n, &high));
    json_int(json_get(o, "color"), &color);
    chart_series *s = chart_add(r->a, c, text_of(o, "name"), (int)(color & 7), n);
    if (!s) return ctx_no_memory(r->ctx, (size_t)n * sizeof(double), r->path);
    for (int64_t i = 0; i < n; i++) {
        if (low) chart_band_point(r->a, c, s, n, x[i], y[i], low[i], high[i]);
        else chart_point(c, s, x[i], y[i]);
    }
    return CLOOB_OK;
}

static cloob_status read_categories(const reader *r, const json *list, chart *c)
{
    if (!list) return CLOOB_OK;
    const char **name = arena_push(r->a, (size_t)(list->count + 1) * sizeof *name);
    if (!name) return ctx_no_memory(r->ctx, (size_t)list->count * sizeof *name, r->path);
    for (const json *v = list->child; v; v = v->next) {
        if (!json_string(v)) return bad(r, "\"categories\" must be a list of texts");
        name[c->categories++] = json_string(v);
    }
    c->category = name;
    return CLOOB_OK;
}

static cloob_status read_chart(const reader *r, const json *root, chart *c)
{
    const json *series = json_get(root, "series");
    *c = (chart){ .title = text_of(root, "title"),
                  .x_label = text_of(root, "x_label"),
                  .y_label = text_of(root, "y_label") };
    c->log_y = flag(root, "log_y"), c->from_zero = flag(root, "from_zero"), c->bars = flag(root, "bars");
    CLOOB_TRY(read_categories(r, json_get(root, "categories"), c));
    for (const json *s = series ? series->child : NULL; s; s = s->next) CLOOB_TRY(add_series(r, s, c));
    if (c->bars && !c->category) return bad(r, "bars need \"categories\"");
    return chart_points(c) ? CLOOB_OK : bad(r, "\"series\" holds no point");
}

static cloob_status draw_file(cloob_ctx *ctx, const char *path, export_files *e)
{
    arena a = { 0 };
    reader r = { ctx, path, &a };
    json *root;
    chart c;
    cloob_status status = json_read_file(ctx, &a, path, &root);
    if (status == CLOOB_OK && !*text_of(root, "name")) status = bad(&r, "needs a \"name\" for the files");
    if (status == CLOOB_OK && strpbrk(text_of(root, "name"), "/\\"))
        status = bad(&r, "\"name\" is a file name, not a path");
    if (status == CLOOB_OK) status = read_chart(&r, root, &c);
    if (status == CLOOB_OK && !export_chart_as(e, text_of(root, "name"), &c, NULL) && e->status == CLOOB_OK)
        status = ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, CHART_NO_CAIRO);
    arena_release(&a);
    return status == CLOOB_OK ? e->status : status;
}

cloob_status figure_file_write(cloob_ctx *ctx, const char *path, const char *dir)
{
    export_files e;
    export_begin(&e, ctx, dir, dir);
    cloob_status status = e.status == CLOOB_OK ? draw_file(ctx, path, &e) : e.status;
    export_end(&e);
    return status;
}

/* ---- the paper's figures of embeddings: the spectrum of the covariance, similarities of pairs ------- */

typedef struct plot {
    cloob_ctx *ctx;
    arena memory;
    chart c;
    bool failed;
} plot;

static chart_series *add(plot *p, const char *name, int color, int64_t n)
{
    chart_series *s = chart_add(&p->memory, &p->c, name, color, n);
    if (!s) p->failed = true;
    return s;
}

static cloob_status finish(plot *p, const char *folder, const char *name)
{
    static const char *const ending[] = { "svg", "pdf" };
    static const chart_frame frame[] = { CHART_ALONE, CHART_PDF };
    cloob_status status = p->failed ? ctx_no_memory(p->ctx, 4096, name) : CLOOB_OK;
    for (int i = 0; i < 2 && status == CLOOB_OK; i++) {
        char file[64];
        sbuf out = { 0 };
        snprintf(file, sizeof file, "%s.%s", name, ending[i]);
        status = chart_draw(&out, &p->c, frame[i]) ? file_write_in(p->ctx, folder, file, &out)
                                                   : ctx_fail(p->ctx, CLOOB_ERR_UNSUPPORTED, CHART_NO_CAIRO);
        sbuf_release(&out);
    }
    arena_release(&p->memory);
    return status;
}

static void add_spectrum(plot *p, const char *name, int color, const cloob_coverage *s)
{
    chart_series *line = add(p, name, color, s->dimensions);
    for (int64_t i = 0; line && i < s->dimensions;
         i++) /* few rows leave zeros in the covariance, which rounding scatters around 1e-17 */
        if (s->eigenvalue[i] > 1e-12) chart_point(&p->c, line, (double)i + 1, s->eigenvalue[i]);
}

static bool has_variance(const cloob_analysis *a) { return a->x.dimensions > 0 && a->x.eigenvalue[0] > 1e-12; }

static cloob_status spectrum(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                             const char *folder)
{
    char name[64];
    plot p = {
        .ctx = ctx,
        .c = { .title = "Eigenvalues of the covariance", .x_label = "rank", .y_label = "eigenvalue", .log_y = true }
    };
    if (!has_variance(a)) return CLOOB_OK; /* all rows are one point */
    snprintf(name, sizeof name, "image, %lld effective", (long long)a->x.effective);
    add_spectrum(&p, name, 0, &a->x);
    if (a->paired) {
        snprintf(name, sizeof name, "text, %lld effective", (long long)a->y.effective);
        add_spectrum(&p, name, 1, &a->y);
    }
    if (reference) add_spectrum(&p, "reference, image", 5, &reference->x);
    if (reference && reference->paired) add_spectrum(&p, "reference, text", 4, &reference->y);
    return finish(&p, folder, "spectrum");
}

static void add_bins(plot *p, const char *name, int color, const cloob_similarity_set *s)
{
    int64_t from = CLOOB_SIMILARITY_BINS, to = -1;
    chart_series *line = add(p, name, color, CLOOB_SIMILARITY_BINS);
    for (int64_t b = 0; b < CLOOB_SIMILARITY_BINS; b++) {
        if (!s->bin[b]) continue;
        if (from > b) from = b;
        to = b;
    }
    if (from > 0) from--; /* an empty bin on each side, so that the curve comes down */
    if (to < CLOOB_SIMILARITY_BINS - 1) to++;
    for (int64_t b = from; line && s->count && b <= to; b++)
        chart_point(&p->c, line, ((double)b + 0.5) / 100 - 1, 100 * (double)s->bin[b] / (double)s->count);
}

static cloob_status similarities(cloob_ctx *ctx, const cloob_analysis *a, const char *folder)
{
    static const int color[CLOOB_UNMATCHED_SETS] = { 1, 4, 0 };
    char name[64];
    plot p = { .ctx = ctx,
               .c = { .title = "Similarity of matched and unmatched pairs",
                      .x_label = "cosine similarity",
                      .y_label = "share of pairs per bin of 0.01, %",
                      .fill = true } };
    add_bins(&p, "matched", 2, &a->similarity.matched);
    for (int k = 0; k < CLOOB_UNMATCHED_SETS; k++) {
        const cloob_similarity_set *s = &a->similarity.unmatched[k];
        snprintf(name, sizeof name, "top-%lld unmatched", (long long)s->k);
        if (s->k > 0) add_bins(&p, name, color[k], s);
        if (s->k < s->asked) break; /* larger sets are the same values */
    }
    return finish(&p, folder, "similarities");
}

cloob_status analysis_plots(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                            const char *folder)
{
    CLOOB_TRY(spectrum(ctx, a, reference, folder));
    return a->paired ? similarities(ctx, a, folder) : CLOOB_OK;
}

/* ---- the reliability plot: how often a model is right where it says p ---- */

cloob_status calibration_plot(cloob_ctx *ctx, const calibration *m, const char *const *name, int64_t n,
                              const char *path)
{
    sbuf svg = { 0 };
    plot p = { .ctx = ctx,
               .c = { .title = "Reliability", .x_label = "confidence", .y_label = "accuracy", .from_zero = true } };
    chart_series *line = add(&p, "calibrated", 7, 2);
    if (line) chart_point(&p.c, line, 0, 0), chart_point(&p.c, line, 1, 1);
    for (int64_t i = 0; i < n; i++) {
        line = add(&p, name[i], (int)i, m[i].bins);
        for (int b = 0; line && b < m[i].bins; b++)
            if (m[i].bin[b].n) chart_point(&p.c, line, m[i].bin[b].confidence, m[i].bin[b].accuracy);
    }
    cloob_status status = p.failed                              ? ctx_no_memory(ctx, 4096, path)
                          : chart_draw(&svg, &p.c, CHART_ALONE) ? file_write_text(ctx, path, &svg)
                                                                : ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, CHART_NO_CAIRO);
    arena_release(&p.memory);
    return status;
}
