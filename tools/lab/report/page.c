/* Helpers of the sections, beginning and end of every HTML page, the page of a search. */
#include "lab/report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/needs.h"
#include "core/text.h"
#include "data/view/transform.h"
#include "io/image/image.h"
#include "lab/memory.h"
#include "lab/report/report.h"

void page_heading(page *p, const char *id, const char *title, const char *lead)
{
    html_put(&p->html, "<h2 id=\"%s\">%s</h2>\n", id, title);
    if (lead) html_put(&p->html, "<p class=\"lead\">%s</p>\n", lead);
}

void page_chart(page *p, const chart *c)
{
    chart mean = chart_mean(p->memory, c);
    if (!chart_points(&mean)) return;
    chart_put(&p->html, &mean);
    if (p->export_dir && p->status == CLOOB_OK) p->status = chart_write(p->ctx, &mean, p->export_dir);
    p->charts++;
}

void page_grid(page *p, grid *g)
{
    grid_put(g, GRID_HTML, &p->html);
    grid_release(g);
}

/* ---- runs of the same settings ------------------------------------------------------------------- */

/* The seed, and settings that do not change results. */
static bool is_incidental(const char *key)
{
    return text_has_word("name seed logs resume save_frequency save_every workers threads val_frequency "
                         "log_every_n_steps report_to quiet device save_most_recent",
                         key);
}

static bool same_settings(const run_files *a, const run_files *b)
{
    if (!a->params || a->params != b->params || strcmp(a->method, b->method) != 0) return false;
    for (int64_t i = 0; i < a->params; i++) {
        const char *key = a->param[i].key;
        if (!is_incidental(key) && strcmp(a->param[i].value, run_param_get(b, key)) != 0) return false;
    }
    return true;
}

void page_find_repeats(page *p)
{
    p->first_repeat = must(arena_push(p->memory, (size_t)(p->runs + 1) * sizeof *p->first_repeat));
    for (int64_t i = 0; i < p->runs; i++) {
        p->first_repeat[i] = i;
        for (int64_t k = 0; k < i && p->first_repeat[i] == i; k++)
            if (p->first_repeat[k] == k && same_settings(&p->run[k], &p->run[i])) p->first_repeat[i] = k;
    }
}

/* The label of the runs with the settings of `first`: the method, or the name where two settings share a method. */
static const char *group_name(const page *p, int64_t first)
{
    const char *method = p->run[first].method;
    bool alone = *method != '\0';
    for (int64_t i = 0; i < p->runs; i++)
        alone = alone && (p->first_repeat[i] == first || strcmp(p->run[i].method, method) != 0);
    return alone ? method : p->run[first].name;
}

chart_series *page_add(page *p, chart *c, int64_t run, int64_t n)
{
    int64_t first = p->first_repeat[run], color = 0, repeats = 0;
    for (int64_t i = 0; i < p->runs; i++) {
        color += i < first && p->first_repeat[i] == i;
        repeats += p->first_repeat[i] == first;
    }
    chart_series *s = chart_add(p->memory, c, p->run[run].name, (int)color, n);
    if (repeats > 1) s->group = group_name(p, first);
    return s;
}

static void add_results(const chart *c, chart_series *s, const run_files *r, const char *key)
{
    for (int64_t i = 0; i < r->results; i++) {
        const json *x = json_get(r->result[i], "epoch"), *y = json_get(r->result[i], key);
        if (y && y->kind == JSON_NUMBER)
            chart_point(c, s, x && x->kind == JSON_NUMBER ? x->number : (double)(i + 1), y->number);
    }
}

/* One run has all keys in one chart; several runs have a chart per key. */
void page_result_charts(page *p, const char *title, const char *y_label, const char *const *key,
                        const char *const *label, int64_t keys)
{
    int64_t charts = p->runs == 1 ? 1 : keys;
    for (int64_t k = 0; k < charts; k++) {
        char both[160];
        snprintf(both, sizeof both, charts > 1 ? "%s: %s" : "%s", title, label[k]);
        chart c = { .title = both, .x_label = "epoch", .y_label = y_label, .from_zero = strcmp(y_label, "loss") != 0 };
        for (int64_t i = 0; p->runs == 1 && i < keys; i++)
            add_results(&c, chart_add(p->memory, &c, label[i], (int)i, p->run[0].results), &p->run[0], key[i]);
        for (int64_t i = 0; p->runs > 1 && i < p->runs; i++)
            add_results(&c, page_add(p, &c, i, p->run[i].results), &p->run[i], key[k]);
        page_chart(p, &c);
    }
}

/* ---- HTML ---------------------------------------------------------------------------------------- */

void html_page_begin(sbuf *s, const char *title, const unsigned char *style, size_t bytes)
{
    html_put(
        s,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>%s</title>\n"
        "<style>\n",
        title);
    sbuf_add(s, asset_tokens_css, asset_tokens_css_bytes);
    sbuf_add(s, style, bytes);
    html_put(s, "</style>\n</head>\n<body>\n<main>\n<h1>%s</h1>\n", title);
}

/* ---- the contact sheet: one page with thumbnails of the images that a search found ----------------- */

enum { THUMB = 256, THUMB_QUALITY = 85 };

/* A path as a URL: reserved characters are escaped. */
static void put_address(sbuf *s, const char *path)
{
    for (; *path; path++) {
        unsigned char c = (unsigned char)*path;
        bool plain = c == '/' || c == '-' || c == '_' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                     (c >= 'A' && c <= 'Z');
        sbuf_printf(s, plain ? "%c" : "%%%02X", c);
    }
}

cloob_status thumbnail_put(cloob_ctx *ctx, const image *im, int64_t side, sbuf *url)
{
    transform_options o;
    sbuf jpeg = { 0 };
    uint8_t *rgb = must(malloc((size_t)(side * side * 3)));
    transform_options_init(&o, side);
    cloob_status status = view_of_image(ctx, NULL, im, &o, NULL, rgb);
    if (status == CLOOB_OK) status = image_encode_jpeg(ctx, rgb, side, side, THUMB_QUALITY, &jpeg);
    if (status == CLOOB_OK) sbuf_puts(url, JPEG_URL), base64_put(url, jpeg.data, jpeg.len);
    sbuf_release(&jpeg);
    free(rgb);
    return status;
}

/* An image that no longer exists, or a build without JPEG, gives an empty frame with the name. */
static void put_thumbnail(cloob_ctx *ctx, const char *path, sbuf *s)
{
    image im;
    sbuf url = { 0 };
    cloob_status status = image_read(ctx, path, &(image_limits){ IMAGE_MAX_PIXELS, 8, true }, &im);
    if (status == CLOOB_OK) {
        status = thumbnail_put(ctx, &im, THUMB, &url);
        image_release(&im);
    }
    if (url.data) html_put(s, "<img loading=\"lazy\" alt=\"\" src=\"%s\">", url.data);
    else sbuf_puts(s, "<i></i>");
    s->failed |= url.failed || status == CLOOB_ERR_MEMORY;
    sbuf_release(&url);
}

/* A link to the file, so that a click opens the image itself. */
static void put_hit(cloob_ctx *ctx, const cloob_search_hit *hit, sbuf *s)
{
    char *absolute = realpath(hit->path, NULL);
    sbuf_puts(s, "<li><a href=\"file://");
    put_address(s, absolute ? absolute : hit->path);
    sbuf_puts(s, "\">");
    put_thumbnail(ctx, hit->path, s);
    html_put(s, "<span><b>%.2f</b> %s</span></a></li>\n", (double)hit->score, hit->path);
    free(absolute);
}

cloob_status search_sheet(cloob_ctx *ctx, const char *path, const char *title, const cloob_search_hit *hit, int64_t n)
{
    API_NEEDS(ctx, path && n >= 0 && (n == 0 || hit));
    sbuf s = { 0 };
    html_page_begin(&s, title ? title : "Search", asset_sheet_css, asset_sheet_css_bytes);
    html_put(&s, "<p class=\"dim\">%s</p>\n<ul>\n",
             n ? "Best first, with the cosine of image and query."
               : "Nothing found. Try fewer or other words, or no filter.");
    for (int64_t i = 0; i < n; i++) put_hit(ctx, &hit[i], &s);
    sbuf_puts(&s, "</ul></main></body></html>\n");
    return file_write_text(ctx, path, &s);
}
