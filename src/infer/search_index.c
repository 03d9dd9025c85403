/* Reading, writing and asking an index; bringing one up to date is search_update.c. */
#include "infer/search_index.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/pool.h"

/* ---- reading ------------------------------------------------------------------------------------- */

static cloob_status column(cloob_ctx *ctx, const search_index *ix, const char *path, const char *name, cloob_dtype type,
                           int ndim, int64_t rows, int64_t columns, const void **out)
{
    const tensor *t;
    CLOOB_TRY(st_need(ctx, &ix->file, path, name, ndim, &t));
    if ((uintptr_t)t->data % dtype_size(type) || t->dtype != type || (rows >= 0 && t->dim[0] != rows) ||
        (ndim == 2 && t->dim[1] != columns))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s has another type or shape than an index; make it again", path,
                        name);
    *out = t->data;
    return CLOOB_OK;
}

static cloob_status check_names(cloob_ctx *ctx, const search_files *f, const char *path, int64_t bytes)
{
    int64_t begin = 0;
    for (int64_t i = 0; i < f->n; begin = f->name_end[i++])
        if (f->name_end[i] <= begin || f->name_end[i] > bytes)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the names are damaged; make the index again", path);
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
    return check_names(ctx, f, path, t->dim[0]);
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
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not an index of images; cloob search index makes one", path);
    CLOOB_TRY(st_need(ctx, &ix->file, path, "row", 2, &rows));
    ix->N = rows->dim[0], ix->D = rows->dim[1];
    CLOOB_TRY(column(ctx, ix, path, "row", CLOOB_F32, 2, ix->N, ix->D, &p[0]));
    CLOOB_TRY(column(ctx, ix, path, "coarse", CLOOB_I8, 2, ix->N, ix->D, &p[1]));
    CLOOB_TRY(column(ctx, ix, path, "scale", CLOOB_F32, 1, ix->N, 0, &p[2]));
    CLOOB_TRY(column(ctx, ix, path, "probe", CLOOB_F32, 1, ix->D, 0, &p[3]));
    ix->row = p[0], ix->coarse = p[1], ix->scale = p[2], ix->probe = p[3];
    ix->checkpoint = meta(ix, "checkpoint"), ix->vocab = meta(ix, "vocab");
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

/* Whether a folder holds one of the first entries. */
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

cloob_status search_index_open(cloob_ctx *ctx, const char *path, search_index *ix)
{
    *ix = (search_index){ 0 };
    CLOOB_TRY(st_open(ctx, path, &ix->file));
    cloob_status status = read_all(ctx, path, ix);
    if (status == CLOOB_OK && !(ix->root = find_root(ix, path))) status = ctx_no_memory(ctx, strlen(path), "a path");
    if (status != CLOOB_OK) search_index_close(ix);
    return status;
}

void search_index_close(search_index *ix)
{
    st_close(&ix->file);
    free(ix->root);
    *ix = (search_index){ 0 };
}

char *search_files_path(const char *root, const search_files *f, int64_t i)
{
    int64_t begin = i ? f->name_end[i - 1] : 0;
    size_t before = strlen(root), n = (size_t)(f->name_end[i] - begin);
    char *path = malloc(before + n + 2);
    if (!path) return NULL;
    memcpy(path, root, before);
    path[before] = '/';
    memcpy(path + before + 1, f->name + begin, n);
    path[before + 1 + n] = '\0';
    return path;
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

/* Names one after the other, and where each ends. */
typedef struct joined {
    char *name;
    int64_t *end, bytes;
} joined;

static cloob_status join_names(cloob_ctx *ctx, const search_names *s, joined *j)
{
    *j = (joined){ 0 };
    for (int64_t i = 0; i < s->n; i++) j->bytes += (int64_t)strlen(s->name[i]);
    j->name = malloc((size_t)j->bytes + 1);
    j->end = malloc((size_t)(s->n + 1) * sizeof *j->end);
    if (!j->name || !j->end) return ctx_no_memory(ctx, (size_t)j->bytes, "an index");
    int64_t end = 0;
    for (int64_t i = 0; i < s->n; i++) {
        size_t bytes = strlen(s->name[i]);
        memcpy(j->name + end, s->name[i], bytes);
        j->end[i] = end += (int64_t)bytes;
    }
    return CLOOB_OK;
}

typedef struct columns {
    int8_t *coarse;
    float *scale;
    joined good, bad;
} columns;

static void columns_release(columns *c)
{
    free(c->coarse), free(c->scale);
    free(c->good.name), free(c->good.end), free(c->bad.name), free(c->bad.end);
}

static cloob_status make_columns(cloob_ctx *ctx, const float *rows, int64_t D, const search_names *good,
                                 const search_names *bad, columns *c)
{
    int64_t n = good->n;
    *c = (columns){ .coarse = malloc((size_t)(n * D) + 1), .scale = malloc((size_t)(n + 1) * sizeof *c->scale) };
    if (!c->coarse || !c->scale) return ctx_no_memory(ctx, (size_t)(n * D), "an index");
    for (int64_t i = 0; i < n; i++) c->scale[i] = quantise(rows + i * D, D, c->coarse + i * D);
    CLOOB_TRY(join_names(ctx, good, &c->good));
    return join_names(ctx, bad, &c->bad);
}

/* The way from the folder of an index file to the indexed folder: one ".." for each folder between them; "" when the
 * file is elsewhere. */
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

static tensor numbers(const int64_t *data, int64_t n) { return TENSOR(CLOOB_I64, (void *)(uintptr_t)data, n); }

cloob_status search_index_write(cloob_ctx *ctx, const char *path, const char *root, const char *checkpoint,
                                const char *vocab, const float *rows, const float *probe, int64_t D,
                                const search_names *good, const search_names *bad)
{
    const search_names none = { 0 };
    columns c;
    sbuf from = { 0 };
    if (!bad) bad = &none;
    cloob_status status = make_columns(ctx, rows, D, good, bad, &c);
    if (status == CLOOB_OK) status = root_from_index(ctx, path, root, &from);
    if (status == CLOOB_OK) {
        int64_t n = good->n;
        /* widest first: the format has no padding, and every column must stay aligned */
        st_entry e[] = { { "size", numbers(good->size, n) },
                         { "mtime", numbers(good->mtime, n) },
                         { "name_end", numbers(c.good.end, n) },
                         { "bad_size", numbers(bad->size, bad->n) },
                         { "bad_mtime", numbers(bad->mtime, bad->n) },
                         { "bad_name_end", numbers(c.bad.end, bad->n) },
                         { "row", TENSOR(CLOOB_F32, (void *)(uintptr_t)rows, n, D) },
                         { "scale", TENSOR(CLOOB_F32, c.scale, n) },
                         { "probe", TENSOR(CLOOB_F32, (void *)(uintptr_t)probe, D) },
                         { "coarse", TENSOR(CLOOB_I8, c.coarse, n, D) },
                         { "name", TENSOR(CLOOB_U8, c.good.name, c.good.bytes) },
                         { "bad_name", TENSOR(CLOOB_U8, c.bad.name, c.bad.bytes) } };
        st_meta m[] = { { "format", "cloob-index" },
                        { "root", root },
                        { "root_from_index", from.len ? from.data : "" },
                        { "checkpoint", checkpoint },
                        { "vocab", vocab } };
        status = st_write(ctx, path, e, sizeof e / sizeof *e, m, sizeof m / sizeof *m);
    }
    columns_release(&c);
    sbuf_release(&from);
    return status;
}

/* ---- asking -------------------------------------------------------------------------------------- */

/* A heap of the best, the worst of them on top; equal scores: the later entry is the worse. */
static bool worse(search_hit a, search_hit b) { return a.score < b.score || (a.score == b.score && a.entry > b.entry); }

static void sift_down(search_hit *h, int64_t n, int64_t i)
{
    for (;;) {
        int64_t smallest = i, left = 2 * i + 1, right = left + 1;
        if (left < n && worse(h[left], h[smallest])) smallest = left;
        if (right < n && worse(h[right], h[smallest])) smallest = right;
        if (smallest == i) return;
        search_hit swap = h[i];
        h[i] = h[smallest], h[smallest] = swap;
        i = smallest;
    }
}

static void heap_offer(search_hit *h, int64_t *n, int64_t max_hits, search_hit x)
{
    if (*n < max_hits) {
        h[(*n)++] = x;
        if (*n == max_hits)
            for (int64_t i = max_hits / 2; i-- > 0;) sift_down(h, max_hits, i);
    } else if (worse(h[0], x)) {
        h[0] = x;
        sift_down(h, max_hits, 0);
    }
}

/* Whole numbers of 8 bits against 16: compilers turn this into multiply-and-add-pairs. */
static int32_t coarse_dot(const int8_t *row, const int16_t *query, int64_t D)
{
    int32_t sum = 0;
    for (int64_t k = 0; k < D; k++) sum += (int32_t)row[k] * query[k];
    return sum;
}

typedef struct scan {
    const search_index *ix;
    const int16_t *query;
    int64_t pool;
    search_hit *hit; /* (ranges, pool) */
    int64_t *found;  /* (ranges) */
} scan;

static void scan_range(void *arg, int64_t begin, int64_t end, int thread)
{
    scan *s = arg;
    search_hit *h = s->hit + thread * s->pool;
    int64_t n = 0, D = s->ix->D;
    for (int64_t i = begin; i < end; i++) {
        float score = s->ix->scale[i] * (float)coarse_dot(s->ix->coarse + i * D, s->query, D);
        heap_offer(h, &n, s->pool, (search_hit){ i, score });
    }
    s->found[thread] = n;
}

static int best_first(const void *a, const void *b)
{
    const search_hit *x = a, *y = b;
    return worse(*y, *x) ? -1 : worse(*x, *y) ? 1 : 0;
}

/* The pool of the coarse scan, scored exactly. */
static int64_t rank_exactly(const search_index *ix, const float *query, scan *s, int ranges, int64_t max_hits,
                            search_hit *hit)
{
    int64_t n = 0, D = ix->D;
    search_hit *all = s->hit;
    for (int r = 0; r < ranges; r++)
        for (int64_t i = 0; i < s->found[r]; i++) {
            int64_t entry = s->hit[r * s->pool + i].entry;
            double dot = 0;
            for (int64_t k = 0; k < D; k++) dot += (double)ix->row[entry * D + k] * query[k];
            all[n++] = (search_hit){ entry, (float)dot };
        }
    qsort(all, (size_t)n, sizeof *all, best_first);
    if (n > max_hits) n = max_hits;
    memcpy(hit, all, (size_t)n * sizeof *hit);
    return n;
}

cloob_status search_index_query(cloob_ctx *ctx, const search_index *ix, const float *query, int64_t D, int64_t max_hits,
                                search_hit *hit, int64_t *found)
{
    enum { GRAIN = 4096, SPARE = 256 }; /* the pool is far larger than what rounding to 8 bits can misplace */
    *found = 0;
    if (D != ix->D)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "the query has %lld elements, the rows of the index %lld; use the "
                        "model that made the index",
                        (long long)D, (long long)ix->D);
    int ranges = pool_ranges(ctx, ix->N, GRAIN);
    scan s = { .ix = ix, .pool = 4 * max_hits + SPARE };
    int16_t *q = malloc((size_t)(D + 1) * sizeof *q);
    float top = 0;
    if (s.pool > ix->N) s.pool = ix->N;
    s.hit = malloc((size_t)(ranges * s.pool + 1) * sizeof *s.hit);
    s.found = calloc((size_t)ranges + 1, sizeof *s.found);
    s.query = q;
    bool ok = q && s.hit && s.found;
    for (int64_t k = 0; k < D && ok; k++) top = fabsf(query[k]) > top ? fabsf(query[k]) : top;
    for (int64_t k = 0; k < D && ok; k++) q[k] = (int16_t)lrintf(query[k] / (top > 0 ? top : 1) * 8191);
    if (ok && ix->N) {
        pool_for(ctx, ix->N, GRAIN, scan_range, &s);
        *found = rank_exactly(ix, query, &s, ranges, max_hits, hit);
    }
    free(q), free(s.hit), free(s.found);
    return ok ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(ranges * s.pool) * sizeof *s.hit, "a search");
}
