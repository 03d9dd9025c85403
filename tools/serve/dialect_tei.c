/* text-embeddings-inference: /embed, /embed_all, /similarity, POST /, /tokenize, /decode, /info. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/handlers.h"
#include "core/ctx.h"
#include "infer/batcher.h"

/* ---- embeddings and similarity -------------------------------------------------------------------- */

/* Settings that change the embedding: those that cannot be applied are refused, not ignored. */
static cloob_status read_settings(cloob_ctx *ctx, const json *object, embed_call *e)
{
    bool truncate = false, normalize = true;
    const char *direction = "right";
    CLOOB_TRY(field_bool(ctx, object, "truncate", &truncate));
    CLOOB_TRY(field_bool(ctx, object, "normalize", &normalize));
    CLOOB_TRY(field_int(ctx, object, "dimensions", 1, INT64_MAX, &e->dimensions));
    CLOOB_TRY(field_text(ctx, object, "truncation_direction", &direction));
    if (strcasecmp(direction, "right") != 0) return refuse(ctx, "truncation_direction: only right is supported");
    if (!field_absent(object, "prompt_name")) return refuse(ctx, "prompt_name: the model has no prompts");
    e->refuse_long = !truncate, e->raw = !normalize;
    return CLOOB_OK;
}

static cloob_status embed_read(cloob_ctx *ctx, embed_call *e)
{
    cloob_status status = e->doc ? CLOOB_OK : call_body(ctx, e);
    if (status == CLOOB_OK) status = read_settings(ctx, e->root, e);
    if (status != CLOOB_OK) return status;
    if (field_absent(e->root, "inputs")) return refuse(ctx, "inputs is missing");
    return inputs_any(ctx, &e->in, json_get(e->root, "inputs"), false);
}

static cloob_status embed_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                json_out *w)
{
    (void)ctx, (void)e, (void)m;
    put_rows(w, NULL, rows->data, rows->n, rows->width);
    return CLOOB_OK;
}

static const json *sentences_of(const embed_call *e) { return json_get(json_get(e->root, "inputs"), "sentences"); }

static cloob_status similarity_read(cloob_ctx *ctx, embed_call *e)
{
    const char *source = NULL;
    cloob_status status = e->doc ? CLOOB_OK : call_body(ctx, e);
    const json *pair = json_get(e->root, "inputs");
    if (status == CLOOB_OK) status = read_settings(ctx, json_get(e->root, "parameters"), e);
    if (status == CLOOB_OK) status = field_text(ctx, pair, "source_sentence", &source);
    if (status != CLOOB_OK) return status;
    if (!source || json_count(sentences_of(e)) < 1)
        return refuse(ctx, "inputs: {\"source_sentence\": .., \"sentences\": [..]}, one sentence or more");
    status = inputs_text(ctx, &e->in, source);
    return status == CLOOB_OK ? inputs_list(ctx, &e->in, pair, "sentences", false) : status;
}

static cloob_status similarity_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                     json_out *w)
{
    int64_t D = rows->width;
    (void)ctx, (void)e, (void)m;
    json_begin(w, NULL, '[');
    for (int64_t i = 1; i < rows->n; i++) json_put_digits(w, NULL, dot_rows(rows->data, rows->data + i * D, D), 9);
    json_end(w);
    return CLOOB_OK;
}

/* POST / : a model for feature extraction embeds, one for similarity compares. Here the inputs decide. */
static bool compares(const embed_call *e) { return sentences_of(e) != NULL; }

static cloob_status root_read(cloob_ctx *ctx, embed_call *e)
{
    CLOOB_TRY(call_body(ctx, e));
    return compares(e) ? similarity_read(ctx, e) : embed_read(ctx, e);
}

static cloob_status root_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                               json_out *w)
{
    return compares(e) ? similarity_write(ctx, e, m, rows, w) : embed_write(ctx, e, m, rows, w);
}

const dialect dialect_tei_embed = { embed_read, embed_write };
const dialect dialect_tei_similarity = { similarity_read, similarity_write };
const dialect dialect_tei_root = { root_read, root_write };

/* ---- /embed_all: a row for every token ------------------------------------------------------------- */

/* Rows before unit length, in the space of the embeddings: for a text that the model reads at its end, the last one is
 * /embed's. One text is computed at a time. */
static cloob_status put_all_tokens(cloob_ctx *ctx, const embed_call *e, served_model *m, json_out *w)
{
    enum { NUMBER_BYTES = 16 };
    cloob_model_facts f;
    cloob_status status = CLOOB_OK;
    cloob_batcher_get_facts(m->batcher, &f);
    json_begin(w, NULL, '[');
    for (int64_t i = 0; i < e->in.n && status == CLOOB_OK; i++) {
        double left = (double)e->s->o->timeout_s - (clock_seconds() - e->q->received_at);
        cloob_batch_options o = { .what = CLOOB_RAW,
                                  .refuse_long = e->refuse_long,
                                  .timeout_ms = (int64_t)(1e3 * left) };
        cloob_batch_rows rows;
        if (left <= 0) return ctx_fail(ctx, CLOOB_ERR_BUSY, "no answer in time; send fewer texts");
        status = account_reserve(ctx, e->q->memory, f.context * f.embed * NUMBER_BYTES);
        if (status == CLOOB_OK) status = batcher_encode_tokens(ctx, m->batcher, &e->in.in[i], &o, &rows);
        if (status != CLOOB_OK) break;
        put_rows(w, NULL, rows.data, rows.n, rows.width);
        cloob_batch_rows_release(&rows);
    }
    json_end(w);
    return status;
}

void handle_embed_all(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    embed_call e = { .s = s, .q = q, .r = r };
    json_out w = { 0 };
    inputs_init(&e.in, s, q);
    cloob_status status = embed_read(ctx, &e);
    if (status == CLOOB_OK) status = put_all_tokens(ctx, &e, &s->model[0], &w);
    if (status == CLOOB_OK) http_json(r, 200, &w);
    else free(w.data), http_fail(r, q, ctx, status);
    inputs_release(&e.in);
    json_doc_close(e.doc);
}

/* ---- tokens -------------------------------------------------------------------------------------- */

typedef struct token_call token_call;
typedef cloob_status token_fn(cloob_ctx *ctx, const tokenizer *t, token_call *c, const json *v);

struct token_call {
    const http_request *q;
    token_fn *one;    /* writes the answer for one value */
    const json *list; /* a value, or a list of values */
    bool special;     /* start and end of a text are written */
    json_out w;
};

/* start and stop are null, which the protocol allows: the tokenizer cleans a text before it splits it, so it has no
 * offsets into the text as it was sent. */
static cloob_status put_token(cloob_ctx *ctx, const tokenizer *t, json_out *w, int32_t id)
{
    int32_t start = tokenizer_start_id(t);
    bool special = id == start || id == tokenizer_end_id(t);
    sbuf text = { 0 };
    cloob_status status = CLOOB_OK;
    if (special) sbuf_puts(&text, id == start ? "<|startoftext|>" : start >= 0 ? "<|endoftext|>" : "</s>");
    else status = tokenizer_decode(ctx, t, &id, 1, &text);
    json_begin(w, NULL, '{');
    json_members(w, J_INT("id", id), J_TEXT("text", text.data ? text.data : ""), J_BOOL("special", special));
    json_put_null(w, "start");
    json_put_null(w, "stop");
    json_end(w);
    w->failed = w->failed || text.failed;
    sbuf_release(&text);
    return status;
}

static cloob_status tokenize_one(cloob_ctx *ctx, const tokenizer *t, token_call *c, const json *v)
{
    enum { TOKENIZE_TIMES = 8, ANSWER_BYTES = 100 }; /* memory: times the text's bytes; of a token in the answer */
    const char *text = json_string(v);
    int32_t *ids = NULL;
    int64_t n = 0;
    if (!text) return refuse(ctx, "inputs: a string or a list of strings");
    cloob_status status = account_reserve(ctx, c->q->memory, TOKENIZE_TIMES * (int64_t)strlen(text));
    if (status == CLOOB_OK) status = tokenizer_encode(ctx, t, text, strlen(text), &ids, &n);
    if (status == CLOOB_OK) status = account_reserve(ctx, c->q->memory, ANSWER_BYTES * (n + 2));
    json_begin(&c->w, NULL, '[');
    bool start = c->special && tokenizer_start_id(t) >= 0;
    if (status == CLOOB_OK && start) status = put_token(ctx, t, &c->w, tokenizer_start_id(t));
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) status = put_token(ctx, t, &c->w, ids[i]);
    bool end = c->special && tokenizer_end_id(t) >= 0;
    if (status == CLOOB_OK && end) status = put_token(ctx, t, &c->w, tokenizer_end_id(t));
    json_end(&c->w);
    free(ids);
    return status;
}

static cloob_status decode_one(cloob_ctx *ctx, const tokenizer *t, token_call *c, const json *v)
{
    sbuf text = { 0 };
    inputs in;
    inputs_init(&in, NULL, c->q);
    cloob_status status = json_kind_of(v) == JSON_ARRAY ? inputs_tokens(ctx, &in, v)
                                                        : refuse(ctx, "ids: a list of token ids, or a list of lists");
    if (status == CLOOB_OK) status = tokenizer_decode(ctx, t, in.in[0].ids, in.in[0].count, &text);
    if (status == CLOOB_OK) status = account_reserve(ctx, c->q->memory, 2 * (int64_t)text.len);
    if (status == CLOOB_OK) json_put_text(&c->w, NULL, text.data ? text.data : "");
    c->w.failed = c->w.failed || text.failed;
    sbuf_release(&text);
    inputs_release(&in);
    return status;
}

/* One value gives a list of one, as in text-embeddings-inference. Ids are one value unless they are lists. */
static cloob_status each_value(cloob_ctx *ctx, const tokenizer *t, void *user)
{
    token_call *c = user;
    const json *inner = c->one == decode_one ? json_first(c->list) : c->list;
    bool many = json_kind_of(inner) == JSON_ARRAY;
    cloob_status status = CLOOB_OK;
    for (const json *v = many ? json_first(c->list) : c->list; v && status == CLOOB_OK; v = many ? json_next(v) : NULL)
        status = c->one(ctx, t, c, v);
    return status;
}

/* The values of object[key], through the first model's tokenizer. */
static void answer_tokens(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, const char *key,
                          token_fn *one)
{
    json_doc *doc;
    token_call c = { .q = q, .one = one, .special = true };
    cloob_status status = body_object(ctx, q, &doc);
    const json *root = json_doc_root(doc);
    c.list = json_get(root, key);
    if (status == CLOOB_OK) status = field_bool(ctx, root, "add_special_tokens", &c.special);
    if (status == CLOOB_OK && field_absent(root, key)) status = refuse(ctx, "%s is missing", key);
    if (status == CLOOB_OK && json_count(c.list) > s->o->max_inputs && !json_string(c.list) &&
        json_kind_of(json_first(c.list)) != JSON_NUMBER)
        status = refuse(ctx, "more than %lld texts in one request", (long long)s->o->max_inputs);
    json_begin(&c.w, NULL, '[');
    if (status == CLOOB_OK) status = batcher_use_tokenizer(ctx, s->model[0].batcher, each_value, &c);
    json_end(&c.w);
    if (status == CLOOB_OK) http_json(r, 200, &c.w);
    else free(c.w.data), http_fail(r, q, ctx, status);
    json_doc_close(doc);
}

void handle_tokenize(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    answer_tokens(s, ctx, q, r, "inputs", tokenize_one);
}

void handle_decode(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    answer_tokens(s, ctx, q, r, "ids", decode_one);
}

/* ---- /info --------------------------------------------------------------------------------------- */

void handle_info(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    static const char *const dtype[][2] = { { "bf16", "bfloat16" }, { "int8", "int8" }, { "fp8", "float8" } };
    json_out w = { 0 };
    cloob_model_facts f;
    const char *type = "float32";
    (void)ctx, (void)q;
    cloob_batcher_get_facts(s->model[0].batcher, &f);
    for (size_t i = 0; i < sizeof dtype / sizeof *dtype; i++)
        if (strcmp(f.precision, dtype[i][0]) == 0) type = dtype[i][1];
    json_begin(&w, NULL, '{');
    json_put_text(&w, "model_id", s->model[0].name);
    json_put_null(&w, "model_sha");
    json_put_text(&w, "model_dtype", type);
    json_begin(&w, "model_type", '{');
    json_object(&w, "embedding", J_TEXT("pooling", "last_token"));
    json_end(&w);
    json_members(&w, J_BOOL("image", f.image_size > 0), J_BOOL("text", f.has_tokenizer && f.context > 0),
                 J_INT("max_concurrent_requests", s->o->workers + s->o->max_queue),
                 J_INT("max_input_length", f.context), J_INT("max_batch_tokens", f.context * s->o->max_batch),
                 J_INT("max_batch_requests", s->o->max_batch), J_INT("max_client_batch_size", s->o->max_inputs),
                 J_BOOL("auto_truncate", false), J_INT("tokenization_workers", s->o->workers),
                 J_TEXT("version", cloob_version()));
    json_end(&w);
    http_json(r, 200, &w);
}
