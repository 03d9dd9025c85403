/* Search: a query is a weighted sum of texts, images and entries; filters by score, folder, name and date. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/handlers.h"
#include "io/image/exif.h"
#include "infer/search_index.h"
#include "core/ctx.h"
#include "core/sbuf.h"

/* ---- filters ------------------------------------------------------------------------------------- */

typedef struct filter {
    float threshold;
    const char *folder; /* prefix of the path; NULL: any */
    size_t folder_bytes;
    const char *name;      /* pattern with * and ?; NULL: any */
    int64_t after, before; /* nanoseconds since 1970; 0: any */
    bool has_threshold;
} filter;

static bool passes(const cloob_search *s, int64_t i, const void *user)
{
    const filter *f = user;
    size_t bytes;
    const char *name = search_files_name(&s->good, i, &bytes);
    int64_t when = s->good.mtime[i];
    if (f->folder && (bytes < f->folder_bytes || memcmp(name, f->folder, f->folder_bytes) != 0)) return false;
    if (f->folder_bytes && f->folder[f->folder_bytes - 1] != '/' && bytes > f->folder_bytes &&
        name[f->folder_bytes] != '/')
        return false;
    if ((f->after && when < f->after) || (f->before && when >= f->before)) return false;
    if (!f->name) return true;
    char text[1024];
    if (bytes >= sizeof text) return false;
    memcpy(text, name, bytes);
    text[bytes] = 0;
    const char *slash = strrchr(text, '/');
    return fnmatch(f->name, slash && !strchr(f->name, '/') ? slash + 1 : text, FNM_CASEFOLD) == 0;
}

cloob_status find_entries(call *c, search_query *q, search_hit **out, int64_t *found, int64_t *total)
{
    const cloob_search *s = c->v->search;
    q->D = s->D;
    if (q->max_hits > s->N) q->max_hits = s->N;
    CLOOB_TRY(account_reserve(c->ctx, c->q->memory, (s->N + q->max_hits) * (int64_t)sizeof **out));
    *out = malloc((size_t)(q->max_hits + 1) * sizeof **out);
    CLOOB_TRY(call_own(c, *out));
    return search_index_query(c->ctx, s, q, *out, found, total);
}

char *entry_name(const cloob_search *s, int64_t i)
{
    size_t bytes;
    const char *name = search_files_name(&s->good, i, &bytes);
    return strndup(name, bytes);
}

void put_entry_name(json_out *w, const char *key, const cloob_search *s, int64_t i)
{
    char *name = entry_name(s, i);
    json_put_text(w, key, name);
    w->failed = w->failed || !name;
    free(name);
}

/* ---- the request --------------------------------------------------------------------------------- */

enum { MAX_TERMS = 64 };

typedef struct term {
    double weight;
    int64_t input; /* index among the inputs, or -1 */
    int64_t entry; /* of the index, or -1 */
} term;

typedef struct search_request {
    term term[MAX_TERMS + 2]; /* terms of the list, and one text and one image */
    int64_t terms;
    filter filter;
    int64_t limit, offset;
} search_request;

/* Adds a term to the query. Exactly one of the strings is not NULL. */
static cloob_status add_term(call *c, search_request *a, double weight, const char *text, const char *image,
                             const char *like)
{
    term x = { weight, like ? -1 : c->inputs, like ? entry_find(c->v->search, like) : -1 };
    if (like && x.entry < 0) return refuse(c->ctx, "like: the index has no image %.200s", like);
    a->term[a->terms++] = x;
    if (like) return CLOOB_OK;
    return text ? input_text(c, text) : input_image(c, image);
}

static cloob_status read_term(call *c, search_request *a, const json *t)
{
    const char *text = json_string(json_get(t, "text")), *image = json_string(json_get(t, "image"));
    const char *like = json_string(json_get(t, "like"));
    double weight = 1;
    CLOOB_TRY(known_keys(c->ctx, t, "text image like weight"));
    if ((text != NULL) + (image != NULL) + (like != NULL) != 1)
        return refuse(c->ctx, "a term must have exactly one of text, image and like, as a string");
    CLOOB_TRY(field_number(c->ctx, t, "weight", &weight));
    if (!(fabs(weight) <= 1e6)) return refuse(c->ctx, "weight must be between minus and plus one million");
    return add_term(c, a, weight, text, image, like);
}

static cloob_status read_terms(call *c, search_request *a)
{
    const char *text = NULL, *image = NULL;
    const json *terms = json_get(c->root, "terms");
    CLOOB_TRY(field_text(c->ctx, c->root, "text", &text));
    CLOOB_TRY(field_text(c->ctx, c->root, "image", &image));
    if (text && *text) CLOOB_TRY(add_term(c, a, 1, text, NULL, NULL));
    if (image && *image) CLOOB_TRY(add_term(c, a, 1, NULL, image, NULL));
    if (!field_absent(c->root, "terms") && json_kind_of(terms) != JSON_ARRAY)
        return refuse(c->ctx, "terms must be a list");
    if (json_count(terms) > MAX_TERMS) return refuse(c->ctx, "too many terms; the limit is %d", MAX_TERMS);
    for (const json *t = json_first(terms); t; t = json_next(t)) CLOOB_TRY(read_term(c, a, t));
    return CLOOB_OK;
}

static cloob_status read_date(call *c, const char *key, int64_t *out)
{
    const char *text = NULL;
    CLOOB_TRY(field_text(c->ctx, c->root, key, &text));
    return !text || !*text || date_parse(text, out) ? CLOOB_OK
                                                    : refuse(c->ctx, "%s must be a date such as 2020-01-31", key);
}

static cloob_status read_filter(call *c, search_request *a)
{
    filter *f = &a->filter;
    const json *root = c->root;
    double min = 0;
    CLOOB_TRY(known_keys(c->ctx, root, "text image terms index limit offset threshold folder name after before"));
    CLOOB_TRY(field_text(c->ctx, root, "folder", &f->folder));
    CLOOB_TRY(field_text(c->ctx, root, "name", &f->name));
    CLOOB_TRY(read_date(c, "after", &f->after));
    CLOOB_TRY(read_date(c, "before", &f->before));
    CLOOB_TRY(field_int(c->ctx, root, "limit", 1, 1000, &a->limit));
    CLOOB_TRY(field_int(c->ctx, root, "offset", 0, INT64_C(1) << 40, &a->offset));
    CLOOB_TRY(field_number(c->ctx, root, "threshold", &min));
    f->threshold = (float)min, f->has_threshold = !field_absent(root, "threshold");
    f->folder_bytes = f->folder ? strlen(f->folder) : 0;
    if (!f->folder_bytes) f->folder = NULL;
    if (f->name && !*f->name) f->name = NULL;
    return f->name && strlen(f->name) > 200 ? refuse(c->ctx, "name is limited to 200 bytes") : CLOOB_OK;
}

/* A raw image body, or an image in a form, is a search for similar images. */
static cloob_status read_raw(call *c, search_request *a)
{
    const http_request *q = c->q;
    const char *limit = http_query(q, "limit");
    if (limit) a->limit = strtoll(limit, NULL, 10);
    if (a->limit < 1 || a->limit > 1000) return refuse(c->ctx, "limit must be an integer from 1 to 1000");
    a->term[a->terms++] = (term){ 1, 0, -1 };
    if (http_type_is(q, "image/")) return input_bytes(c, q->body, q->bytes);
    form_part *part;
    int n;
    CLOOB_TRY(body_parts(c, &part, &n));
    for (int i = 0; i < n; i++)
        if (*part[i].filename || strcmp(part[i].name, "image") == 0) return input_bytes(c, part[i].data, part[i].bytes);
    return refuse(c->ctx, "the multipart body has no image");
}

/* ---- the query's embedding ----------------------------------------------------------------------- */

/* The weighted sum of the terms, scaled to unit length. NULL without terms: the result is then all entries in the
 * index's order. */
static cloob_status sum_terms(call *c, const search_request *a, float **out)
{
    const cloob_search *s = c->v->search;
    int64_t D = cloob_search_width(s);
    *out = NULL;
    if (!a->terms) return CLOOB_OK;
    if (c->inputs && c->rows.width != D) return refuse(c->ctx, "the index was made with another model");
    float *sum = calloc((size_t)D, sizeof *sum);
    CLOOB_TRY(call_own(c, sum));
    for (int64_t i = 0; i < a->terms; i++) {
        const term *t = &a->term[i];
        const float *row = t->entry >= 0 ? s->row + t->entry * D : row_at(c, t->input);
        for (int64_t k = 0; k < D; k++) sum[k] += (float)t->weight * row[k];
    }
    unit_row(sum, D);
    *out = sum;
    return CLOOB_OK;
}

/* ---- the answer ---------------------------------------------------------------------------------- */

/* Appends a query parameter, escaping everything except letters, digits and -._~/. */
static void put_escaped(sbuf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~/", c);
        sbuf_printf(out, plain ? "%c" : "%%%02X", c);
    }
}

/* version: the file's time in the index, so that the content of a link never changes. */
static void put_link(json_out *w, const char *key, const char *url, const char *index, const char *path,
                     int64_t version)
{
    sbuf s = { 0 };
    sbuf_printf(&s, "%sv=%llx&index=", url, (unsigned long long)version);
    put_escaped(&s, index);
    sbuf_puts(&s, "&path=");
    put_escaped(&s, path);
    json_put_text(w, key, s.data);
    w->failed = w->failed || s.failed;
    sbuf_release(&s);
}

/* Writes size and capture date from the first `bytes` of a file; false if they do not contain the size. */
static bool put_facts_of(cloob_ctx *ctx, json_out *w, int fd, int64_t bytes)
{
    int64_t width, height;
    char taken[20];
    file_view v;
    if (!file_view_open(fd, bytes, &v)) return false;
    bool ok = image_upright_size(ctx, v.data, v.bytes, "the image", &width, &height) == CLOOB_OK;
    if (ok) {
        json_members(w, J_INT("width", width), J_INT("height", height));
        if (exif_date(v.data, v.bytes, taken)) json_put_text(w, "taken", taken);
    }
    file_view_close(&v);
    return ok;
}

static void put_facts(call *c, const char *path)
{
    enum { BEGINNING = 1 << 16 }; /* contains the size in most files */
    int64_t bytes;
    account whole = { .of = &c->s->memory };
    int fd = entry_open(c->x, c->v->search, path, &bytes);
    if (fd < 0) return;
    bool done = put_facts_of(c->ctx, &c->w, fd, bytes < BEGINNING ? bytes : BEGINNING);
    if (!done && bytes > BEGINNING && account_set(&whole, bytes)) put_facts_of(c->ctx, &c->w, fd, bytes);
    account_set(&whole, 0);
    close(fd);
}

static void put_hit(call *c, const search_hit *f, bool scored)
{
    json_out *w = &c->w;
    int64_t changed = c->v->search->good.mtime[f->entry];
    char date[32], *path = entry_name(c->v->search, f->entry);
    json_begin(w, NULL, '{');
    json_members(w, J_TEXT("path", path), J_NUMBER("score", scored ? round(1e6 * (double)f->score) / 1e6 : 0, 0));
    if (path) put_facts(c, path);
    date_print(changed, date);
    json_put_text(w, "date", date);
    if (path) put_link(w, "thumb", "/v1/thumb?size=256&", c->x->name, path, changed);
    if (path) put_link(w, "image", "/v1/image?", c->x->name, path, changed);
    json_end(w);
    w->failed = w->failed || !path;
    free(path);
}

cloob_status handle_search(call *c)
{
    search_request a = { .limit = 60 };
    search_hit *hit;
    float *row;
    int64_t found, total;
    const filter *f = &a.filter;
    const char *index = NULL, *in_url = http_query(c->q, "index");
    if (c->root) CLOOB_TRY(read_filter(c, &a));
    else CLOOB_TRY(read_raw(c, &a));
    CLOOB_TRY(field_text(c->ctx, c->root, "index", &index));
    CLOOB_TRY(call_index(c, in_url ? in_url : index));
    if (c->root) CLOOB_TRY(read_terms(c, &a));
    double began = clock_seconds();
    c->m = c->v->model;
    if (c->inputs) CLOOB_TRY(embed(c));
    CLOOB_TRY(sum_terms(c, &a, &row));
    bool any = !f->folder && !f->name && !f->after && !f->before;
    search_query q = { .row = row,
                       .min_score = row && f->has_threshold ? &f->threshold : NULL,
                       .max_hits = a.offset + a.limit,
                       .accept = any ? NULL : passes,
                       .user = f };
    CLOOB_TRY(find_entries(c, &q, &hit, &found, &total));
    json_begin(&c->w, NULL, '{');
    json_members(&c->w, J_TEXT("index", c->x->name), J_INT("total", total));
    json_begin(&c->w, "results", '[');
    for (int64_t i = a.offset; i < found; i++) put_hit(c, &hit[i], a.terms > 0);
    json_end(&c->w);
    json_put_number(&c->w, "took_ms", round(1e5 * (clock_seconds() - began)) / 100);
    return CLOOB_OK;
}

/* ---- the list of indexes ------------------------------------------------------------------------- */

enum { MAX_FOLDERS = 500 };

/* Lists the first folder of each path. Paths are sorted, so equal folders are adjacent; v may be NULL. */
static void put_folders(json_out *w, const index_view *v)
{
    const char *last = NULL;
    size_t last_bytes = 0;
    int64_t folders = 0;
    json_begin(w, "folders", '[');
    for (int64_t i = 0; v && i < cloob_search_count(v->search) && folders < MAX_FOLDERS; i++) {
        size_t bytes;
        const char *name = search_files_name(&v->search->good, i, &bytes), *slash = memchr(name, '/', bytes);
        size_t n = slash ? (size_t)(slash - name) + 1 : 0;
        if (!n || (n == last_bytes && memcmp(name, last, n) == 0)) continue;
        char *text = strndup(name, n);
        if (text) json_put_text(w, NULL, text);
        free(text);
        last = name, last_bytes = n, folders++;
    }
    json_end(w);
}

cloob_status handle_indexes(call *c)
{
    json_out *w = &c->w;
    answer_list(c, "indexes");
    for (int64_t i = 0; i < c->s->indexes; i++) {
        served_index *x = &c->s->index[i];
        index_view *v = index_acquire(c->s, x);
        char error[512];
        index_error(c->s, x, error);
        const char *state = v ? "ready" : *error ? "failed" : "indexing";
        json_begin(w, NULL, '{');
        json_members(w, J_OF(x, name), J_TEXT("state", state));
        if (*error) json_put_text(w, "error", error);
        json_put_int(w, "images", v ? cloob_search_count(v->search) : 0);
        put_folders(w, v);
        json_put_text(w, "model", v ? v->model->name : x->model->name);
        json_end(w);
        index_release(v);
    }
    return CLOOB_OK;
}
