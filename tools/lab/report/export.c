/* Charts and tables as files: those of a page, those of an analysis, and those of your own numbers. */
#include "lab/report/export.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "lab/memory.h"
#include "lab/report/report.h"

/* The path from one absolute folder to another. */
static char *relative(const char *from, const char *to)
{
    sbuf s = { 0 };
    size_t same = 0; /* bytes of the folders that both share */
    for (size_t i = 0;; i++) {
        if ((!from[i] || from[i] == '/') && (!to[i] || to[i] == '/')) same = i;
        if (!from[i] || from[i] != to[i]) break;
    }
    for (const char *c = from + same; *c; c++)
        if (*c == '/') sbuf_puts(&s, "../");
    sbuf_puts(&s, to[same] ? to + same + 1 : ".");
    return must(sbuf_detach(&s));
}

void export_begin(export_files *e, cloob_ctx *ctx, const char *dir, const char *page)
{
    *e = (export_files){ .ctx = ctx, .dir = dir };
    if (!dir) return;
    e->status = file_make_dirs(ctx, dir);
    char *folder = must(file_folder(page)), *from = realpath(folder, NULL), *to = realpath(dir, NULL);
    if (from && to) e->href = relative(from, to);
    free(folder), free(from), free(to);
}

void export_end(export_files *e) { free(e->href), e->href = NULL; }

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

/* NAME.ENDING in the folder; counted. */
static void export_file(export_files *e, const char *name, const char *ending, const sbuf *text)
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
    html_put(links, "<a href=\"%s/%s.%s\">%s</a> ", e->href, name, ending, text);
}

/* links may be NULL. False: cairo is missing, and nothing is drawn. */
static bool export_drawings(export_files *e, const char *name, const chart *c, sbuf *links)
{
    static const struct {
        chart_frame frame;
        const char *ending, *text;
    } drawing[] = { { CHART_ALONE, "svg", "SVG" }, { CHART_PDF, "pdf", "PDF" } };
    bool drawn = true;
    for (int i = 0; i < 2 && drawn; i++) {
        sbuf out = { 0 };
        drawn = chart_draw(&out, c, drawing[i].frame);
        if (drawn) export_file(e, name, drawing[i].ending, &out);
        if (drawn) put_link(e, name, drawing[i].ending, drawing[i].text, links);
        sbuf_release(&out);
    }
    return drawn;
}

/* The same with the numbers as CSV, in any case. */
static bool export_chart_as(export_files *e, const char *name, const chart *c, sbuf *links)
{
    bool bands = has_bands(c);
    sbuf csv = { 0 };
    if (!e->dir || e->status != CLOOB_OK) return false;
    bool drawn = export_drawings(e, name, c, links);
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
    bool on = false;
    return json_bool(json_get(o, key), &on) && on;
}

/* n numbers under a key. */
static cloob_status numbers(const reader *r, const json *o, const char *key, int64_t n, double **out)
{
    const json *list = json_get(o, key);
    int64_t i = 0;
    if (!list || list->kind != JSON_ARRAY || list->count != n)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" of series \"%.60s\" must be a list of %lld numbers",
                        r->path, key, text_of(o, "name"), (long long)n);
    *out = must(arena_push(r->a, (size_t)(n + 1) * sizeof **out));
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
    for (int64_t i = 0; i < n; i++) {
        if (low) chart_band_point(r->a, c, s, n, x[i], y[i], low[i], high[i]);
        else chart_point(c, s, x[i], y[i]);
    }
    return CLOOB_OK;
}

static cloob_status read_categories(const reader *r, const json *list, chart *c)
{
    if (!list) return CLOOB_OK;
    const char **name = must(arena_push(r->a, (size_t)(list->count + 1) * sizeof *name));
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

/* NAME.svg and NAME.pdf in the folder. Releases the chart's memory. */
static cloob_status draw_both(cloob_ctx *ctx, const chart *c, arena *memory, const char *folder, const char *name)
{
    export_files e = { .ctx = ctx, .dir = folder };
    bool drawn = export_drawings(&e, name, c, NULL);
    arena_release(memory);
    return drawn ? e.status : ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, CHART_NO_CAIRO);
}

static void add_spectrum(arena *a, chart *c, const char *name, int color, const coverage *s)
{
    chart_series *line = chart_add(a, c, name, color, s->dimensions);
    for (int64_t i = 0; i < s->dimensions; i++) /* few rows leave zeros, which rounding scatters around 1e-17 */
        if (s->eigenvalue[i] > 1e-12) chart_point(c, line, (double)i + 1, s->eigenvalue[i]);
}

static cloob_status spectrum(cloob_ctx *ctx, const embedding_analysis *a, const embedding_analysis *reference,
                             const char *folder)
{
    char name[64];
    arena memory = { 0 };
    chart c = { .title = "Eigenvalues of the covariance", .x_label = "rank", .y_label = "eigenvalue", .log_y = true };
    if (!a->x.dimensions || a->x.eigenvalue[0] <= 1e-12) return CLOOB_OK; /* all rows are one point */
    snprintf(name, sizeof name, "image, %lld effective", (long long)a->x.effective);
    add_spectrum(&memory, &c, name, 0, &a->x);
    if (a->paired) {
        snprintf(name, sizeof name, "text, %lld effective", (long long)a->y.effective);
        add_spectrum(&memory, &c, name, 1, &a->y);
    }
    if (reference) add_spectrum(&memory, &c, "reference, image", 5, &reference->x);
    if (reference && reference->paired) add_spectrum(&memory, &c, "reference, text", 4, &reference->y);
    return draw_both(ctx, &c, &memory, folder, "spectrum");
}

static void add_bins(arena *a, chart *c, const char *name, int color, const similarity_set *s)
{
    int64_t from = SIMILARITY_BINS, to = -1;
    chart_series *line = chart_add(a, c, name, color, SIMILARITY_BINS);
    for (int64_t b = 0; b < SIMILARITY_BINS; b++) {
        if (!s->bin[b]) continue;
        if (from > b) from = b;
        to = b;
    }
    if (from > 0) from--; /* an empty bin on each side, so that the curve comes down */
    if (to < SIMILARITY_BINS - 1) to++;
    for (int64_t b = from; s->count && b <= to; b++)
        chart_point(c, line, ((double)b + 0.5) / 100 - 1, 100 * (double)s->bin[b] / (double)s->count);
}

static cloob_status similarities(cloob_ctx *ctx, const embedding_analysis *a, const char *folder)
{
    static const int color[UNMATCHED_SETS] = { 1, 4, 0 };
    char name[64];
    arena memory = { 0 };
    chart c = { .title = "Similarity of matched and unmatched pairs",
                .x_label = "cosine similarity",
                .y_label = "share of pairs per bin of 0.01, %",
                .fill = true };
    add_bins(&memory, &c, "matched", 2, &a->similarity.matched);
    for (int k = 0; k < UNMATCHED_SETS; k++) {
        const similarity_set *s = &a->similarity.unmatched[k];
        snprintf(name, sizeof name, "top-%lld unmatched", (long long)s->k);
        if (s->k > 0) add_bins(&memory, &c, name, color[k], s);
        if (s->k < s->asked) break; /* larger sets are the same values */
    }
    return draw_both(ctx, &c, &memory, folder, "similarities");
}

cloob_status analysis_plots(cloob_ctx *ctx, const embedding_analysis *a, const embedding_analysis *reference,
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
    arena a = { 0 };
    chart c = { .title = "Reliability", .x_label = "confidence", .y_label = "accuracy", .from_zero = true };
    chart_series *line = chart_add(&a, &c, "calibrated", 7, 2);
    chart_point(&c, line, 0, 0), chart_point(&c, line, 1, 1);
    for (int64_t i = 0; i < n; i++) {
        line = chart_add(&a, &c, name[i], (int)i, m[i].bins);
        for (int b = 0; b < m[i].bins; b++)
            if (m[i].bin[b].n) chart_point(&c, line, m[i].bin[b].confidence, m[i].bin[b].accuracy);
    }
    bool drawn = chart_draw(&svg, &c, CHART_ALONE);
    arena_release(&a);
    return drawn ? file_write_text(ctx, path, &svg) : ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, CHART_NO_CAIRO);
}
