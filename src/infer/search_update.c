/* Updates an index: rows of files with the same name, size and time are kept, other files are embedded; or adds entries
 * that the caller embedded. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/arith.h"
#include "core/file.h"
#include "core/limits.h"
#include "core/needs.h"
#include "infer/model_file.h"
#include "infer/search_index.h"
#include "io/image/image_list.h"

/* Images are embedded in pieces of at most PIECE_FILES and about half a second; progress and requests to stop are
 * handled between pieces. */
enum { PIECE_FILES = 256, FIRST_PIECE = 2, SECONDS_BETWEEN_WRITES = 30 };
#define PIECE_SECONDS 0.5

/* ---- the model that made the index -------------------------------------------------------------------------- */

/* A fixed image of gradients: other weights give another embedding. */
void search_probe_image(int64_t S, uint8_t *rgb)
{
    for (int64_t i = 0; i < S * S; i++) {
        rgb[3 * i] = (uint8_t)(255 * (i % S) / S);
        rgb[3 * i + 1] = (uint8_t)(255 * (i / S) / S);
        rgb[3 * i + 2] = (uint8_t)(255 * ((i % S + i / S) % 16) / 16);
    }
}

static cloob_status embed_probe(cloob_ctx *ctx, model *m, float *out)
{
    int64_t S = m->view.size;
    uint8_t *rgb = malloc((size_t)(S * S * 3));
    if (!rgb) return ctx_no_memory(ctx, (size_t)(S * S * 3), "an image");
    search_probe_image(S, rgb);
    cloob_status status = encoder_images(ctx, m->enc, rgb, 1, CLOOB_UNIT, out);
    free(rgb);
    return status;
}

bool search_index_has_digest(const search_index *ix, const char *digest)
{
    return *digest && strcmp(digest, ix->digest) == 0;
}

bool search_index_made_by(const search_index *ix, const float *row, int64_t D)
{
    double dot = 0;
    for (int64_t k = 0; k < D && D == ix->D; k++) dot += (double)row[k] * ix->probe[k];
    return dot > 0.999; /* bf16 against fp32 passes, other weights do not */
}

cloob_status cloob_search_check(cloob_ctx *ctx, const cloob_search *ix, cloob_model *m)
{
    API_NEEDS(ctx, ix && m);
    int64_t D = encoder_config(m->enc)->embed;
    if (D == ix->D && search_index_has_digest(ix, m->digest)) return CLOOB_OK;
    float *probe = malloc((size_t)D * sizeof *probe);
    if (!probe) return ctx_no_memory(ctx, (size_t)D * sizeof *probe, "a row");
    cloob_status status = embed_probe(ctx, m, probe);
    if (status == CLOOB_OK && !search_index_made_by(ix, probe, D))
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                          "the index was made with another model than %s; index the folder again", m->path);
    free(probe);
    return status;
}

/* ---- the work ------------------------------------------------------------------------------------ */

typedef struct update {
    model *m;
    const char *path, *root;
    search_origin from;
    image_list l; /* sorted by path */
    int64_t D;
    float *row;       /* (count, D) */
    bool *have, *bad; /* (count) embedded; cannot be read */
    float *probe;
    bool outdated; /* root or digest in the metadata is out of date */
} update;

/* Writes what is embedded or unreadable so far. */
static cloob_status update_write(cloob_ctx *ctx, const update *u)
{
    size_t skip = strlen(u->root) + 1;
    int64_t n = 0;
    search_entry *e = malloc((size_t)(u->l.count + 1) * sizeof *e);
    if (!e) return ctx_no_memory(ctx, (size_t)u->l.count * sizeof *e, "an index");
    for (int64_t i = 0; i < u->l.count; i++) {
        const image_entry *p = &u->l.item[i];
        if (u->have[i] || u->bad[i])
            e[n++] = (search_entry){ p->path + skip, u->have[i] ? u->row + i * u->D : NULL, p->size, p->mtime_ns, 0 };
    }
    cloob_status status = search_index_write(ctx, u->path, &u->from, u->probe, u->D, e, n);
    free(e);
    return status;
}

static int by_path(const void *path, const void *entry) { return strcmp(path, ((const image_entry *)entry)->path); }

/* The position of file i of an old list in the folder now; -1: deleted, -2: changed. */
static int64_t find_unchanged(const update *u, const search_files *f, int64_t i, bool *no_memory)
{
    char *path = search_files_path(u->root, f, i);
    *no_memory = !path;
    const image_entry *now = NULL;
    if (path && u->l.count) now = bsearch(path, u->l.item, (size_t)u->l.count, sizeof *u->l.item, by_path);
    free(path);
    if (!now) return -1;
    return now->size == f->size[i] && now->mtime_ns == f->mtime[i] ? now - u->l.item : -2;
}

static cloob_status keep_files(cloob_ctx *ctx, update *u, const search_index *ix, cloob_search_update *out)
{
    bool no_memory = false;
    for (int64_t i = 0; i < ix->N && !no_memory; i++) {
        int64_t at = find_unchanged(u, &ix->good, i, &no_memory);
        if (at == -1) out->removed++;
        if (at < 0) continue;
        memcpy(u->row + at * u->D, ix->row + i * u->D, (size_t)u->D * sizeof *u->row);
        u->have[at] = true;
        out->kept++;
    }
    for (int64_t i = 0; i < ix->bad.n && !no_memory; i++) {
        int64_t at = find_unchanged(u, &ix->bad, i, &no_memory);
        if (at < 0 || u->have[at]) continue;
        u->bad[at] = true;
        out->bad++, out->bad_before++;
    }
    return no_memory ? ctx_no_memory(ctx, 64, "a path") : CLOOB_OK;
}

static cloob_status keep_old(cloob_ctx *ctx, update *u, cloob_search_update *out)
{
    search_index *ix;
    cloob_status status = CLOOB_OK;
    if (!file_exists(u->path)) return CLOOB_OK;
    CLOOB_TRY(cloob_search_open(ctx, u->path, &ix)); /* never overwrite a file that is not an index */
    const char *stored = st_meta_get(&ix->file, "root");
    u->outdated = !stored || strcmp(stored, u->root) != 0 || !st_meta_get(&ix->file, "root_from_index") ||
                  strcmp(ix->digest, u->m->digest) != 0;
    bool other_root = strcmp(ix->root, u->root) != 0;
    if (other_root && file_is_dir(ix->root))
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s is the index of %s; choose another `out`", u->path, ix->root);
    else if (!search_index_made_by(ix, u->probe, u->D))
        ctx_log(ctx, CLOOB_LOG_INFO, "%s was made with another model: everything is embedded again", u->path);
    else if ((status = keep_files(ctx, u, ix, out)) == CLOOB_OK && other_root && !out->kept)
        status = ctx_fail(
            ctx, CLOOB_ERR_ARGUMENT,
            "%s is the index of %s, which no longer exists, and %s contains none of its images; choose another `out`",
            u->path, ix->root, u->root);
    cloob_search_close(ix);
    return status;
}

/* Embeds up to `most` missing images from *next on. */
static cloob_status embed_some(cloob_ctx *ctx, update *u, int64_t most, int64_t *next, cloob_search_update *out)
{
    const char *path[PIECE_FILES];
    int64_t at[PIECE_FILES], n = 0, D = u->D;
    bool bad[PIECE_FILES];
    for (; *next < u->l.count && n < most; ++*next)
        if (!u->have[*next] && !u->bad[*next]) at[n] = *next, path[n++] = u->l.item[*next].path;
    if (!n) return CLOOB_OK;
    float *row = malloc((size_t)(n * D) * sizeof *row);
    if (!row) return ctx_no_memory(ctx, (size_t)(n * D) * sizeof *row, "embeddings");
    cloob_status status = cloob_encode_files(ctx, u->m, path, n, CLOOB_UNIT, row, bad);
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        if (bad[i]) {
            u->bad[at[i]] = true;
            out->bad++;
        } else {
            memcpy(u->row + at[i] * D, row + i * D, (size_t)D * sizeof *row);
            u->have[at[i]] = true;
            out->embedded++;
        }
    }
    free(row);
    return status;
}

static cloob_status stop(cloob_ctx *ctx, const update *u, const cloob_search_update *out)
{
    int64_t saved = out->kept + out->embedded;
    if (out->embedded) CLOOB_TRY(update_write(ctx, u));
    return ctx_fail(ctx, CLOOB_ERR_STOPPED, "%s: stopped; %lld of %lld images are saved, the same command continues",
                    u->path, (long long)saved, (long long)u->l.count);
}

static cloob_status embed_missing(cloob_ctx *ctx, update *u, cloob_search_update *out)
{
    double written = clock_seconds();
    int64_t piece = FIRST_PIECE;
    ctx_progress(ctx, "index", 0, u->l.count, "images");
    for (int64_t next = 0; next < u->l.count;) {
        double began = clock_seconds();
        if (ctx_should_stop(ctx)) return stop(ctx, u, out);
        CLOOB_TRY(embed_some(ctx, u, piece, &next, out));
        ctx_progress(ctx, "index", next, u->l.count, "images");
        double seconds = clock_seconds() - began; /* pieces double or halve until one takes about PIECE_SECONDS */
        if (seconds > PIECE_SECONDS) piece = max64(piece / 2, 1);
        else if (seconds < PIECE_SECONDS / 2) piece = min64(2 * piece, PIECE_FILES);
        if (clock_seconds() - written < SECONDS_BETWEEN_WRITES || next >= u->l.count) continue;
        CLOOB_TRY(update_write(ctx, u));
        written = clock_seconds();
    }
    return CLOOB_OK;
}

static cloob_status run(cloob_ctx *ctx, update *u, cloob_search_update *out)
{
    CLOOB_TRY(image_list_add(ctx, &u->l, u->root, true));
    size_t rows = (size_t)(u->l.count + 1);
    u->D = encoder_config(u->m->enc)->embed;
    u->row = calloc(rows * (size_t)u->D, sizeof *u->row);
    u->have = calloc(rows, sizeof *u->have);
    u->bad = calloc(rows, sizeof *u->bad);
    u->probe = malloc((size_t)u->D * sizeof *u->probe);
    if (!u->row || !u->have || !u->bad || !u->probe)
        return ctx_no_memory(ctx, rows * (size_t)u->D * sizeof *u->row, "an index");
    CLOOB_TRY(embed_probe(ctx, u->m, u->probe));
    CLOOB_TRY(keep_old(ctx, u, out));
    CLOOB_TRY(embed_missing(ctx, u, out));
    out->images = out->kept + out->embedded;
    if (!out->images) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: holds no readable images", u->root);
    if (!u->outdated && !out->embedded && !out->removed && out->bad == out->bad_before && file_exists(u->path))
        return CLOOB_OK;
    return update_write(ctx, u);
}

static char *full_path(const char *path) { return path && *path ? realpath(path, NULL) : strdup(""); }

/* Checks before embedding that the folder of the index is writable. */
static cloob_status check_writable(cloob_ctx *ctx, const char *path)
{
    char *dir = file_folder(path);
    if (!dir) return ctx_no_memory(ctx, strlen(path), "a path");
    bool refused = access(dir, W_OK) != 0;
    free(dir);
    return refused ? ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot create: %s; name another file with `out`", path,
                              strerror(errno))
                   : CLOOB_OK;
}

cloob_status cloob_search_index(cloob_ctx *ctx, cloob_model *m, const char *folder, const char *path,
                                const char *checkpoint, const char *vocab, cloob_search_update *out)
{
    API_NEEDS(ctx, m && folder && path && out);
    char *root = realpath(folder, NULL), *weights_path = full_path(checkpoint), *vocab_path = full_path(vocab);
    update u = { .m = m, .path = path, .root = root, .from = { root, weights_path, vocab_path, m->digest } };
    *out = (cloob_search_update){ 0 };
    cloob_status status;
    if (!root || !file_is_dir(root)) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: not a folder that can be read", folder);
    else if (!weights_path || !vocab_path) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: %s", checkpoint, strerror(errno));
    else if ((status = check_writable(ctx, path)) == CLOOB_OK) status = run(ctx, &u, out);
    free(u.row), free(u.have), free(u.bad), free(u.probe);
    image_list_release(&u.l);
    free(root), free(weights_path), free(vocab_path);
    return status;
}

/* ---- entries that the caller embedded ---------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const search_entry *x = a, *y = b;
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
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "entry %lld (%s): its row has length %g, not 1", (long long)i,
                            e->name[i], sqrt(square));
    }
    return CLOOB_OK;
}

/* An entry that names a file has its size and time, so that an update of the folder keeps it. */
static cloob_status new_entry(cloob_ctx *ctx, const cloob_search_entries *more, const char *root, int64_t i,
                              search_entry *out)
{
    struct stat st;
    char path[FILE_PATH];
    CLOOB_TRY(file_in(ctx, root, more->name[i], path));
    *out = (search_entry){ .name = more->name[i], .row = more->row + i * more->D };
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        out->size = (int64_t)st.st_size;
        out->mtime = time_ns(st.st_mtim);
    }
    return CLOOB_OK;
}

/* Merges the entries of s and `more`, sorted by name; of equal names the last one is used. */
static cloob_status merge(cloob_ctx *ctx, arena *a, const cloob_search *s, const cloob_search_entries *more,
                          const char *root, search_entry **out, int64_t *n)
{
    int64_t old = s ? s->N : 0, count = old + more->n;
    search_entry *e = *out = arena_push(a, (size_t)(count + 1) * sizeof *e);
    if (!e) return ctx_no_memory(ctx, (size_t)count * sizeof *e, "an index");
    for (int64_t i = 0; i < count; i++) {
        size_t bytes;
        if (i >= old) CLOOB_TRY(new_entry(ctx, more, root, i - old, &e[i]));
        else {
            const char *name = search_files_name(&s->good, i, &bytes);
            e[i] = (search_entry){ arena_string_n(a, name, bytes), s->row + i * s->D, s->good.size[i], s->good.mtime[i],
                                   0 };
            if (!e[i].name) return ctx_no_memory(ctx, bytes, "a name");
        }
        e[i].order = i;
    }
    qsort(e, (size_t)count, sizeof *e, by_name);
    for (int64_t i = 0; i < count; i++)
        if (i + 1 == count || strcmp(e[i].name, e[i + 1].name) != 0) e[(*n)++] = e[i];
    return CLOOB_OK;
}

static cloob_status save(cloob_ctx *ctx, const cloob_search *s, const cloob_search_entries *more, const char *path,
                         const search_origin *from, const float *probe)
{
    arena a = { 0 };
    search_entry *e;
    int64_t n = 0;
    cloob_status status = merge(ctx, &a, s, more, from->root, &e, &n);
    if (status == CLOOB_OK) status = search_index_write(ctx, path, from, probe, more->D, e, n);
    arena_release(&a);
    return status;
}

static cloob_status save_new(cloob_ctx *ctx, const cloob_search_entries *more, const char *path)
{
    char *root = realpath(more->root ? more->root : ".", NULL);
    float *probe = malloc((size_t)(more->D + 1) * sizeof *probe);
    search_origin from = { root, more->checkpoint ? more->checkpoint : "", more->vocab ? more->vocab : "",
                           more->model->digest };
    cloob_status status = CLOOB_OK;
    if (!root) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: not a folder that can be read", more->root ? more->root : ".");
    else if (!probe) status = ctx_no_memory(ctx, (size_t)more->D * sizeof *probe, "a row");
    else if ((status = embed_probe(ctx, more->model, probe)) == CLOOB_OK)
        status = save(ctx, NULL, more, path, &from, probe);
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
