/* One handler for every protocol that embeds: its dialect reads the request and writes the answer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "core/ctx.h"

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

void put_rows(json_out *w, const char *key, const float *row, int64_t n, int64_t width)
{
    json_begin(w, key, '[');
    for (int64_t i = 0; i < n; i++) json_put_floats(w, NULL, row + i * width, width);
    json_end(w);
}

/* ---- embedding ----------------------------------------------------------------------------------- */

static bool is_image(const cloob_batch_input *in)
{
    return in->kind == CLOOB_BATCH_IMAGE_FILE || in->kind == CLOOB_BATCH_IMAGE_RGB;
}

/* Memory that embedding takes: rows, the inputs of one piece (batcher), the answer as numbers in JSON, and tokenizing
 * the longest text, which takes seven times its bytes. */
static int64_t embed_memory(served_model *m, const inputs *i, int64_t images)
{
    enum { IMAGES_AT_ONCE = 16, NUMBER_BYTES = 16, TOKENIZE_TIMES = 8 };
    cloob_model_facts f;
    cloob_batcher_get_facts(m->batcher, &f);
    int64_t longest = 0;
    for (int64_t k = 0; k < i->n; k++) {
        int64_t bytes = i->in[k].kind == CLOOB_BATCH_TEXT ? (int64_t)strlen(i->in[k].text) : 0;
        if (bytes > longest) longest = bytes;
    }
    if (images > IMAGES_AT_ONCE) images = IMAGES_AT_ONCE;
    return i->n * f.embed * ((int64_t)sizeof(float) + NUMBER_BYTES) + images * f.image_size * f.image_size * 3 +
           TOKENIZE_TIMES * longest;
}

bool embed_inputs(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, served_model *m, const inputs *i,
                  const cloob_batch_options *o, cloob_batch_rows *rows)
{
    int64_t images = 0;
    double left = (double)s->o->timeout_s - (clock_seconds() - q->received_at);
    cloob_batch_options with_time = o ? *o : (cloob_batch_options){ .what = CLOOB_UNIT };
    with_time.timeout_ms = (int64_t)(1e3 * (left > 0.1 ? left : 0.1));
    for (int64_t k = 0; k < i->n; k++) images += is_image(&i->in[k]);
    if (i->n == 0) {
        http_error(r, q, 400, "the input is empty: give at least one text or image");
        return false;
    }
    if (images && !gate_enter(&s->images, r)) return false;
    cloob_status status = account_reserve(ctx, q->memory, embed_memory(m, i, images));
    if (status == CLOOB_OK) status = cloob_batcher_encode(ctx, m->batcher, i->in, i->n, &with_time, rows);
    if (images) gate_leave(&s->images);
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    return status == CLOOB_OK;
}

/* ---- the handler --------------------------------------------------------------------------------- */

cloob_status call_body(cloob_ctx *ctx, embed_call *e)
{
    CLOOB_TRY(body_object(ctx, e->q, &e->doc));
    e->root = json_doc_root(e->doc);
    return CLOOB_OK;
}

cloob_status call_errors(cloob_ctx *ctx, embed_call *e)
{
    const char *word = "fail";
    cloob_status status = field_text(ctx, e->root, "errors", &word);
    e->skip_errors = strcmp(word, "skip") == 0;
    if (status == CLOOB_OK && !e->skip_errors && strcmp(word, "fail") != 0) return refuse(ctx, "errors: fail or skip");
    return status;
}

void put_errors(json_out *w, const embed_call *e)
{
    if (!e->skip_errors) return;
    json_begin(w, "errors", '[');
    for (int64_t i = 0; i < e->images; i++) json_put_text(w, NULL, e->error ? e->error[i] : NULL);
    json_end(w);
}

/* Embeds the inputs one at a time, after they failed together. Only images may fail. */
static bool embed_each(cloob_ctx *ctx, embed_call *e, served_model *m, const cloob_batch_options *o,
                       cloob_batch_rows *rows)
{
    int64_t n = e->in.n;
    e->error = calloc((size_t)e->images + 1, sizeof *e->error);
    cloob_status status = inputs_own(ctx, &e->in, e->error);
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        inputs one = { .in = e->in.in + i, .n = 1 };
        cloob_batch_rows row = { 0 };
        if (embed_inputs(e->s, ctx, e->q, e->r, m, &one, o, &row)) {
            if (!rows->data) rows->data = calloc((size_t)(n * row.width), sizeof *rows->data), rows->width = row.width;
            if (!rows->data) status = ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
            else if (row.width != rows->width)
                status = ctx_fail(ctx, CLOOB_ERR_BUSY, "the model was replaced; try again");
            else memcpy(rows->data + i * row.width, row.data, (size_t)row.width * sizeof *row.data);
            cloob_batch_rows_release(&row);
        } else if (i >= e->images || e->r->code != 400) return false;
        else {
            e->error[i] = strdup(cloob_error(ctx));
            status = inputs_own(ctx, &e->in, e->error[i]);
            http_reply_release(e->r);
        }
    }
    rows->n = n;
    if (status != CLOOB_OK) http_fail(e->r, e->q, ctx, status);
    return status == CLOOB_OK;
}

static bool embed_all(cloob_ctx *ctx, embed_call *e, served_model *m, cloob_batch_rows *rows)
{
    cloob_batch_options o = { .what = e->raw ? CLOOB_RAW : CLOOB_UNIT, .refuse_long = e->refuse_long };
    if (e->may_be_empty && !e->in.n) return true;
    if (embed_inputs(e->s, ctx, e->q, e->r, m, &e->in, &o, rows)) return true;
    if (!e->skip_errors || e->r->code != 400 || e->in.n < 1) return false;
    http_reply_release(e->r);
    return embed_each(ctx, e, m, &o, rows);
}

/* Keeps the first `dimensions` columns, scaled to unit length unless the rows are raw. */
static cloob_status cut_rows(cloob_ctx *ctx, const embed_call *e, cloob_batch_rows *rows)
{
    int64_t width = e->dimensions;
    if (width > rows->width) return refuse(ctx, "dimensions: the model has %lld", (long long)rows->width);
    if (!width || width == rows->width) return CLOOB_OK;
    for (int64_t i = 0; i < rows->n; i++) {
        memmove(rows->data + i * width, rows->data + i * rows->width, (size_t)width * sizeof *rows->data);
        if (!e->raw) unit_row(rows->data + i * width, width);
    }
    rows->width = width;
    return CLOOB_OK;
}

static void answer(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows)
{
    json_out w = { 0 };
    cloob_status status = rows->n ? cut_rows(ctx, e, rows) : CLOOB_OK;
    if (status == CLOOB_OK) status = e->q->route->dialect->write(ctx, e, m, rows, &w);
    if (status == CLOOB_OK) {
        http_json(e->r, 200, &w);
        return;
    }
    free(w.data);
    http_fail(e->r, e->q, ctx, status);
}

void handle_dialect(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    embed_call e = { .s = s, .q = q, .r = r };
    cloob_batch_rows rows = { 0 };
    served_model *m = NULL;
    inputs_init(&e.in, s, q);
    cloob_status status = q->route->dialect->read(ctx, &e);
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (!r->code && !r->wait && !(m = serve_model(s, e.model)))
        http_error(r, q, 404, "there is no model %.200s; /v1/models lists them", e.model);
    if (m && embed_all(ctx, &e, m, &rows)) answer(ctx, &e, m, &rows);
    cloob_batch_rows_release(&rows);
    inputs_release(&e.in);
    json_doc_close(e.doc);
}
