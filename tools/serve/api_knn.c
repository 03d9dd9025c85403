/* clip-retrieval's service: /indices-list, /knn-service, /metadata. */
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"

void handle_indices_list(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_out w = { 0 };
    (void)ctx, (void)q;
    json_begin(&w, NULL, '[');
    for (int64_t i = 0; i < s->indexes; i++) json_put_text(&w, NULL, s->index[i].name);
    json_end(&w);
    http_json(r, 200, &w);
}

static cloob_status open_index(cloob_ctx *ctx, serve *s, const json *root, served_index **x, index_view **v)
{
    const char *name = json_string(json_get(root, "indice_name"));
    *x = serve_index(s, name);
    if (!*x) return refuse(ctx, "there is no index %.100s", name ? name : "");
    return index_need(s, ctx, *x, v);
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

static cloob_status read_query(cloob_ctx *ctx, serve *s, const json *root, inputs *in)
{
    const char *text = json_string(json_get(root, "text")), *image = json_string(json_get(root, "image"));
    const char *url = json_string(json_get(root, "image_url"));
    if (text && *text) return inputs_text(ctx, in, text);
    if (image && *image) return inputs_image(ctx, s, in, image);
    if (url && *url) return inputs_image(ctx, s, in, url);
    return refuse(ctx, "one of text, image, image_url and embedding_input is needed");
}

static void put_results(http_reply *r, const cloob_search *s, const search_hit *hit, int64_t n, int64_t images)
{
    json_out w = { 0 };
    json_begin(&w, NULL, '[');
    for (int64_t i = 0; i < n; i++) {
        json_begin(&w, NULL, '{');
        if (i < images) put_metadata(&w, s, hit[i].entry);
        json_put_int(&w, "id", hit[i].entry);
        json_put_number(&w, "similarity", (double)hit[i].score);
        json_end(&w);
    }
    json_end(&w);
    http_json(r, 200, &w);
}

void handle_knn(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_doc *doc = NULL;
    served_index *x = NULL;
    index_view *v = NULL;
    inputs in;
    cloob_batch_rows rows = { 0 };
    float *query = NULL;
    search_hit *hit = NULL;
    int64_t images = 100, ids, found, total;
    inputs_init(&in, s, q);
    cloob_status status = body_object(ctx, q, &doc);
    const json *root = json_doc_root(doc), *ready = json_get(root, "embedding_input");
    bool given = json_kind_of(ready) == JSON_ARRAY;
    if (status == CLOOB_OK) status = open_index(ctx, s, root, &x, &v);
    int64_t D = v ? cloob_search_width(v->search) : 1;
    if (status == CLOOB_OK && !(query = malloc((size_t)D * sizeof *query))) status = CLOOB_ERR_MEMORY;
    if (status == CLOOB_OK) status = given ? read_embedding(ctx, ready, D, query) : read_query(ctx, s, root, &in);
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (given || embed_inputs(s, ctx, q, r, x->model, &in, CLOOB_UNIT, false, &rows)) {
        if (!given && rows.width == D) memcpy(query, rows.data, (size_t)D * sizeof *query);
        if (!given && rows.width != D) status = refuse(ctx, "the index is of another model");
        json_int(json_get(root, "num_images"), &images);
        ids = images;
        json_int(json_get(root, "num_result_ids"), &ids);
        if (ids < images) ids = images;
        search_query sq = { .row = query, .max_hits = ids > 0 ? ids : 0 };
        if (status == CLOOB_OK) status = find_entries(ctx, q->memory, v->search, &sq, &hit, &found, &total);
        if (status == CLOOB_OK) put_results(r, v->search, hit, found, images);
        else http_fail(r, q, ctx, status);
    }
    free(query), free(hit);
    cloob_batch_rows_release(&rows);
    inputs_release(&in);
    json_doc_close(doc);
    if (v) index_release(v);
}

/* ---- /metadata ----------------------------------------------------------------------------------- */

void handle_metadata(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_doc *doc = NULL;
    served_index *x;
    index_view *v = NULL;
    json_out w = { 0 };
    cloob_status status = body_object(ctx, q, &doc);
    const json *root = json_doc_root(doc), *ids = json_get(root, "ids");
    if (status == CLOOB_OK) status = open_index(ctx, s, root, &x, &v);
    if (status == CLOOB_OK && json_kind_of(ids) != JSON_ARRAY) status = refuse(ctx, "ids: a list of numbers");
    json_begin(&w, NULL, '[');
    for (const json *e = json_first(ids); e && status == CLOOB_OK; e = json_next(e)) {
        int64_t id;
        if (!json_int(e, &id) || id < 0 || id >= cloob_search_count(v->search)) {
            status = refuse(ctx, "ids: numbers from 0 to %lld", (long long)cloob_search_count(v->search) - 1);
            break;
        }
        json_begin(&w, NULL, '{');
        json_put_int(&w, "id", id);
        json_begin(&w, "metadata", '{');
        put_metadata(&w, v->search, id);
        json_end(&w);
        json_end(&w);
    }
    json_end(&w);
    if (status == CLOOB_OK) http_json(r, 200, &w);
    else free(w.data), http_fail(r, q, ctx, status);
    json_doc_close(doc);
    if (v) index_release(v);
}
