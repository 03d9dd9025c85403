/* Opening an index and asking it (cloob/search.h). */
#include "cloob/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "infer/model_file.h"
#include "infer/search_index.h"
#include "core/needs.h"
#include "core/ctx.h"
#include "core/file.h"

cloob_status cloob_search_index(cloob_ctx *ctx, cloob_model *m, const char *folder, const char *path,
                                const char *checkpoint, const char *vocab, cloob_search_update *out)
{
    API_NEEDS(ctx, m && folder && path && out);
    return search_index_update(ctx, m, folder, path, checkpoint, vocab ? vocab : "", out);
}

cloob_status cloob_search_open(cloob_ctx *ctx, const char *path, cloob_search **out)
{
    API_NEEDS(ctx, path && out);
    *out = NULL;
    cloob_search *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, path);
    cloob_status status = search_index_open(ctx, path, s);
    if (status == CLOOB_OK) *out = s;
    else free(s);
    return status;
}

cloob_status cloob_search_check(cloob_ctx *ctx, const cloob_search *s, cloob_model *m)
{
    API_NEEDS(ctx, s && m);
    return search_index_check(ctx, s, m);
}

void cloob_search_close(cloob_search *s)
{
    if (!s) return;
    search_index_close(s);
    free(s);
}

int64_t cloob_search_count(const cloob_search *s) { return s ? s->N : 0; }
int64_t cloob_search_width(const cloob_search *s) { return s ? s->D : 0; }
const char *cloob_search_checkpoint(const cloob_search *s) { return s ? s->checkpoint : NULL; }
const char *cloob_search_vocab(const cloob_search *s) { return s ? s->vocab : NULL; }

void cloob_search_hits_release(cloob_search_hit *hit, int64_t n)
{
    if (!hit) return;
    for (int64_t i = 0; i < n; i++) {
        free(hit[i].path);
        hit[i].path = NULL;
    }
}

const char *cloob_search_root(const cloob_search *s) { return s ? s->root : ""; }

const char *search_index_name(const cloob_search *s, int64_t i, size_t *bytes)
{
    if (!s || !bytes) return NULL;
    int64_t begin = i ? s->good.name_end[i - 1] : 0;
    *bytes = (size_t)(s->good.name_end[i] - begin);
    return s->good.name + begin;
}

bool search_index_made_by(const cloob_search *s, const float *row, int64_t D)
{
    return s && row && D == s->D && search_same_direction(row, s->probe, D);
}

cloob_status cloob_search_query(cloob_ctx *ctx, const cloob_search *s, const float *query, int64_t D, int64_t max_hits,
                                cloob_search_hit *hit, int64_t *found)
{
    API_NEEDS(ctx, s && query && found && max_hits >= 0 && (max_hits == 0 || hit));
    *found = 0;
    if (max_hits < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld results wanted: one or more", (long long)max_hits);
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
static cloob_status ask(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *text, const char *path,
                        int64_t max_hits, cloob_search_hit *hit, int64_t *found)
{
    *found = 0;
    CLOOB_TRY(search_index_check(ctx, s, m));
    float *query = malloc((size_t)s->D * sizeof *query);
    if (!query) return ctx_no_memory(ctx, (size_t)s->D * sizeof *query, "a row");
    cloob_status status = text ? model_texts(ctx, m, &text, 1, CLOOB_UNIT, query)
                               : model_image_files(ctx, m, &path, 1, CLOOB_UNIT, query, NULL);
    if (status == CLOOB_OK) status = cloob_search_query(ctx, s, query, s->D, max_hits, hit, found);
    free(query);
    return status;
}

cloob_status cloob_search_text(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *text,
                               int64_t max_hits, cloob_search_hit *hit, int64_t *found)
{
    API_NEEDS(ctx, s && m && text && found && max_hits >= 0 && (max_hits == 0 || hit));
    return ask(ctx, s, m, text, NULL, max_hits, hit, found);
}

cloob_status cloob_search_image(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *path,
                                int64_t max_hits, cloob_search_hit *hit, int64_t *found)
{
    API_NEEDS(ctx, s && m && path && found && max_hits >= 0 && (max_hits == 0 || hit));
    return ask(ctx, s, m, NULL, path, max_hits, hit, found);
}

/* ---- entries that were embedded elsewhere, together with those of an open index --------------------- */

/* An entry of either source; its name is a text of its own. */
typedef struct saved {
    char *name;
    const float *row;
    int64_t size, mtime, order; /* order: later entries replace earlier ones of the same name */
} saved;

static int by_name(const void *a, const void *b)
{
    const saved *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->order < y->order ? -1 : x->order > y->order;
}

static cloob_status check_rows(cloob_ctx *ctx, const cloob_search_entries *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        double square = 0;
        if (!e->name[i] || !*e->name[i])
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "entry %lld: has no name", (long long)i);
        for (int64_t k = 0; k < e->D; k++) square += (double)e->row[i * e->D + k] * e->row[i * e->D + k];
        if (!(fabs(square - 1) < 1e-3))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "entry %lld (%s): its row has length %g; unit length is needed",
                            (long long)i, e->name[i], sqrt(square));
    }
    return CLOOB_OK;
}

static cloob_status take_old(cloob_ctx *ctx, const cloob_search *s, saved *to)
{
    for (int64_t i = 0; s && i < s->N; i++) {
        size_t bytes;
        const char *name = search_index_name(s, i, &bytes);
        to[i] = (saved){ strndup(name, bytes), s->row + i * s->D, s->good.size[i], s->good.mtime[i], i };
        if (!to[i].name) return ctx_no_memory(ctx, bytes, "a name");
    }
    return CLOOB_OK;
}

/* An entry that names a file has its size and time, so that an update of the folder keeps it. */
static cloob_status take_new(cloob_ctx *ctx, const cloob_search_entries *e, const char *root, int64_t first, saved *to)
{
    for (int64_t i = 0; i < e->n; i++) {
        struct stat st;
        char *path = file_join(root, e->name[i]);
        bool file = path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
        to[i] = (saved){ .name = strdup(e->name[i]), .row = e->row + i * e->D, .order = first + i };
        if (file) to[i].size = (int64_t)st.st_size;
        if (file) to[i].mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        free(path);
        if (!path || !to[i].name) return ctx_no_memory(ctx, strlen(e->name[i]), "a name");
    }
    return CLOOB_OK;
}

/* Sorted by name, the last of those with equal names. */
static cloob_status write_entries(cloob_ctx *ctx, const char *path, const search_origin *from, const float *probe,
                                  int64_t D, saved *e, int64_t count)
{
    qsort(e, (size_t)count, sizeof *e, by_name);
    float *row = malloc((size_t)(count * D + 1) * sizeof *row);
    const char **name = malloc((size_t)(count + 1) * sizeof *name);
    int64_t *number = malloc((size_t)(2 * count + 1) * sizeof *number), *mtime = number ? number + count : NULL, n = 0;
    cloob_status status = row && name && number ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(count * D) * 4, "an index");
    for (int64_t i = 0; i < count && status == CLOOB_OK; i++) {
        if (i + 1 < count && strcmp(e[i].name, e[i + 1].name) == 0) continue;
        memcpy(row + n * D, e[i].row, (size_t)D * sizeof *row);
        name[n] = e[i].name, number[n] = e[i].size, mtime[n] = e[i].mtime;
        n++;
    }
    search_names good = { n, name, number, mtime };
    if (status == CLOOB_OK) status = search_index_write(ctx, path, from, row, probe, D, &good, NULL);
    free(row), free(name), free(number);
    return status;
}

static cloob_status save(cloob_ctx *ctx, const cloob_search *s, const cloob_search_entries *more, const char *path,
                         const search_origin *from, const float *probe)
{
    int64_t old = s ? s->N : 0, count = old + more->n;
    saved *e = calloc((size_t)count + 1, sizeof *e);
    if (!e) return ctx_no_memory(ctx, (size_t)count * sizeof *e, "an index");
    cloob_status status = take_old(ctx, s, e);
    if (status == CLOOB_OK) status = take_new(ctx, more, from->root, old, e + old);
    if (status == CLOOB_OK) status = write_entries(ctx, path, from, probe, more->D, e, count);
    for (int64_t i = 0; i < count; i++) free(e[i].name);
    free(e);
    return status;
}

static cloob_status save_new(cloob_ctx *ctx, const cloob_search_entries *more, const char *path)
{
    char *root = realpath(more->root ? more->root : ".", NULL);
    float *probe = malloc((size_t)(more->D + 1) * sizeof *probe);
    cloob_status status = CLOOB_OK;
    if (!root) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: not a folder that can be read", more->root ? more->root : ".");
    else if (!probe) status = ctx_no_memory(ctx, (size_t)more->D * sizeof *probe, "a row");
    else if ((status = search_probe_embed(ctx, more->model, probe)) == CLOOB_OK)
        status = save(ctx, NULL, more, path,
                      &(search_origin){ root, more->checkpoint ? more->checkpoint : "", more->vocab ? more->vocab : "",
                                        more->model->digest },
                      probe);
    free(root), free(probe);
    return status;
}

cloob_status cloob_search_save(cloob_ctx *ctx, const cloob_search *s, const cloob_search_entries *more,
                               const char *path)
{
    API_NEEDS(ctx, more && path && more->n >= 0 && (more->n == 0 || (more->name && more->row)) && (s || more->model));
    int64_t D = s ? s->D : encoder_config(more->model->enc)->embed;
    if (more->n && more->D != D)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the new rows have %lld elements, the index %lld", (long long)more->D,
                        (long long)D);
    CLOOB_TRY(check_rows(ctx, more));
    cloob_search_entries e = *more;
    e.D = D;
    if (!s) return save_new(ctx, &e, path);
    return save(ctx, s, &e, path, &(search_origin){ s->root, s->checkpoint, s->vocab, s->digest }, s->probe);
}
