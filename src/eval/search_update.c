/* Bringing an index up to date: what has the same name, size and time is kept, the rest is embedded. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/file.h"
#include "eval/search_index.h"
#include "io/picture_list.h"

enum { FILES_BETWEEN_CLOCKS = 256, SECONDS_BETWEEN_WRITES = 30 };

/* ---- is it the same model? ----------------------------------------------------------------------- */

/* A fixed picture of slopes: any other weights give another embedding. */
static cloob_status embed_probe(cloob_ctx *ctx, model *m, float *out)
{
    int64_t S = m->view.size;
    uint8_t *rgb = malloc((size_t)(S * S * 3));
    if (!rgb) return ctx_no_memory(ctx, (size_t)(S * S * 3), "a picture");
    for (int64_t i = 0; i < S * S; i++) {
        rgb[3 * i] = (uint8_t)(255 * (i % S) / S);
        rgb[3 * i + 1] = (uint8_t)(255 * (i / S) / S);
        rgb[3 * i + 2] = (uint8_t)(255 * ((i % S + i / S) % 16) / 16);
    }
    cloob_status status = encoder_images(ctx, m->enc, rgb, 1, ENCODE_UNIT, out);
    free(rgb);
    return status;
}

static bool same_direction(const float *a, const float *b, int64_t D)
{
    double dot = 0;
    for (int64_t k = 0; k < D; k++) dot += (double)a[k] * b[k];
    return dot > 0.999; /* bf16 against fp32 passes, other weights do not */
}

cloob_status search_index_check(cloob_ctx *ctx, const search_index *ix, model *m)
{
    int64_t D = encoder_config(m->enc)->embed;
    float *probe = malloc((size_t)D * sizeof *probe);
    if (!probe) return ctx_no_memory(ctx, (size_t)D * sizeof *probe, "a row");
    cloob_status status = embed_probe(ctx, m, probe);
    if (status == CLOOB_OK && (D != ix->D || !same_direction(probe, ix->probe, D)))
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                          "the index was made with another model than %s; index the folder again", m->path);
    free(probe);
    return status;
}

/* ---- the work ------------------------------------------------------------------------------------ */

typedef struct update {
    model *m;
    const char *path, *root, *checkpoint, *vocab;
    picture_list l; /* sorted by path */
    int64_t D;
    float *row; /* (count, D) */
    bool *have; /* (count) */
    float *probe;
} update;

static cloob_status update_write(cloob_ctx *ctx, const update *u)
{
    int64_t n = 0, most = u->l.count + 1, D = u->D;
    size_t skip = strlen(u->root) + 1;
    const char **name = malloc((size_t)most * sizeof *name);
    int64_t *size = malloc((size_t)most * sizeof *size), *mtime = malloc((size_t)most * sizeof *mtime);
    float *row = malloc((size_t)(most * D) * sizeof *row);
    cloob_status status =
        name && size && mtime && row ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(most * D) * 4, "an index");
    for (int64_t i = 0; i < u->l.count && status == CLOOB_OK; i++) {
        if (!u->have[i]) continue;
        name[n] = u->l.item[i].path + skip, size[n] = u->l.item[i].size, mtime[n] = u->l.item[i].mtime_ns;
        memcpy(row + n++ * D, u->row + i * D, (size_t)D * sizeof *row);
    }
    if (status == CLOOB_OK)
        status = search_index_write(ctx, u->path, u->root, u->checkpoint, u->vocab, row, u->probe, D, name,
                                    size, mtime, n);
    free(name), free(size), free(mtime), free(row);
    return status;
}

static int64_t find_picture(const picture_list *l, const char *path)
{
    int64_t low = 0, high = l->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int order = strcmp(l->item[middle].path, path);
        if (order == 0) return middle;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

static cloob_status keep_old(cloob_ctx *ctx, update *u, search_update *out)
{
    search_index ix;
    cloob_status status = CLOOB_OK;
    if (!file_exists(u->path)) return CLOOB_OK;
    CLOOB_TRY(search_index_open(ctx, u->path, &ix)); /* a file that is no index is never overwritten */
    if (strcmp(ix.root, u->root) != 0)
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s is the index of %s; choose another --out", u->path,
                          ix.root);
    else if (ix.D != u->D || !same_direction(ix.probe, u->probe, u->D))
        ctx_log(ctx, CLOOB_LOG_INFO, "%s was made with another model: everything is embedded again", u->path);
    else
        for (int64_t i = 0; i < ix.N && status == CLOOB_OK; i++) {
            char *path = search_index_path(&ix, i);
            if (!path) status = ctx_no_memory(ctx, 64, "a path");
            int64_t at = path ? find_picture(&u->l, path) : -1;
            free(path);
            if (at < 0) out->removed++;
            else if (u->l.item[at].size == ix.size[i] && u->l.item[at].mtime_ns == ix.mtime[i]) {
                memcpy(u->row + at * u->D, ix.row + i * u->D, (size_t)u->D * sizeof *u->row);
                u->have[at] = true;
                out->kept++;
            }
        }
    search_index_close(&ix);
    return status;
}

/* Embeds up to FILES_BETWEEN_CLOCKS missing pictures from *next on. */
static cloob_status embed_some(cloob_ctx *ctx, update *u, int64_t *next, search_update *out)
{
    const char *path[FILES_BETWEEN_CLOCKS];
    int64_t at[FILES_BETWEEN_CLOCKS], n = 0, D = u->D;
    bool bad[FILES_BETWEEN_CLOCKS];
    for (; *next < u->l.count && n < FILES_BETWEEN_CLOCKS; ++*next)
        if (!u->have[*next]) at[n] = *next, path[n++] = u->l.item[*next].path;
    if (!n) return CLOOB_OK;
    float *row = malloc((size_t)(n * D) * sizeof *row);
    if (!row) return ctx_no_memory(ctx, (size_t)(n * D) * sizeof *row, "embeddings");
    cloob_status status = model_picture_files(ctx, u->m, path, n, ENCODE_UNIT, row, bad);
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        if (bad[i]) out->bad++;
        else {
            memcpy(u->row + at[i] * D, row + i * D, (size_t)D * sizeof *row);
            u->have[at[i]] = true;
            out->embedded++;
        }
    }
    free(row);
    return status;
}

static cloob_status embed_missing(cloob_ctx *ctx, update *u, search_update *out)
{
    time_t written = time(NULL);
    for (int64_t next = 0; next < u->l.count;) {
        CLOOB_TRY(embed_some(ctx, u, &next, out));
        if (time(NULL) - written < SECONDS_BETWEEN_WRITES || next >= u->l.count) continue;
        CLOOB_TRY(update_write(ctx, u));
        ctx_log(ctx, CLOOB_LOG_INFO, "%lld of %lld pictures", (long long)next, (long long)u->l.count);
        written = time(NULL);
    }
    return CLOOB_OK;
}

static cloob_status run(cloob_ctx *ctx, update *u, search_update *out)
{
    CLOOB_TRY(picture_list_add(ctx, &u->l, u->root));
    size_t rows = (size_t)(u->l.count + 1);
    u->D = encoder_config(u->m->enc)->embed;
    u->row = calloc(rows * (size_t)u->D, sizeof *u->row);
    u->have = calloc(rows, sizeof *u->have);
    u->probe = malloc((size_t)u->D * sizeof *u->probe);
    if (!u->row || !u->have || !u->probe)
        return ctx_no_memory(ctx, rows * (size_t)u->D * sizeof *u->row, "an index");
    CLOOB_TRY(embed_probe(ctx, u->m, u->probe));
    CLOOB_TRY(keep_old(ctx, u, out));
    CLOOB_TRY(embed_missing(ctx, u, out));
    out->pictures = out->kept + out->embedded;
    if (!out->pictures) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: holds no readable pictures", u->root);
    if (!out->embedded && !out->removed && file_exists(u->path)) return CLOOB_OK;
    return update_write(ctx, u);
}

static char *full_path(const char *path) { return *path ? realpath(path, NULL) : strdup(""); }

cloob_status search_index_update(cloob_ctx *ctx, model *m, const char *folder, const char *path,
                                 const char *checkpoint, const char *vocab, search_update *out)
{
    char *root = realpath(folder, NULL), *weights_path = full_path(checkpoint),
         *vocab_path = full_path(vocab);
    update u = { .m = m, .path = path, .root = root, .checkpoint = weights_path, .vocab = vocab_path };
    *out = (search_update){ 0 };
    cloob_status status;
    if (!root || !file_is_dir(root))
        status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: not a folder that can be read", folder);
    else if (!weights_path || !vocab_path)
        status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: %s", checkpoint, strerror(errno));
    else status = run(ctx, &u, out);
    free(u.row), free(u.have), free(u.probe);
    picture_list_release(&u.l);
    free(root), free(weights_path), free(vocab_path);
    return status;
}
