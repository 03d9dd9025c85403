/* Search: a query is a weighted sum of texts, images and entries; filters by score, folder, name and date. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/handlers.h"
#include "serve/text.h"
#include "io/image/exif.h"
#include "infer/search_index.h"
#include "core/ctx.h"
#include "core/sbuf.h"

/* ---- which entries ------------------------------------------------------------------------------- */

typedef struct filter {
    float threshold;
    const char *folder; /* beginning of the path; NULL: any */
    size_t folder_bytes;
    const char *name;      /* a pattern with * and ?; NULL: any */
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

cloob_status find_entries(cloob_ctx *ctx, account *memory, const cloob_search *s, search_query *q, search_hit **out,
                          int64_t *found, int64_t *total)
{
    *out = NULL, *found = *total = 0;
    q->D = s->D;
    if (q->max_hits > s->N) q->max_hits = s->N;
    CLOOB_TRY(account_reserve(ctx, memory, (s->N + q->max_hits) * (int64_t)sizeof **out));
    *out = malloc((size_t)(q->max_hits + 1) * sizeof **out);
    return *out ? search_index_query(ctx, s, q, *out, found, total) : ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
}

bool find_index(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, const char *name, served_index **x,
                index_view **v)
{
    *v = NULL;
    *x = serve_index(s, name);
    cloob_status status = *x ? index_need(s, ctx, *x, v) : CLOOB_OK;
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (!s->indexes) http_error(r, q, 404, "the server has no index; start it with --index");
    else if (!*x) http_error(r, q, 404, "there is no index %.100s; /v1/indexes lists them", name ? name : "");
    return *v != NULL;
}

char *entry_name(const cloob_search *s, int64_t i)
{
    size_t bytes;
    const char *name = search_files_name(&s->good, i, &bytes);
    return strndup(name, bytes);
}

/* ---- the request --------------------------------------------------------------------------------- */

typedef struct term {
    double weight;
    int64_t input; /* among the inputs, or -1 */
    int64_t entry; /* of the index, or -1 */
} term;

typedef struct search_request {
    json_doc *doc;
    inputs in;
    term *term;
    int64_t terms;
    filter filter;
    int64_t limit, offset;
    const char *index;
} search_request;

enum { MAX_TERMS = 64 };

static void search_request_release(search_request *a)
{
    inputs_release(&a->in);
    json_doc_close(a->doc);
    free(a->term);
}

static cloob_status add_term(cloob_ctx *ctx, search_request *a, const cloob_search *search, const json *t)
{
    const char *text = json_string(json_get(t, "text")), *image = json_string(json_get(t, "image"));
    const char *like = json_string(json_get(t, "like"));
    term x = { .weight = 1, .input = -1, .entry = -1 };
    cloob_status status = known_keys(ctx, t, "text image like weight");
    if (status != CLOOB_OK) return status;
    if ((text != NULL) + (image != NULL) + (like != NULL) != 1)
        return refuse(ctx, "a term holds one of text, image and like, a string");
    status = field_number(ctx, t, "weight", &x.weight);
    if (status != CLOOB_OK) return status;
    if (!(fabs(x.weight) <= 1e6)) return refuse(ctx, "weight: at most a million");
    if (a->terms == MAX_TERMS) return refuse(ctx, "more than %d terms", MAX_TERMS);
    if (like) {
        x.entry = entry_find(search, like);
        if (x.entry < 0) return refuse(ctx, "like: the index has no image %.200s", like);
    } else {
        x.input = a->in.n;
        status = text ? inputs_text(ctx, &a->in, text) : inputs_image(ctx, &a->in, image);
    }
    a->term[a->terms++] = x;
    return status;
}

static cloob_status read_date(cloob_ctx *ctx, const json *root, const char *key, int64_t *out)
{
    const char *text = NULL;
    cloob_status status = field_text(ctx, root, key, &text);
    if (status != CLOOB_OK || !text || !*text) return status;
    return date_parse(text, out) ? CLOOB_OK : refuse(ctx, "%s: a date such as 2020-01-31", key);
}

static cloob_status read_filter(cloob_ctx *ctx, search_request *a, const json *root)
{
    filter *f = &a->filter;
    double min = 0;
    CLOOB_TRY(field_text(ctx, root, "folder", &f->folder));
    CLOOB_TRY(field_text(ctx, root, "name", &f->name));
    CLOOB_TRY(read_date(ctx, root, "after", &f->after));
    CLOOB_TRY(read_date(ctx, root, "before", &f->before));
    CLOOB_TRY(field_int(ctx, root, "limit", 1, 1000, &a->limit));
    CLOOB_TRY(field_int(ctx, root, "offset", 0, INT64_C(1) << 40, &a->offset));
    CLOOB_TRY(field_number(ctx, root, "threshold", &min));
    f->threshold = (float)min, f->has_threshold = !field_absent(root, "threshold");
    f->folder_bytes = f->folder ? strlen(f->folder) : 0;
    if (!f->folder_bytes) f->folder = NULL;
    if (f->name && !*f->name) f->name = NULL;
    return f->name && strlen(f->name) > 200 ? refuse(ctx, "name: at most 200 bytes") : CLOOB_OK;
}

static cloob_status read_terms(cloob_ctx *ctx, search_request *a, const cloob_search *search, const json *root)
{
    const char *text = NULL, *image = NULL;
    const json *terms = json_get(root, "terms");
    cloob_status status = field_text(ctx, root, "text", &text);
    if (status == CLOOB_OK) status = field_text(ctx, root, "image", &image);
    if (status != CLOOB_OK) return status;
    if (text && *text) {
        a->term[a->terms++] = (term){ 1, a->in.n, -1 };
        status = inputs_text(ctx, &a->in, text);
    }
    if (status == CLOOB_OK && image && *image) {
        a->term[a->terms++] = (term){ 1, a->in.n, -1 };
        status = inputs_image(ctx, &a->in, image);
    }
    if (status == CLOOB_OK && !field_absent(root, "terms") && json_kind_of(terms) != JSON_ARRAY)
        return refuse(ctx, "terms: a list");
    for (const json *t = json_first(terms); t && status == CLOOB_OK; t = json_next(t))
        status = add_term(ctx, a, search, t);
    return status;
}

/* A raw image body searches by that image. */
static cloob_status read_raw(cloob_ctx *ctx, const http_request *q, search_request *a)
{
    const char *limit = http_query(q, "limit");
    if (limit) a->limit = strtoll(limit, NULL, 10);
    if (a->limit < 1 || a->limit > 1000) return refuse(ctx, "limit: a whole number from 1 to 1000");
    a->term[a->terms++] = (term){ 1, 0, -1 };
    if (http_type_is(q, "image/")) return inputs_bytes(ctx, &a->in, q->body, q->bytes);
    form_part *part = calloc(PART_MAX, sizeof *part);
    int n = part ? multipart_parse(q->content_type, q->body, q->bytes, part) : -1;
    const form_part *image = NULL;
    for (int i = 0; i < n && !image; i++)
        if (*part[i].filename || strcmp(part[i].name, "image") == 0) image = &part[i];
    cloob_status status =
        image ? inputs_bytes(ctx, &a->in, image->data, image->bytes) : refuse(ctx, "the multipart body holds no image");
    free(part);
    return status;
}

/* ---- the query's embedding ----------------------------------------------------------------------- */

/* Sum of the terms at unit length. NULL where there are no terms: everything, in the index's order. */
static cloob_status sum_terms(cloob_ctx *ctx, const search_request *a, const cloob_search *s,
                              const cloob_batch_rows *rows, float **out)
{
    int64_t D = cloob_search_width(s);
    *out = NULL;
    if (!a->terms) return CLOOB_OK;
    if (a->in.n && rows->width != D) return refuse(ctx, "the index is of another model");
    float *sum = calloc((size_t)D, sizeof *sum);
    if (!sum) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < a->terms; i++) {
        const float *row = a->term[i].entry >= 0 ? s->row + a->term[i].entry * D : rows->data + a->term[i].input * D;
        for (int64_t k = 0; k < D; k++) sum[k] += (float)a->term[i].weight * row[k];
    }
    unit_row(sum, D);
    *out = sum;
    return CLOOB_OK;
}

/* ---- the answer ---------------------------------------------------------------------------------- */

/* A query parameter, with everything but letters, digits and -._~/ escaped. */
static void put_escaped(sbuf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~/", c);
        sbuf_printf(out, plain ? "%c" : "%%%02X", c);
    }
}

static void put_link(json_out *w, const char *key, const char *url, const char *index, const char *path)
{
    sbuf s = { 0 };
    sbuf_puts(&s, url);
    put_escaped(&s, index);
    sbuf_puts(&s, "&path=");
    put_escaped(&s, path);
    json_put_text(w, key, s.data);
    w->failed = w->failed || s.failed;
    sbuf_release(&s);
}

/* Size and capture date from the first `bytes` of a file. false: they do not hold the size. */
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

static void put_facts(cloob_ctx *ctx, json_out *w, const served_index *x, const cloob_search *s, const char *path)
{
    enum { BEGINNING = 1 << 16 }; /* enough for most files */
    int64_t bytes;
    int fd = entry_open(x, s, path, &bytes);
    if (fd < 0) return;
    if (bytes <= BEGINNING || !put_facts_of(ctx, w, fd, BEGINNING)) put_facts_of(ctx, w, fd, bytes);
    close(fd);
}

static void put_hit(cloob_ctx *ctx, json_out *w, const served_index *x, const cloob_search *s, const search_hit *f,
                    bool scored)
{
    char date[32], *path = entry_name(s, f->entry);
    json_begin(w, NULL, '{');
    json_members(w, J_TEXT("path", path), J_NUMBER("score", scored ? round(1e6 * (double)f->score) / 1e6 : 0, 0));
    if (path) put_facts(ctx, w, x, s, path);
    date_print(s->good.mtime[f->entry], date);
    json_put_text(w, "date", date);
    if (path) put_link(w, "thumb", "/v1/thumb?size=256&index=", x->name, path);
    if (path) put_link(w, "image", "/v1/image?index=", x->name, path);
    json_end(w);
    w->failed = w->failed || !path;
    free(path);
}

static void put_found(cloob_ctx *ctx, http_reply *r, const search_request *a, const served_index *x,
                      const cloob_search *s, const search_hit *hit, int64_t found, int64_t total, double began)
{
    json_out w = { 0 };
    json_begin(&w, NULL, '{');
    json_members(&w, J_TEXT("index", x->name), J_INT("total", total));
    json_begin(&w, "results", '[');
    for (int64_t i = a->offset; i < found; i++) put_hit(ctx, &w, x, s, &hit[i], a->terms > 0);
    json_end(&w);
    json_put_number(&w, "took_ms", round(1e5 * (clock_seconds() - began)) / 100);
    json_end(&w);
    http_json(r, 200, &w);
}

static cloob_status read_body(cloob_ctx *ctx, const http_request *q, search_request *a)
{
    CLOOB_TRY(body_object(ctx, q, &a->doc));
    const json *root = json_doc_root(a->doc);
    CLOOB_TRY(known_keys(ctx, root, "text image terms index limit offset threshold folder name after before"));
    CLOOB_TRY(read_filter(ctx, a, root));
    return field_text(ctx, root, "index", &a->index);
}

/* Embeds the terms and scans the index. */
static void run_search(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, const search_request *a,
                       const served_index *x, const cloob_search *search)
{
    cloob_batch_rows rows = { 0 };
    float *query = NULL;
    search_hit *hit = NULL;
    int64_t found, total;
    double began = clock_seconds();
    if (a->in.n && !embed_inputs(s, ctx, q, r, x->model, &a->in, NULL, &rows)) return;
    const filter *f = &a->filter;
    bool any = !f->folder && !f->name && !f->after && !f->before;
    search_query sq = { .max_hits = a->offset + a->limit, .accept = any ? NULL : passes, .user = f };
    cloob_status status = sum_terms(ctx, a, search, &rows, &query);
    sq.row = query, sq.min_score = query && f->has_threshold ? &f->threshold : NULL;
    if (status == CLOOB_OK) status = find_entries(ctx, q->memory, search, &sq, &hit, &found, &total);
    if (status == CLOOB_OK) put_found(ctx, r, a, x, search, hit, found, total, began);
    else http_fail(r, q, ctx, status);
    free(query), free(hit);
    cloob_batch_rows_release(&rows);
}

void handle_search(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    bool raw = http_type_is(q, "image/") || http_type_is(q, "multipart/form-data");
    search_request a = { .limit = 60, .term = calloc(MAX_TERMS + 2, sizeof *a.term) };
    served_index *x;
    index_view *v = NULL;
    inputs_init(&a.in, s, q);
    cloob_status status = a.term ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    if (status == CLOOB_OK) status = raw ? read_raw(ctx, q, &a) : read_body(ctx, q, &a);
    if (http_query(q, "index")) a.index = http_query(q, "index");
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (find_index(s, ctx, q, r, a.index, &x, &v)) {
        if (!raw) status = read_terms(ctx, &a, v->search, json_doc_root(a.doc));
        if (status == CLOOB_OK) run_search(s, ctx, q, r, &a, x, v->search);
        else http_fail(r, q, ctx, status);
    }
    search_request_release(&a);
    index_release(v);
}

/* ---- the list of indexes ------------------------------------------------------------------------- */

enum { MAX_FOLDERS = 500 };

/* First folders of the paths, which are sorted, so equal ones are adjacent. */
static void put_folders(json_out *w, const cloob_search *s)
{
    const char *last = NULL;
    size_t last_bytes = 0;
    int64_t folders = 0;
    json_begin(w, "folders", '[');
    for (int64_t i = 0; i < cloob_search_count(s) && folders < MAX_FOLDERS; i++) {
        size_t bytes;
        const char *name = search_files_name(&s->good, i, &bytes), *slash = memchr(name, '/', bytes);
        size_t n = slash ? (size_t)(slash - name) + 1 : 0;
        if (!n || (n == last_bytes && memcmp(name, last, n) == 0)) continue;
        char *text = strndup(name, n);
        if (text) json_put_text(w, NULL, text);
        free(text);
        last = name, last_bytes = n, folders++;
    }
    json_end(w);
}

void handle_indexes(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_out w = { 0 };
    (void)ctx, (void)q;
    json_begin(&w, NULL, '{');
    json_begin(&w, "indexes", '[');
    for (int64_t i = 0; i < s->indexes; i++) {
        index_view *v = index_acquire(s, &s->index[i]);
        char error[512];
        index_error(s, &s->index[i], error);
        json_begin(&w, NULL, '{');
        json_members(&w, J_TEXT("name", s->index[i].name),
                     J_TEXT("state", v        ? "ready"
                                     : *error ? "failed"
                                              : "indexing"));
        if (*error) json_put_text(&w, "error", error);
        json_put_int(&w, "images", v ? cloob_search_count(v->search) : 0);
        if (v) put_folders(&w, v->search);
        else json_begin(&w, "folders", '['), json_end(&w);
        json_put_text(&w, "model", s->index[i].model->name);
        json_end(&w);
        if (v) index_release(v);
    }
    json_end(&w);
    json_end(&w);
    http_json(r, 200, &w);
}
