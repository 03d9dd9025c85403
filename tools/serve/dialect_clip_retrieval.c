/* The protocol of clip-retrieval's service: /indices-list, /knn-service, /metadata. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "core/ctx.h"

cloob_status handle_indices_list(call *c)
{
    json_begin(&c->w, NULL, '[');
    for (int64_t i = 0; i < c->s->indexes; i++) json_put_text(&c->w, NULL, c->s->index[i].name);
    return CLOOB_OK;
}

/* Reserves memory for an entry in the answer: its name, of which few bytes need escapes, and numbers. */
static cloob_status reserve_entry(call *c, int64_t entry)
{
    size_t bytes;
    search_files_name(&c->v->search->good, entry, &bytes);
    return account_reserve(c->ctx, c->q->memory, 96 + 2 * (int64_t)bytes);
}

/* ---- /knn-service -------------------------------------------------------------------------------- */

/* Reads a query given as D numbers and scales it to unit length. */
static cloob_status read_embedding(call *c, const json *list, float *out, int64_t D)
{
    int64_t k = 0;
    if (json_count(list) != D) return refuse(c->ctx, "embedding_input must be a list of %lld numbers", (long long)D);
    for (const json *v = json_first(list); v; v = json_next(v)) {
        double x;
        if (!json_number(v, &x) || fabs(x) > FLT_MAX)
            return refuse(c->ctx, "embedding_input must contain only fp32 numbers");
        out[k++] = (float)x;
    }
    unit_row(out, D);
    return CLOOB_OK;
}

static cloob_status embed_query(call *c)
{
    static const char *const key[] = { "text", "image", "image_url" };
    for (int k = 0; k < 3 && !c->inputs; k++) {
        const char *value = json_string(json_get(c->root, key[k]));
        if (value && *value) CLOOB_TRY(k == 0 ? input_text(c, value) : input_image(c, value));
    }
    if (!c->inputs) return refuse(c->ctx, "text, image, image_url or embedding_input is missing");
    c->m = c->v->model;
    return embed(c);
}

cloob_status handle_knn(call *c)
{
    const json *ready = json_get(c->root, "embedding_input");
    int64_t images = 100, ids = 0, found, total;
    search_hit *hit;
    CLOOB_TRY(call_index(c, json_string(json_get(c->root, "indice_name"))));
    int64_t D = cloob_search_width(c->v->search);
    if (json_kind_of(ready) == JSON_ARRAY) {
        c->rows = (batch_rows){ .data = malloc((size_t)D * sizeof(float)), .n = 1, .width = D };
        if (!c->rows.data) return ctx_fail(c->ctx, CLOOB_ERR_MEMORY, "out of memory");
        CLOOB_TRY(read_embedding(c, ready, c->rows.data, D));
    } else CLOOB_TRY(embed_query(c));
    if (c->rows.width != D) return refuse(c->ctx, "the index was made with another model");
    json_int(json_get(c->root, "num_images"), &images);
    json_int(json_get(c->root, "num_result_ids"), &ids);
    if (ids < images) ids = images;
    search_query q = { .row = c->rows.data, .max_hits = ids > 0 ? ids : 0 };
    CLOOB_TRY(find_entries(c, &q, &hit, &found, &total));
    json_begin(&c->w, NULL, '[');
    for (int64_t i = 0; i < found; i++) {
        CLOOB_TRY(reserve_entry(c, hit[i].entry));
        json_begin(&c->w, NULL, '{');
        if (i < images) put_entry_name(&c->w, "image_path", c->v->search, hit[i].entry);
        json_members(&c->w, J_INT("id", hit[i].entry), J_NUMBER("similarity", (double)hit[i].score, 0));
        json_end(&c->w);
    }
    return CLOOB_OK;
}

/* ---- /metadata ----------------------------------------------------------------------------------- */

cloob_status handle_metadata(call *c)
{
    enum { MAX_IDS = 10000 }; /* as stated in page/openapi.json */
    const json *ids = json_get(c->root, "ids");
    CLOOB_TRY(call_index(c, json_string(json_get(c->root, "indice_name"))));
    if (json_kind_of(ids) != JSON_ARRAY || json_count(ids) > MAX_IDS)
        return refuse(c->ctx, "ids must be a list of at most %d numbers", MAX_IDS);
    json_begin(&c->w, NULL, '[');
    for (const json *e = json_first(ids); e; e = json_next(e)) {
        int64_t id, n = cloob_search_count(c->v->search);
        if (!json_int(e, &id) || id < 0 || id >= n)
            return refuse(c->ctx, "ids must be numbers from 0 to %lld", (long long)n - 1);
        CLOOB_TRY(reserve_entry(c, id));
        json_begin(&c->w, NULL, '{');
        json_put_int(&c->w, "id", id);
        json_begin(&c->w, "metadata", '{');
        put_entry_name(&c->w, "image_path", c->v->search, id);
        json_end(&c->w);
        json_end(&c->w);
    }
    return CLOOB_OK;
}
