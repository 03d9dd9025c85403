/* Processes a request: parses the body, runs the handler and sends its answer. Also embeds inputs, which most handlers
 * do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "core/ctx.h"
#include "core/text.h"

void call_run(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    call c = { .s = s, .ctx = ctx, .q = q, .r = r };
    bool raw = http_type_is(q, "image/") || http_type_is(q, "multipart/form-data");
    bool in_json = strcmp(q->route->method, "POST") == 0 && !(q->route->flags & ROUTE_FORM) &&
                   !(q->route->flags & ROUTE_IMAGE && raw);
    cloob_status status = in_json ? body_object(ctx, q, &c.doc) : CLOOB_OK;
    c.root = json_doc_root(c.doc);
    if (status == CLOOB_OK) status = q->route->run(&c);
    while (status == CLOOB_OK && c.w.depth) json_end(&c.w);
    if (status == CLOOB_OK && !r->code) http_json(r, 200, &c.w);
    else if (status != CLOOB_OK && !r->code && !r->wait) http_error(r, q, http_code(status), "%s", cloob_error(ctx));
    for (int64_t k = 0; k < c.owned_count; k++) free(c.owned[k]);
    free(c.owned), free(c.in), free(c.w.data);
    batch_rows_release(&c.rows);
    json_doc_close(c.doc);
    index_release(c.v);
}

cloob_status call_index(call *c, const char *name)
{
    c->x = serve_index(c->s, name);
    if (c->x) return index_need(c->s, c->ctx, c->x, &c->v);
    if (!c->s->indexes) return call_error(c, 404, "the server has no index; start it with --index");
    return call_error(c, 404, "no index %.100s; /v1/indexes lists them", name ? name : "");
}

/* ---- rows ---------------------------------------------------------------------------------------- */

void unit_row(float *row, int64_t n)
{
    double square = dot_rows(row, row, n);
    for (int64_t k = 0; k < n && square > 0; k++) row[k] = (float)((double)row[k] / sqrt(square));
}

double dot_rows(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)a[k] * b[k];
    return sum;
}

void put_rows(call *c, const char *key, int64_t first, int64_t n)
{
    json_begin(&c->w, key, '[');
    for (int64_t i = first; i < first + n; i++) json_put_floats(&c->w, NULL, row_at(c, i), c->rows.width);
    json_end(&c->w);
}

void put_base64(json_out *w, const char *key, const float *row, int64_t n)
{
    sbuf text = { 0 };
    base64_put(&text, row, (size_t)n * sizeof *row);
    json_put_text(w, key, text.data ? text.data : "");
    w->failed = w->failed || text.failed;
    sbuf_release(&text);
}

/* ---- embedding ----------------------------------------------------------------------------------- */

/* Upper bound of the memory for embedding: rows, the inputs of one piece (see batcher), the answer as JSON numbers, and
 * tokenizing the longest text, which takes seven times its bytes. */
static int64_t embed_memory(const served_model *m, const batch_input *in, int64_t n, int64_t images)
{
    enum { IMAGES_AT_ONCE = 16, NUMBER_BYTES = 16, TOKENIZE_TIMES = 8 };
    cloob_model_facts f;
    batcher_get_facts(m->batcher, &f);
    int64_t longest = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t bytes = in[k].kind == BATCH_TEXT ? (int64_t)strlen(in[k].text) : 0;
        if (bytes > longest) longest = bytes;
    }
    if (images > IMAGES_AT_ONCE) images = IMAGES_AT_ONCE;
    return n * f.embed * ((int64_t)sizeof(float) + NUMBER_BYTES) + images * f.image_size * f.image_size * 3 +
           TOKENIZE_TIMES * longest;
}

static cloob_status encode(call *c, const batch_input *in, int64_t n, batch_rows *rows)
{
    int64_t images = 0;
    double left = (double)c->s->o->timeout_s - (clock_seconds() - c->q->received_at);
    batch_options o = { .what = c->raw ? CLOOB_RAW : CLOOB_UNIT,
                        .refuse_long = c->refuse_long,
                        .timeout_ms = (int64_t)(1e3 * (left > 0.1 ? left : 0.1)) };
    for (int64_t k = 0; k < n; k++) images += in[k].kind == BATCH_IMAGE_FILE;
    if (images && !gate_enter(&c->s->images, c->r)) return CLOOB_ERR_BUSY;
    cloob_status status = account_reserve(c->ctx, c->q->memory, embed_memory(c->m, in, n, images));
    if (status == CLOOB_OK) status = batcher_encode(c->ctx, c->m->batcher, in, n, &o, rows);
    if (images) gate_leave(&c->s->images);
    return status;
}

/* Embeds the inputs one at a time after they failed as a batch. Only images may fail. */
static cloob_status encode_each(call *c)
{
    batch_rows *all = &c->rows;
    c->error = calloc((size_t)c->images + 1, sizeof *c->error);
    CLOOB_TRY(call_own(c, c->error));
    for (int64_t i = 0; i < c->inputs; i++) {
        batch_rows row = { 0 };
        cloob_status status = encode(c, c->in + i, 1, &row);
        if (status == CLOOB_OK) {
            if (!all->data)
                all->data = calloc((size_t)(c->inputs * row.width), sizeof *row.data), all->width = row.width;
            if (!all->data) status = ctx_fail(c->ctx, CLOOB_ERR_MEMORY, "out of memory");
            else if (row.width != all->width)
                status = ctx_fail(c->ctx, CLOOB_ERR_BUSY, "the model was replaced; try again");
            else memcpy(row_at(c, i), row.data, (size_t)row.width * sizeof *row.data);
            batch_rows_release(&row);
        } else if (i < c->images && http_code(status) == 400) {
            c->error[i] = strdup(cloob_error(c->ctx));
            status = call_own(c, c->error[i]);
        }
        CLOOB_TRY(status);
    }
    all->n = c->inputs;
    return CLOOB_OK;
}

/* Truncates rows to `dimensions` columns, and scales them to unit length unless the rows are raw. */
static cloob_status cut_rows(call *c)
{
    int64_t width = c->dimensions;
    batch_rows *rows = &c->rows;
    if (width > rows->width)
        return refuse(c->ctx, "dimensions must be at most the model's %lld", (long long)rows->width);
    if (!width || width == rows->width) return CLOOB_OK;
    for (int64_t i = 0; i < rows->n; i++) {
        memmove(rows->data + i * width, rows->data + i * rows->width, (size_t)width * sizeof *rows->data);
        if (!c->raw) unit_row(rows->data + i * width, width);
    }
    rows->width = width;
    return CLOOB_OK;
}

cloob_status embed(call *c)
{
    if (!c->m) c->m = serve_model(c->s, c->model);
    if (!c->m) return call_error(c, 404, "no model %.200s; /v1/models lists them", c->model);
    if (!c->inputs && c->may_be_empty) return CLOOB_OK;
    if (!c->inputs) return refuse(c->ctx, "the input is empty; send at least one text or image");
    cloob_status status = encode(c, c->in, c->inputs, &c->rows);
    if (c->skip_errors && status != CLOOB_OK && http_code(status) == 400) status = encode_each(c);
    return status == CLOOB_OK ? cut_rows(c) : status;
}

cloob_status read_errors(call *c) { return field_word(c->ctx, c->root, "errors", "fail", "skip", &c->skip_errors); }

void put_errors(call *c)
{
    if (!c->skip_errors) return;
    json_begin(&c->w, "errors", '[');
    for (int64_t i = 0; i < c->images; i++) json_put_text(&c->w, NULL, c->error ? c->error[i] : NULL);
    json_end(&c->w);
}
