/* Reads, writes and queries an index; search_update.c updates one. */
#include "infer/search_index.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/needs.h"
#include "core/pool.h"
#include "infer/model_file.h"

/* ---- reading ------------------------------------------------------------------------------------- */

static cloob_status column(cloob_ctx *ctx, const search_index *ix, const char *path, const char *name, cloob_dtype type,
                           int ndim, int64_t rows, int64_t columns, const void **out)
{
    const tensor *t;
    CLOOB_TRY(st_need(ctx, &ix->file, path, name, ndim, &t));
    if ((uintptr_t)t->data % dtype_size(type) || t->dtype != type || (rows >= 0 && t->dim[0] != rows) ||
        (ndim == 2 && t->dim[1] != columns))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s has the wrong type or shape for an index; build the index again",
                        path, name);
    *out = t->data;
    return CLOOB_OK;
}

/* name, name_end, size and mtime, each behind a prefix. n -1: as many as there are. */
static cloob_status read_files(cloob_ctx *ctx, const search_index *ix, const char *path, const char *prefix, int64_t n,
                               search_files *f)
{
    static const char *const names[] = { "size", "mtime", "name_end", "name" };
    const void *p[4] = { 0 };
    const tensor *t = NULL;
    for (int i = 0; i < 4; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s%s", prefix, names[i]);
        CLOOB_TRY(column(ctx, ix, path, key, i < 3 ? CLOOB_I64 : CLOOB_U8, 1, i < 3 ? n : -1, 0, &p[i]));
        CLOOB_TRY(st_need(ctx, &ix->file, path, key, 1, &t));
        if (n < 0) n = t->dim[0];
    }
    *f = (search_files){ n, p[0], p[1], p[2], p[3] };
    int64_t begin = 0;
    for (int64_t i = 0; i < f->n; begin = f->name_end[i++])
        if (f->name_end[i] <= begin || f->name_end[i] > t->dim[0])
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the names are damaged; build the index again", path);
    return CLOOB_OK;
}

static const char *meta(const search_index *ix, const char *key)
{
    const char *value = st_meta_get(&ix->file, key);
    return value ? value : "";
}

static cloob_status read_all(cloob_ctx *ctx, const char *path, search_index *ix)
{
    const tensor *rows;
    const void *p[4] = { 0 };
    if (strcmp(meta(ix, "format"), "cloob-index") != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not an index of images; cloob search index builds one", path);
    CLOOB_TRY(st_need(ctx, &ix->file, path, "row", 2, &rows));
    ix->N = rows->dim[0], ix->D = rows->dim[1];
    CLOOB_TRY(column(ctx, ix, path, "row", CLOOB_F32, 2, ix->N, ix->D, &p[0]));
    CLOOB_TRY(column(ctx, ix, path, "coarse", CLOOB_I8, 2, ix->N, ix->D, &p[1]));
    CLOOB_TRY(column(ctx, ix, path, "scale", CLOOB_F32, 1, ix->N, 0, &p[2]));
    CLOOB_TRY(column(ctx, ix, path, "probe", CLOOB_F32, 1, ix->D, 0, &p[3]));
    ix->row = p[0], ix->coarse = p[1], ix->scale = p[2], ix->probe = p[3];
    ix->checkpoint = meta(ix, "checkpoint"), ix->vocab = meta(ix, "vocab");
    ix->digest = meta(ix, "model_digest");
    CLOOB_TRY(read_files(ctx, ix, path, "", ix->N, &ix->good));
    return st_find(&ix->file, "bad_size") ? read_files(ctx, ix, path, "bad_", -1, &ix->bad)
                                          : CLOOB_OK; /* older ones have none */
}

/* The folder that a file is in, without links; NULL when it cannot be read. */
static char *folder_of(const char *path)
{
    char *dir = file_folder(path), *real = dir ? realpath(dir, NULL) : NULL;
    free(dir);
    return real;
}

/* True when a folder contains one of the first entries. */
static bool holds_entries(const search_index *ix, const char *root)
{
    enum { TRIED = 100 };
    bool found = false;
    for (int64_t i = 0; root && i < ix->N && i < TRIED && !found; i++) {
        char *path = search_files_path(root, &ix->good, i);
        found = path && file_exists(path);
        free(path);
    }
    return found;
}

/* The indexed folder, by the rule in search_index.h. A new string. */
static char *find_root(const search_index *ix, const char *path)
{
    const char *from = meta(ix, "root_from_index"), *stored = meta(ix, "root"), *found = stored;
    char *own = folder_of(path), *joined = *from && own ? file_join(own, from) : NULL;
    char *relative = joined ? realpath(joined, NULL) : NULL;
    if (holds_entries(ix, relative) || (relative && !holds_entries(ix, stored) && !holds_entries(ix, own)))
        found = relative;
    else if (!holds_entries(ix, stored) && holds_entries(ix, own)) found = own;
    char *root = strdup(found);
    free(own), free(joined), free(relative);
    return root;
}

char *search_index_file(const char *path)
{
    return file_is_dir(path) ? file_join(path, SEARCH_INDEX_NAME) : strdup(path);
}

cloob_status cloob_search_open(cloob_ctx *ctx, const char *path, cloob_search **out)
{
    API_NEEDS(ctx, path && out);
    *out = NULL;
    search_index *ix = calloc(1, sizeof *ix);
    if (!ix) return ctx_no_memory(ctx, sizeof *ix, path);
    cloob_status status = st_open(ctx, path, &ix->file);
    if (status == CLOOB_OK) status = read_all(ctx, path, ix);
    if (status == CLOOB_OK && !(ix->root = find_root(ix, path))) status = ctx_no_memory(ctx, strlen(path), "a path");
    if (status == CLOOB_OK) *out = ix;
    else cloob_search_close(ix);
    return status;
}

void cloob_search_close(cloob_search *s)
{
    if (!s) return;
    st_close(&s->file);
    free(s->root);
    free(s);
}

int64_t cloob_search_count(const cloob_search *s) { return s ? s->N : 0; }
int64_t cloob_search_width(const cloob_search *s) { return s ? s->D : 0; }
const char *cloob_search_checkpoint(const cloob_search *s) { return s ? s->checkpoint : NULL; }
const char *cloob_search_vocab(const cloob_search *s) { return s ? s->vocab : NULL; }
const char *cloob_search_root(const cloob_search *s) { return s ? s->root : ""; }

const char *search_files_name(const search_files *f, int64_t i, size_t *bytes)
{
    int64_t begin = i ? f->name_end[i - 1] : 0;
    *bytes = (size_t)(f->name_end[i] - begin);
    return f->name + begin;
}

char *search_files_path(const char *root, const search_files *f, int64_t i)
{
    size_t bytes;
    const char *name = search_files_name(f, i, &bytes);
    sbuf path = { 0 };
    sbuf_printf(&path, "%s/", root);
    sbuf_add(&path, name, bytes);
    return sbuf_detach(&path);
}

char *search_index_path(const search_index *ix, int64_t i) { return search_files_path(ix->root, &ix->good, i); }

/* ---- writing ------------------------------------------------------------------------------------- */

static float quantise(const float *row, int64_t D, int8_t *out)
{
    float max = 0;
    for (int64_t k = 0; k < D; k++) max = fabsf(row[k]) > max ? fabsf(row[k]) : max;
    float scale = max > 0 ? max / 127 : 1;
    for (int64_t k = 0; k < D; k++) out[k] = (int8_t)lrintf(row[k] / scale);
    return scale;
}

/* The columns of the readable or of the unreadable entries. */
typedef struct columns {
    int64_t n, bytes; /* bytes of all names */
    int64_t *size, *mtime, *end;
    char *name;
} columns;

static cloob_status make_columns(cloob_ctx *ctx, arena *a, const search_entry *e, int64_t n, bool readable, columns *c)
{
    int64_t at = 0, k = 0;
    *c = (columns){ 0 };
    for (int64_t i = 0; i < n; i++)
        if ((e[i].row != NULL) == readable) c->n++, c->bytes += (int64_t)strlen(e[i].name);
    c->name = arena_push(a, (size_t)c->bytes + 1);
    c->size = arena_push(a, (size_t)(3 * c->n + 1) * sizeof *c->size);
    if (!c->name || !c->size) return ctx_no_memory(ctx, (size_t)(c->bytes + 24 * c->n), "an index");
    c->mtime = c->size + c->n, c->end = c->mtime + c->n;
    for (int64_t i = 0; i < n; i++) {
        if ((e[i].row != NULL) != readable) continue;
        size_t bytes = strlen(e[i].name);
        memcpy(c->name + at, e[i].name, bytes);
        c->size[k] = e[i].size, c->mtime[k] = e[i].mtime, c->end[k++] = at += (int64_t)bytes;
    }
    return CLOOB_OK;
}

/* The relative path from the index file's folder to the indexed folder: one ".." per level; "" when the file is outside
 * it. */
static cloob_status root_from_index(cloob_ctx *ctx, const char *path, const char *root, sbuf *out)
{
    char *own = folder_of(path);
    size_t n = strlen(root);
    if (own && strcmp(own, root) == 0) sbuf_puts(out, ".");
    else if (own && strncmp(own, root, n) == 0 && own[n] == '/')
        for (const char *p = own + n; *p; p++)
            if (*p == '/') sbuf_puts(out, out->len ? "/.." : "..");
    free(own);
    return out->failed ? ctx_no_memory(ctx, strlen(path), "a path") : CLOOB_OK;
}

static cloob_status write_index(cloob_ctx *ctx, arena *a, const char *path, const search_origin *from,
                                const char *root_from_here, const float *probe, int64_t D, const search_entry *entry,
                                int64_t n)
{
    columns good, bad;
    CLOOB_TRY(make_columns(ctx, a, entry, n, true, &good));
    CLOOB_TRY(make_columns(ctx, a, entry, n, false, &bad));
    float *row = arena_push(a, (size_t)(good.n * D + 1) * sizeof *row);
    float *scale = arena_push(a, (size_t)(good.n + 1) * sizeof *scale);
    int8_t *coarse = arena_push(a, (size_t)(good.n * D + 1));
    if (!row || !scale || !coarse) return ctx_no_memory(ctx, (size_t)(good.n * D) * 5, "an index");
    for (int64_t i = 0, k = 0; i < n; i++) {
        if (!entry[i].row) continue;
        memcpy(row + k * D, entry[i].row, (size_t)D * sizeof *row);
        scale[k] = quantise(row + k * D, D, coarse + k * D);
        k++;
    }
    /* widest first: the format has no padding, and every column must stay aligned */
    st_entry e[] = { { "size", TENSOR(CLOOB_I64, good.size, good.n) },
                     { "mtime", TENSOR(CLOOB_I64, good.mtime, good.n) },
                     { "name_end", TENSOR(CLOOB_I64, good.end, good.n) },
                     { "bad_size", TENSOR(CLOOB_I64, bad.size, bad.n) },
                     { "bad_mtime", TENSOR(CLOOB_I64, bad.mtime, bad.n) },
                     { "bad_name_end", TENSOR(CLOOB_I64, bad.end, bad.n) },
                     { "row", TENSOR(CLOOB_F32, row, good.n, D) },
                     { "scale", TENSOR(CLOOB_F32, scale, good.n) },
                     { "probe", TENSOR(CLOOB_F32, (void *)(uintptr_t)probe, D) },
                     { "coarse", TENSOR(CLOOB_I8, coarse, good.n, D) },
                     { "name", TENSOR(CLOOB_U8, good.name, good.bytes) },
                     { "bad_name", TENSOR(CLOOB_U8, bad.name, bad.bytes) } };
    st_meta m[] = { { "format", "cloob-index" },        { "root", from->root },   { "root_from_index", root_from_here },
                    { "checkpoint", from->checkpoint }, { "vocab", from->vocab }, { "model_digest", from->digest } };
    return st_write(ctx, path, e, sizeof e / sizeof *e, m, sizeof m / sizeof *m);
}

cloob_status search_index_write(cloob_ctx *ctx, const char *path, const search_origin *from, const float *probe,
                                int64_t D, const search_entry *entry, int64_t n)
{
    arena a = { 0 };
    sbuf relative = { 0 };
    cloob_status status = root_from_index(ctx, path, from->root, &relative);
    if (status == CLOOB_OK)
        status = write_index(ctx, &a, path, from, relative.len ? relative.data : "", probe, D, entry, n);
    arena_release(&a);
    sbuf_release(&relative);
    return status;
}

/* ---- queries ------------------------------------------------------------------------------------- */

/* 8-bit times 16-bit integers, which compilers vectorise as multiply-add of pairs. */
static int32_t coarse_dot(const int8_t *row, const int16_t *query, int64_t D)
{
    int32_t sum = 0;
    for (int64_t k = 0; k < D; k++) sum += (int32_t)row[k] * query[k];
    return sum;
}

static float exact_dot(const float *row, const float *query, int64_t D)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < D; k++) sum += (double)row[k] * query[k];
    return (float)sum;
}

typedef struct scan {
    const search_index *ix;
    const search_query *q;
    const int16_t *coarse;   /* the query in 16 bits; NULL: scores are exact */
    int64_t kept;            /* candidates of a range, at most */
    search_hit *hit;         /* (ranges, kept) */
    int64_t *found, *passed; /* (ranges) */
} scan;

static float scan_score(const scan *s, int64_t i)
{
    int64_t D = s->ix->D;
    if (!s->q->row) return 0;
    if (!s->coarse) return exact_dot(s->ix->row + i * D, s->q->row, D);
    return s->ix->scale[i] * (float)coarse_dot(s->ix->coarse + i * D, s->coarse, D);
}

static void scan_range(void *arg, int64_t begin, int64_t end, int thread)
{
    scan *s = arg;
    const search_query *q = s->q;
    int64_t n = 0, passed = 0;
    for (int64_t i = begin; i < end; i++) {
        if (q->accept && !q->accept(s->ix, i, q->user)) continue;
        float score = scan_score(s, i);
        if (q->min_score && score < *q->min_score) continue;
        passed++;
        if (s->kept) best_offer(s->hit + thread * s->kept, &n, s->kept, i, score);
    }
    s->found[thread] = n, s->passed[thread] = passed;
}

/* The best of all ranges, with exact scores. */
static void rank(scan *s, int ranges, search_hit *hit, int64_t *found, int64_t *total)
{
    int64_t n = 0, D = s->ix->D;
    search_hit *all = s->hit;
    for (int r = 0; r < ranges; r++) {
        *total += s->passed[r];
        for (int64_t i = 0; i < s->found[r]; i++) {
            search_hit x = s->hit[r * s->kept + i];
            if (s->coarse) x.score = exact_dot(s->ix->row + x.entry * D, s->q->row, D);
            all[n++] = x;
        }
    }
    qsort(all, (size_t)n, sizeof *all, best_first);
    *found = n < s->q->max_hits ? n : s->q->max_hits;
    memcpy(hit, all, (size_t)*found * sizeof *hit);
}

static void coarse_query(const float *row, int64_t D, int16_t *out)
{
    float top = 0;
    for (int64_t k = 0; k < D; k++) top = fabsf(row[k]) > top ? fabsf(row[k]) : top;
    for (int64_t k = 0; k < D; k++) out[k] = (int16_t)lrintf(row[k] / (top > 0 ? top : 1) * 8191);
}

cloob_status search_index_query(cloob_ctx *ctx, const search_index *ix, const search_query *q, search_hit *hit,
                                int64_t *found, int64_t *total)
{
    enum { GRAIN = 4096, SPARE = 256 }; /* more candidates than rounding to 8 bits can misplace */
    *found = *total = 0;
    if (q->row && q->D != ix->D)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "the query has %lld elements, the rows of the index %lld; use the "
                        "model that made the index",
                        (long long)q->D, (long long)ix->D);
    int ranges = pool_ranges(ctx, ix->N, GRAIN);
    bool coarse = q->row && !q->min_score;
    int64_t longest = (ix->N + ranges - 1) / ranges; /* range of pool_for */
    scan s = { .ix = ix, .q = q, .kept = coarse && q->max_hits < longest ? 4 * q->max_hits + SPARE : q->max_hits };
    if (s.kept > longest) s.kept = longest;
    int16_t *row = coarse ? malloc((size_t)(ix->D + 1) * sizeof *row) : NULL;
    s.hit = malloc((size_t)(ranges * s.kept + 1) * sizeof *s.hit);
    s.found = calloc((size_t)ranges, sizeof *s.found), s.passed = calloc((size_t)ranges, sizeof *s.passed);
    s.coarse = row;
    bool ok = (row || !coarse) && s.hit && s.found && s.passed;
    if (ok && coarse) coarse_query(q->row, ix->D, row);
    if (ok && ix->N) {
        pool_for(ctx, ix->N, GRAIN, scan_range, &s);
        rank(&s, ranges, hit, found, total);
    }
    free(row), free(s.hit), free(s.found), free(s.passed);
    return ok ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(ranges * s.kept) * sizeof *s.hit, "a search");
}

/* ---- hits with paths ----------------------------------------------------------------------------------- */

void cloob_search_hits_release(cloob_search_hit *hit, int64_t n)
{
    for (int64_t i = 0; hit && i < n; i++) {
        free(hit[i].path);
        hit[i].path = NULL;
    }
}

cloob_status cloob_search_query(cloob_ctx *ctx, const cloob_search *s, const float *query, int64_t D, int64_t max_hits,
                                cloob_search_hit *hit, int64_t *found)
{
    API_NEEDS(ctx, s && query && found && max_hits >= 0 && (max_hits == 0 || hit));
    *found = 0;
    if (max_hits < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld results: must be at least 1", (long long)max_hits);
    if (max_hits > s->N) max_hits = s->N;
    search_hit *inner = malloc((size_t)(max_hits + 1) * sizeof *inner);
    if (!inner) return ctx_no_memory(ctx, (size_t)max_hits * sizeof *inner, "results");
    int64_t total;
    search_query q = { .row = query, .D = D, .max_hits = max_hits };
    cloob_status status = search_index_query(ctx, s, &q, inner, found, &total);
    for (int64_t i = 0; i < *found; i++) {
        hit[i] = (cloob_search_hit){ search_index_path(s, inner[i].entry), inner[i].score };
        if (!hit[i].path) status = ctx_no_memory(ctx, 64, "a path");
    }
    if (status != CLOOB_OK) {
        cloob_search_hits_release(hit, *found);
        *found = 0;
    }
    free(inner);
    return status;
}

/* A text, or the image at path when text is NULL, embedded by the model that made the index. */
static cloob_status embed_query(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *text,
                                const char *path, int64_t max_hits, cloob_search_hit *hit, int64_t *found)
{
    *found = 0;
    CLOOB_TRY(cloob_search_check(ctx, s, m));
    float *query = malloc((size_t)s->D * sizeof *query);
    if (!query) return ctx_no_memory(ctx, (size_t)s->D * sizeof *query, "a row");
    cloob_status status = text ? cloob_encode_texts(ctx, m, &text, 1, CLOOB_UNIT, query)
                               : cloob_encode_files(ctx, m, &path, 1, CLOOB_UNIT, query, NULL);
    if (status == CLOOB_OK) status = cloob_search_query(ctx, s, query, s->D, max_hits, hit, found);
    free(query);
    return status;
}

cloob_status cloob_search_text(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *text,
                               int64_t max_hits, cloob_search_hit *hit, int64_t *found)
{
    API_NEEDS(ctx, s && m && text && found && max_hits >= 0 && (max_hits == 0 || hit));
    return embed_query(ctx, s, m, text, NULL, max_hits, hit, found);
}

cloob_status cloob_search_image(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *path,
                                int64_t max_hits, cloob_search_hit *hit, int64_t *found)
{
    API_NEEDS(ctx, s && m && path && found && max_hits >= 0 && (max_hits == 0 || hit));
    return embed_query(ctx, s, m, NULL, path, max_hits, hit, found);
}
