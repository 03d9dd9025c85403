/* The protocol of text-embeddings-inference: /embed, /embed_all, /similarity, POST /, /tokenize, /decode, /info. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/handlers.h"
#include "core/ctx.h"
#include "infer/batcher.h"

/* ---- embeddings and similarity -------------------------------------------------------------------- */

/* Reads settings that affect the embedding. Unsupported values are refused, not ignored. */
static cloob_status read_settings(call *c, const json *object)
{
    bool truncate = false, normalize = true;
    const char *direction = "right";
    CLOOB_TRY(field_bool(c->ctx, object, "truncate", &truncate));
    CLOOB_TRY(field_bool(c->ctx, object, "normalize", &normalize));
    CLOOB_TRY(field_int(c->ctx, object, "dimensions", 1, INT64_MAX, &c->dimensions));
    CLOOB_TRY(field_text(c->ctx, object, "truncation_direction", &direction));
    if (strcasecmp(direction, "right") != 0) return refuse(c->ctx, "truncation_direction must be right");
    if (!field_absent(object, "prompt_name"))
        return refuse(c->ctx, "prompt_name is not supported: the model has no prompts");
    c->refuse_long = !truncate, c->raw = !normalize;
    return CLOOB_OK;
}

static cloob_status read_inputs(call *c)
{
    CLOOB_TRY(read_settings(c, c->root));
    if (field_absent(c->root, "inputs")) return refuse(c->ctx, "inputs is missing");
    return input_any(c, json_get(c->root, "inputs"), false);
}

cloob_status handle_embed(call *c)
{
    CLOOB_TRY(read_inputs(c));
    CLOOB_TRY(embed(c));
    put_rows(c, NULL, 0, c->rows.n);
    return CLOOB_OK;
}

cloob_status handle_similarity(call *c)
{
    const char *source = NULL;
    const json *pair = json_get(c->root, "inputs");
    CLOOB_TRY(read_settings(c, json_get(c->root, "parameters")));
    CLOOB_TRY(field_text(c->ctx, pair, "source_sentence", &source));
    if (!source || json_count(json_get(pair, "sentences")) < 1)
        return refuse(c->ctx,
                      "inputs must be {\"source_sentence\": .., \"sentences\": [..]} with at least one sentence");
    CLOOB_TRY(input_text(c, source));
    CLOOB_TRY(input_list(c, pair, "sentences", false));
    CLOOB_TRY(embed(c));
    json_begin(&c->w, NULL, '[');
    for (int64_t i = 1; i < c->rows.n; i++)
        json_put_digits(&c->w, NULL, dot_rows(row_at(c, 0), row_at(c, i), c->rows.width), 9);
    return CLOOB_OK;
}

/* POST / embeds or compares, depending on the inputs. In text-embeddings-inference it depends on the model. */
cloob_status handle_tei_root(call *c)
{
    return json_get(json_get(c->root, "inputs"), "sentences") ? handle_similarity(c) : handle_embed(c);
}

/* Writes a row for every token, not normalised, in the embedding space. For a model that pools the text's last token,
 * the last row is that of /embed. Texts are computed one at a time. */
cloob_status handle_embed_all(call *c)
{
    enum { NUMBER_BYTES = 16 };
    batcher *b = c->s->model[0].batcher;
    cloob_model_facts f;
    CLOOB_TRY(read_inputs(c));
    batcher_get_facts(b, &f);
    json_begin(&c->w, NULL, '[');
    for (int64_t i = 0; i < c->inputs; i++) {
        double left = (double)c->s->o->timeout_s - (clock_seconds() - c->q->received_at);
        batch_options o = { .what = CLOOB_RAW, .refuse_long = c->refuse_long, .timeout_ms = (int64_t)(1e3 * left) };
        if (left <= 0) return ctx_fail(c->ctx, CLOOB_ERR_BUSY, "no answer in time; send fewer texts");
        CLOOB_TRY(account_reserve(c->ctx, c->q->memory, f.context * f.embed * NUMBER_BYTES));
        CLOOB_TRY(batcher_encode_tokens(c->ctx, b, &c->in[i], &o, &c->rows));
        put_rows(c, NULL, 0, c->rows.n);
        batch_rows_release(&c->rows);
    }
    return CLOOB_OK;
}

/* ---- tokens -------------------------------------------------------------------------------------- */

/* Writes the answer for one value of a request. */
typedef cloob_status token_fn(call *c, const tokenizer *t, const json *v, bool special);

/* start and stop are null, which the protocol allows: the tokenizer cleans a text before it splits it, so it has no
 * offsets into the original text. */
static cloob_status put_token(cloob_ctx *ctx, const tokenizer *t, json_out *w, int32_t id)
{
    int32_t start = cloob_tokenizer_start_id(t);
    bool special = id == start || id == cloob_tokenizer_end_id(t);
    const char *name = id == start ? "<|startoftext|>" : start >= 0 ? "<|endoftext|>" : "</s>";
    char *text = NULL;
    cloob_status status = special ? CLOOB_OK : cloob_tokenizer_decode(ctx, t, &id, 1, &text);
    json_begin(w, NULL, '{');
    json_members(w, J_INT("id", id), J_TEXT("text", special ? name : text ? text : ""), J_BOOL("special", special));
    json_put_null(w, "start");
    json_put_null(w, "stop");
    json_end(w);
    free(text);
    return status;
}

/* special: include the start and end tokens. */
static cloob_status tokenize_one(call *c, const tokenizer *t, const json *v, bool special)
{
    enum { TOKENIZE_TIMES = 8, ANSWER_BYTES = 100 }; /* memory per byte of text; bytes per token in the answer */
    const char *text = json_string(v);
    int32_t *ids = NULL;
    int64_t n = 0;
    if (!text) return refuse(c->ctx, "inputs must be a string or a list of strings");
    CLOOB_TRY(account_reserve(c->ctx, c->q->memory, TOKENIZE_TIMES * (int64_t)strlen(text)));
    CLOOB_TRY(cloob_tokenizer_encode(c->ctx, t, text, strlen(text), &ids, &n));
    if (n) CLOOB_TRY(call_own(c, ids));
    else free(ids);
    CLOOB_TRY(account_reserve(c->ctx, c->q->memory, ANSWER_BYTES * (n + 2)));
    json_begin(&c->w, NULL, '[');
    if (special && cloob_tokenizer_start_id(t) >= 0)
        CLOOB_TRY(put_token(c->ctx, t, &c->w, cloob_tokenizer_start_id(t)));
    for (int64_t i = 0; i < n; i++) CLOOB_TRY(put_token(c->ctx, t, &c->w, ids[i]));
    if (special && cloob_tokenizer_end_id(t) >= 0) CLOOB_TRY(put_token(c->ctx, t, &c->w, cloob_tokenizer_end_id(t)));
    json_end(&c->w);
    return CLOOB_OK;
}

static cloob_status decode_one(call *c, const tokenizer *t, const json *v, bool special)
{
    char *text = NULL;
    (void)special;
    if (json_kind_of(v) != JSON_ARRAY) return refuse(c->ctx, "ids must be a list of token ids or a list of such lists");
    CLOOB_TRY(input_tokens(c, v));
    const batch_input *in = &c->in[c->inputs - 1];
    cloob_status status = cloob_tokenizer_decode(c->ctx, t, in->ids, in->count, &text);
    if (status == CLOOB_OK) status = account_reserve(c->ctx, c->q->memory, 2 * (int64_t)strlen(text));
    if (status == CLOOB_OK) json_put_text(&c->w, NULL, text);
    free(text);
    return status;
}

/* Answers each value of root[key] with the first model's tokenizer. A single value gives a list of one, as in
 * text-embeddings-inference; a list of ids is one value. */
static cloob_status answer_tokens(call *c, const char *key, token_fn *one)
{
    const json *list = json_get(c->root, key), *inner = one == decode_one ? json_first(list) : list;
    int64_t most = c->s->o->max_inputs;
    bool special = true, many = json_kind_of(inner) == JSON_ARRAY;
    const tokenizer *t;
    CLOOB_TRY(field_bool(c->ctx, c->root, "add_special_tokens", &special));
    if (field_absent(c->root, key)) return refuse(c->ctx, "%s is missing", key);
    if (json_count(list) > most && json_kind_of(json_first(list)) != JSON_NUMBER)
        return refuse(c->ctx, "more than %lld texts in one request", (long long)most);
    CLOOB_TRY(batcher_acquire_tokenizer(c->ctx, c->s->model[0].batcher, &t));
    cloob_status status = CLOOB_OK;
    json_begin(&c->w, NULL, '[');
    for (const json *v = many ? json_first(list) : list; v && status == CLOOB_OK; v = many ? json_next(v) : NULL)
        status = one(c, t, v, special);
    batcher_release_tokenizer(c->s->model[0].batcher);
    return status;
}

cloob_status handle_tokenize(call *c) { return answer_tokens(c, "inputs", tokenize_one); }

cloob_status handle_decode(call *c) { return answer_tokens(c, "ids", decode_one); }

/* ---- /info --------------------------------------------------------------------------------------- */

cloob_status handle_info(call *c)
{
    static const char *const dtype[][2] = {
        { "bf16", "bfloat16" }, { "f16", "float16" }, { "int8", "int8" }, { "fp8", "float8" }
    };
    const serve_options *o = c->s->o;
    json_out *w = &c->w;
    cloob_model_facts f;
    const char *type = "float32";
    batcher_get_facts(c->s->model[0].batcher, &f);
    for (size_t i = 0; i < sizeof dtype / sizeof *dtype; i++)
        if (strcmp(f.precision, dtype[i][0]) == 0) type = dtype[i][1];
    json_begin(w, NULL, '{');
    json_put_text(w, "model_id", c->s->model[0].name);
    json_put_null(w, "model_sha");
    json_put_text(w, "model_dtype", type);
    json_begin(w, "model_type", '{');
    json_object(w, "embedding", J_TEXT("pooling", "last_token"));
    json_end(w);
    json_members(w, J_BOOL("image", f.image_size > 0), J_BOOL("text", f.has_tokenizer && f.context > 0),
                 J_INT("max_concurrent_requests", o->workers + o->max_queue), J_INT("max_input_length", f.context),
                 J_INT("max_batch_tokens", f.context * o->max_batch), J_INT("max_batch_requests", o->max_batch),
                 J_INT("max_client_batch_size", o->max_inputs), J_BOOL("auto_truncate", false),
                 J_INT("tokenization_workers", o->workers), J_TEXT("version", cloob_version()));
    return CLOOB_OK;
}
