/* clip-retrieval's service: /indices-list, /knn-service, /metadata. */
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "core/ctx.h"

void handle_indices_list(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_out w = { 0 };
    (void)ctx, (void)q;
    json_begin(&w, NULL, '[');
    for (int64_t i = 0; i < s->indexes; i++) json_put_text(&w, NULL, s->index[i].name);
    json_end(&w);
    http_json(r, 200, &w);
}

/* Bytes of an entry in an answer: its name, of which few bytes are escaped, and numbers. */
static int64_t entry_bytes(const cloob_search *s, int64_t entry)
{
    size_t bytes;
    search_index_name(s, entry, &bytes);
    return 96 + 2 * (int64_t)bytes;
}

static void put_metadata(json_out *w, const cloob_search *s, int64_t entry)
{
    char *name = entry_name(s, entry);
    json_put_text(w, "image_path", name);
    free(name);
}

/* ---- /knn-service -------------------------------------------------------------------------------- */

/* A query given as D numbers, scaled to unit length. */
static cloob_status read_embedding(cloob_ctx *ctx, const json *list, int64_t D, float *out)
{
    int64_t k = 0;
    if (json_count(list) != D) return refuse(ctx, "embedding_input: %lld numbers", (long long)D);
    for (const json *v = json_first(list); v; v = json_next(v)) {
        double x;
        if (!json_number(v, &x)) return refuse(ctx, "embedding_input: numbers");
        out[k++] = (float)x;
    }
    unit_row(out, D);
    return CLOOB_OK;
}

static cloob_status read_query(cloob_ctx *ctx, const json *root, inputs *in)
{
    static const char *const key[] = { "text", "image", "image_url" };
    for (int k = 0; k < 3; k++) {
        const char *value = json_string(json_get(root, key[k]));
        if (value && *value) return k == 0 ? inputs_text(ctx, in, value) : inputs_image(ctx, in, value);
    }
    return refuse(ctx, "one of text, image, image_url and embedding_input is needed");
}

static void put_results(cloob_ctx *ctx, const http_request *q, http_reply *r, const cloob_search *s,
                        const search_hit *hit, int64_t n, int64_t images)
{
    json_out w = { 0 };
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; i++) bytes += entry_bytes(s, hit[i].entry);
    if (!http_reserve(r, q, ctx, bytes)) return;
    json_begin(&w, NULL, '[');
    for (int64_t i = 0; i < n; i++) {
        json_begin(&w, NULL, '{');
        if (i < images) put_metadata(&w, s, hit[i].entry);
        json_members(&w, J_INT("id", hit[i].entry), J_NUMBER("similarity", (double)hit[i].score, 0));
        json_end(&w);
    }
    json_end(&w);
    http_json(r, 200, &w);
}

/* The unit row of the query, in a new array. NULL: r holds the error, or waits. */
static float *query_row(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, const json *root,
                        const served_index *x, int64_t D)
{
    const json *ready = json_get(root, "embedding_input");
    cloob_batch_rows rows = { 0 };
    inputs in;
    float *row = NULL;
    inputs_init(&in, s, q);
    cloob_status status = CLOOB_OK;
    if (json_kind_of(ready) == JSON_ARRAY) {
        row = malloc((size_t)D * sizeof *row);
        status = row ? read_embedding(ctx, ready, D, row) : ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    } else {
        status = read_query(ctx, root, &in);
        if (status == CLOOB_OK && embed_inputs(s, ctx, q, r, x->model, &in, NULL, &rows)) row = rows.data;
        if (row && rows.width != D) status = refuse(ctx, "the index is of another model");
    }
    inputs_release(&in);
    if (status == CLOOB_OK) return row;
    free(row);
    http_fail(r, q, ctx, status);
    return NULL;
}

void handle_knn(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_doc *doc;
    served_index *x;
    index_view *v = NULL;
    float *query = NULL;
    search_hit *hit = NULL;
    int64_t images = 100, ids = 0, found, total;
    cloob_status status = body_object(ctx, q, &doc);
    const json *root = json_doc_root(doc);
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (find_index(s, ctx, q, r, json_string(json_get(root, "indice_name")), &x, &v))
        query = query_row(s, ctx, q, r, root, x, cloob_search_width(v->search));
    if (query) {
        json_int(json_get(root, "num_images"), &images);
        json_int(json_get(root, "num_result_ids"), &ids);
        if (ids < images) ids = images;
        search_query sq = { .row = query, .max_hits = ids > 0 ? ids : 0 };
        status = find_entries(ctx, q->memory, v->search, &sq, &hit, &found, &total);
        if (status == CLOOB_OK) put_results(ctx, q, r, v->search, hit, found, images);
        else http_fail(r, q, ctx, status);
    }
    free(query), free(hit);
    json_doc_close(doc);
    index_release(v);
}

/* ---- /metadata ----------------------------------------------------------------------------------- */

static cloob_status put_entries(cloob_ctx *ctx, account *memory, json_out *w, const cloob_search *s, const json *ids)
{
    enum { MAX_IDS = 10000 }; /* as the schema says (openapi.c) */
    if (json_kind_of(ids) != JSON_ARRAY || json_count(ids) > MAX_IDS)
        return refuse(ctx, "ids: a list of at most %d numbers", MAX_IDS);
    json_begin(w, NULL, '[');
    for (const json *e = json_first(ids); e; e = json_next(e)) {
        int64_t id;
        if (!json_int(e, &id) || id < 0 || id >= cloob_search_count(s))
            return refuse(ctx, "ids: numbers from 0 to %lld", (long long)cloob_search_count(s) - 1);
        CLOOB_TRY(account_reserve(ctx, memory, entry_bytes(s, id)));
        json_begin(w, NULL, '{');
        json_put_int(w, "id", id);
        json_begin(w, "metadata", '{');
        put_metadata(w, s, id);
        json_end(w);
        json_end(w);
    }
    json_end(w);
    return CLOOB_OK;
}

void handle_metadata(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_doc *doc;
    served_index *x;
    index_view *v = NULL;
    json_out w = { 0 };
    cloob_status status = body_object(ctx, q, &doc);
    const json *root = json_doc_root(doc);
    if (status == CLOOB_OK && find_index(s, ctx, q, r, json_string(json_get(root, "indice_name")), &x, &v)) {
        status = put_entries(ctx, q->memory, &w, v->search, json_get(root, "ids"));
        if (status == CLOOB_OK) http_json(r, 200, &w);
        else free(w.data);
    }
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    json_doc_close(doc);
    index_release(v);
}
