/* Opening an index and asking it (cloob/search.h). */
#include "cloob/search.h"

#include <stdlib.h>

#include "infer/model_file.h"
#include "infer/search_index.h"
#include "core/needs.h"
#include "core/ctx.h"

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

const float *search_index_rows(const cloob_search *s) { return s ? s->row : NULL; }
const char *cloob_search_root(const cloob_search *s) { return s ? s->root : ""; }
int64_t search_index_mtime_ns(const cloob_search *s, int64_t i) { return s ? s->good.mtime[i] : 0; }

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
