/* Thin bodies of include/cloob/search.h, and the contact sheet. */
#include "cloob/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/model_handle.h"
#include "core/file.h"
#include "core/rng.h"
#include "infer/search_index.h"
#include "io/image/image_write_jpeg.h"
#include "core/needs.h"

struct cloob_search {
    search_index ix;
};

cloob_status cloob_search_index(cloob_ctx *ctx, cloob_model *m, const char *folder, const char *path,
                                const char *checkpoint, const char *vocab, cloob_search_update *out)
{
    API_NEEDS(ctx, m && folder && path && out);
    search_update u;
    cloob_status status = search_index_update(ctx, model_of(m), folder, path, checkpoint, vocab ? vocab : "", &u);
    *out = (cloob_search_update){ u.images, u.kept, u.embedded, u.bad, u.removed, u.bad_before };
    return status;
}

cloob_status cloob_search_open(cloob_ctx *ctx, const char *path, cloob_search **out)
{
    API_NEEDS(ctx, path && out);
    *out = NULL;
    cloob_search *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, path);
    cloob_status status = search_index_open(ctx, path, &s->ix);
    if (status == CLOOB_OK) *out = s;
    else free(s);
    return status;
}

void cloob_search_close(cloob_search *s)
{
    if (!s) return;
    search_index_close(&s->ix);
    free(s);
}

int64_t cloob_search_count(const cloob_search *s)
{
    if (!s) return 0;
    return s->ix.N;
}

int64_t cloob_search_width(const cloob_search *s)
{
    if (!s) return 0;
    return s->ix.D;
}

const char *cloob_search_checkpoint(const cloob_search *s)
{
    if (!s) return NULL;
    return s->ix.checkpoint;
}

const char *cloob_search_vocab(const cloob_search *s)
{
    if (!s) return NULL;
    return s->ix.vocab;
}

void cloob_search_hits_release(cloob_search_hit *hit, int64_t n)
{
    if (!hit) return;
    for (int64_t i = 0; i < n; i++) {
        free(hit[i].path);
        hit[i].path = NULL;
    }
}

cloob_status cloob_search_query(cloob_ctx *ctx, const cloob_search *s, const float *query, int64_t most,
                                cloob_search_hit *hit, int64_t *found)
{
    API_NEEDS(ctx, s && query && found && most >= 0 && (most == 0 || hit));
    *found = 0;
    if (most < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld results wanted: one or more", (long long)most);
    if (most > s->ix.N) most = s->ix.N;
    search_hit *inner = malloc((size_t)(most + 1) * sizeof *inner);
    if (!inner) return ctx_no_memory(ctx, (size_t)most * sizeof *inner, "results");
    cloob_status status = search_index_query(ctx, &s->ix, query, most, inner, found);
    for (int64_t i = 0; i < *found; i++) {
        hit[i] = (cloob_search_hit){ search_index_path(&s->ix, inner[i].entry), inner[i].score };
        if (!hit[i].path) status = ctx_no_memory(ctx, 64, "a path");
    }
    if (status != CLOOB_OK) {
        cloob_search_hits_release(hit, *found);
        *found = 0;
    }
    free(inner);
    return status;
}

cloob_status cloob_search_text(cloob_ctx *ctx, const cloob_search *s, cloob_model *handle, const char *text,
                               int64_t most, cloob_search_hit *hit, int64_t *found)
{
    API_NEEDS(ctx, s && handle && text && found && most >= 0 && (most == 0 || hit));
    model *m = model_of(handle);
    *found = 0;
    CLOOB_TRY(search_index_check(ctx, &s->ix, m));
    float *query = malloc((size_t)s->ix.D * sizeof *query);
    if (!query) return ctx_no_memory(ctx, (size_t)s->ix.D * sizeof *query, "a row");
    cloob_status status = model_texts(ctx, m, &text, 1, ENCODE_UNIT, query);
    if (status == CLOOB_OK) status = cloob_search_query(ctx, s, query, most, hit, found);
    free(query);
    return status;
}

/* ---- the contact sheet --------------------------------------------------------------------------- */

enum { THUMB = 256, THUMB_QUALITY = 82 };

static void put_html(sbuf *s, const char *text)
{
    for (; *text; text++) {
        if (*text == '<') sbuf_puts(s, "&lt;");
        else if (*text == '&') sbuf_puts(s, "&amp;");
        else if (*text == '"') sbuf_puts(s, "&quot;");
        else sbuf_putc(s, *text);
    }
}

static void put_base64(sbuf *s, const unsigned char *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t word = (uint32_t)data[i] << 16;
        if (i + 1 < n) word |= (uint32_t)data[i + 1] << 8;
        if (i + 2 < n) word |= data[i + 2];
        for (int k = 0; k < 4; k++) sbuf_putc(s, i + (size_t)k > n ? '=' : digits[word >> (18 - 6 * k) & 63]);
    }
}

/* An image that has gone since, or a build without JPEG, leaves an empty frame with its name. */
static void put_thumbnail(cloob_ctx *ctx, const char *path, uint8_t *rgb, sbuf *s)
{
    image im;
    transform_options o;
    sbuf jpeg = { 0 };
    transform_options_init(&o, THUMB);
    if (image_read(ctx, path, NULL, &im) != CLOOB_OK) return;
    if (transform_eval(ctx, &im, &o, rgb) == CLOOB_OK &&
        image_encode_jpeg(ctx, rgb, THUMB, THUMB, THUMB_QUALITY, &jpeg) == CLOOB_OK) {
        sbuf_puts(s, "<img loading=lazy alt=\"\" src=\"data:image/jpeg;base64,");
        put_base64(s, (const unsigned char *)jpeg.data, jpeg.len);
        sbuf_puts(s, "\">");
    }
    sbuf_release(&jpeg);
    image_release(&im);
}

static const char page_head[] =
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
    "content=\"width=device-width\"><style>"
    ":root{color-scheme:light dark}body{font:15px system-ui,sans-serif;margin:1.5rem;max-width:90rem}"
    "main{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(11rem,1fr))}"
    "figure{margin:0}img{width:100%;aspect-ratio:1;border-radius:6px;display:block}"
    "figcaption{font-size:12px;overflow-wrap:anywhere;margin-top:.3rem}b{font-variant-numeric:tabular-nums}</"
    "style>";

cloob_status cloob_search_sheet(cloob_ctx *ctx, const char *path, const char *title, const cloob_search_hit *hit,
                                int64_t n)
{
    API_NEEDS(ctx, path && n >= 0 && (n == 0 || hit));
    sbuf s = { 0 };
    uint8_t *rgb = malloc(THUMB * THUMB * 3);
    if (!rgb) return ctx_no_memory(ctx, THUMB * THUMB * 3, "a thumbnail");
    sbuf_puts(&s, page_head);
    sbuf_puts(&s, "<title>");
    put_html(&s, title);
    sbuf_puts(&s, "</title><h1>");
    put_html(&s, title);
    sbuf_puts(&s, "</h1><main>");
    for (int64_t i = 0; i < n; i++) {
        sbuf_puts(&s, "<figure>");
        put_thumbnail(ctx, hit[i].path, rgb, &s);
        sbuf_printf(&s, "<figcaption><b>%.3f</b> ", (double)hit[i].score);
        put_html(&s, hit[i].path);
        sbuf_puts(&s, "</figcaption></figure>\n");
    }
    sbuf_puts(&s, "</main></html>\n");
    free(rgb);
    cloob_status status = s.failed ? ctx_no_memory(ctx, s.len, path) : file_write(ctx, path, s.data, s.len);
    sbuf_release(&s);
    return status;
}

/* ---- timing -------------------------------------------------------------------------------------- */

static void random_unit(float *row, int64_t D, uint64_t key)
{
    double square = 0;
    for (int64_t k = 0; k < D; k++) {
        row[k] = (float)rng_uniform(key, (uint64_t)k) - 0.5f; /* a direction; its law does not matter here */
        square += (double)row[k] * row[k];
    }
    for (int64_t k = 0; k < D; k++) row[k] = (float)((double)row[k] / sqrt(square));
}

static cloob_status write_random(cloob_ctx *ctx, const char *path, int64_t n, int64_t D)
{
    float *row = malloc((size_t)((n + 1) * D) * sizeof *row);
    const char **name = malloc((size_t)n * sizeof *name);
    int64_t *zero = calloc((size_t)n, sizeof *zero);
    cloob_status status = row && name && zero ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(n * D) * 4, "random rows");
    for (int64_t i = 0; i <= n && status == CLOOB_OK; i++) random_unit(row + i * D, D, rng_subkey(1, (uint64_t)i));
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) name[i] = "image.jpg";
    if (status == CLOOB_OK)
        status = search_index_write(ctx, path, "", "", "", row, row + n * D, D, &(search_names){ n, name, zero, zero },
                                    NULL);
    free(row), free(name), free(zero);
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static cloob_status time_queries(cloob_ctx *ctx, const cloob_search *s, int repeats, double *ms)
{
    float *query = malloc((size_t)s->ix.D * sizeof *query);
    double *took = malloc((size_t)repeats * sizeof *took);
    cloob_status status = query && took ? CLOOB_OK : ctx_no_memory(ctx, (size_t)s->ix.D * 4, "a row");
    for (int r = 0; r < repeats && status == CLOOB_OK; r++) {
        struct timespec from, to;
        cloob_search_hit hit[10];
        int64_t found;
        random_unit(query, s->ix.D, rng_subkey(2, (uint64_t)r));
        clock_gettime(CLOCK_MONOTONIC, &from);
        status = cloob_search_query(ctx, s, query, 10, hit, &found);
        clock_gettime(CLOCK_MONOTONIC, &to);
        cloob_search_hits_release(hit, found);
        took[r] = 1e3 * (double)(to.tv_sec - from.tv_sec) + 1e-6 * (double)(to.tv_nsec - from.tv_nsec);
    }
    if (status == CLOOB_OK) {
        qsort(took, (size_t)repeats, sizeof *took, by_value);
        *ms = took[repeats / 2];
    }
    free(query), free(took);
    return status;
}

cloob_status cloob_search_bench(cloob_ctx *ctx, const char *path, int64_t n, int64_t dim, int repeats, double *ms)
{
    API_NEEDS(ctx, path && ms && n >= 0);
    cloob_search *s;
    if (n < 1 || dim < 1 || repeats < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "n, dim and repeats must be above 0");
    if (file_exists(path)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: is there already", path);
    CLOOB_TRY(write_random(ctx, path, n, dim));
    cloob_status status = cloob_search_open(ctx, path, &s);
    if (status == CLOOB_OK) status = time_queries(ctx, s, repeats, ms);
    cloob_search_close(s);
    remove(path);
    return status;
}
