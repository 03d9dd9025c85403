/* The handlers that the table of routes names, and what they share: the call, fields of JSON bodies, inputs, embedding.
 *
 *     cloob_status handle_vectors(call *c)
 *     {
 *         const char *text = NULL;
 *         CLOOB_TRY(field_text(c->ctx, c->root, "text", &text));
 *         if (!text) return refuse(c->ctx, "text is missing");
 *         CLOOB_TRY(input_text(c, text));
 *         CLOOB_TRY(embed(c));
 *         json_put_floats(&c->w, NULL, c->rows.data, c->rows.width);
 *         return CLOOB_OK;
 *     }
 */
#ifndef SERVE_HANDLERS_H
#define SERVE_HANDLERS_H

#include "core/ctx.h"
#include "infer/search_index.h"
#include "serve/state.h"
#include "serve/text.h"

route_fn handle_openai, handle_models;                                                    /* dialect_openai.c */
route_fn handle_embed, handle_similarity, handle_tei_root, handle_embed_all;              /* dialect_tei.c */
route_fn handle_tokenize, handle_decode, handle_info;                                     /* dialect_tei.c */
route_fn handle_ping, handle_predict;                                                     /* dialect_immich.c */
route_fn handle_ollama, handle_ollama_prompt, handle_tags, handle_version;                /* dialects.c */
route_fn handle_cohere, handle_vectorize, handle_vectors, handle_meta, handle_no_content; /* dialects.c */
route_fn handle_knn, handle_indices_list, handle_metadata;                                /* dialect_clip_retrieval.c */
route_fn handle_live, handle_ready, handle_metrics;                                       /* api_status.c */
route_fn handle_classify, handle_compare;                                                 /* api_compare.c */
route_fn handle_search, handle_indexes;                                                   /* api_search.c */
route_fn handle_runs, handle_run;                                                         /* api_runs.c */
route_fn handle_map;                                                                      /* api_map.c */
route_fn handle_thumb, handle_image, handle_page, handle_docs, handle_openapi, handle_asset; /* files.c */

/* ---- a request and its handler ----------------------------------------------------------------------- */

/* A handler that returns CLOOB_OK has written its answer to w, which is then sent with status 200, or set r. Another
 * status becomes an error with the context's text, unless r has one already. After the handler the brackets of w that
 * are still open are closed, and everything that the call holds is released. */
struct call {
    serve *s;
    cloob_ctx *ctx;
    const http_request *q;
    http_reply *r;
    json_doc *doc;
    const json *root; /* the body, an object; NULL: not JSON (GET, images, forms) */
    json_out w;

    batch_input *in; /* what is to be embedded */
    int64_t inputs, inputs_cap;
    void **owned; /* freed with the call */
    int64_t owned_count, owned_cap;

    served_model *m;    /* the model of the call; NULL: embed() finds it by `model` */
    const char *model;  /* name in the request; NULL: the first model */
    int64_t dimensions; /* 0: all */
    int64_t images;     /* where images and texts are two lists: how many inputs, from the first on, are images */
    bool raw;           /* rows are not scaled to unit length */
    bool refuse_long;   /* a text longer than the context is refused instead of cut */
    bool may_be_empty;  /* no input is not an error: there are no rows then */
    bool skip_errors;   /* images that cannot be read do not fail the request: their rows are zeros */
    char **error;       /* (images) why an image cannot be read, NULL where it can; NULL: all can */
    batch_rows rows;    /* set by embed() */

    served_index *x; /* set by call_index() */
    index_view *v;
};

/* Begins an answer that is an object, whose next member is a list; both stay open. */
static inline void answer_list(call *c, const char *key)
{
    json_begin(&c->w, NULL, '{');
    json_begin(&c->w, key, '[');
}

/* Answers a request on the calling thread. */
void call_run(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r);

/* An error with this code; for `return call_error(..)`. */
#define call_error(c, code, ...) (http_error((c)->r, (c)->q, code, __VA_ARGS__), CLOOB_ERR_ARGUMENT)

/* The index of this name (NULL or "": the first) and its current view, into x and v. */
cloob_status call_index(call *c, const char *name);

/* ---- bodies -------------------------------------------------------------------------------------- */

/* CLOOB_ERR_ARGUMENT with this text. */
#define refuse(ctx, ...) ctx_fail(ctx, CLOOB_ERR_ARGUMENT, __VA_ARGS__)

/* The body as a JSON object. The caller closes *doc. */
cloob_status body_object(cloob_ctx *ctx, const http_request *q, json_doc **doc);

/* The parts of a multipart body, which the call owns. */
cloob_status body_parts(call *c, form_part **part, int *n);

/* Refuses an object with a member that `known`, words separated by spaces, does not list: a misspelt setting is not
 * ignored. */
cloob_status known_keys(cloob_ctx *ctx, const json *object, const char *known);

/* A member of an object; null counts as absent. *out stays as it is when the member is absent, or refused because it is
 * of another kind. */
bool field_absent(const json *object, const char *key);
cloob_status field_text(cloob_ctx *ctx, const json *object, const char *key, const char **out);
cloob_status field_bool(cloob_ctx *ctx, const json *object, const char *key, bool *out);
cloob_status field_int(cloob_ctx *ctx, const json *object, const char *key, int64_t min, int64_t max, int64_t *out);
cloob_status field_number(cloob_ctx *ctx, const json *object, const char *key, double *out);
/* A member that is one of two words; *out: the second. */
cloob_status field_word(cloob_ctx *ctx, const json *object, const char *key, const char *no, const char *yes,
                        bool *out);

/* ---- inputs: texts and images of a request ---------------------------------------------------------- */

/* Makes the call free this memory, also on failure. NULL: CLOOB_ERR_MEMORY. */
cloob_status call_own(call *c, void *memory);
/* Texts and bytes stay the caller's. */
cloob_status input_text(call *c, const char *text);
cloob_status input_own_text(call *c, char *text); /* call_own, then input_text */
cloob_status input_bytes(call *c, const void *data, size_t bytes);
/* An image as clients write it: a data URL, bare base64, or an http(s) URL whose host is allowed. */
cloob_status input_image(call *c, const char *text);
/* A list of token ids. */
cloob_status input_tokens(call *c, const json *list);
/* A string, a list of token ids, an object {"text": ..} or {"image": ..}, or a list of these. A string is an image when
 * it is a data URL of an image, or when `images` is set. */
cloob_status input_any(call *c, const json *v, bool images);
/* Strings of the list object[key], or one string, as texts or as images; an absent list adds nothing. */
cloob_status input_list(call *c, const json *object, const char *key, bool images);
/* The images of root["images"], then the texts of root["texts"]; sets c->images. */
cloob_status input_images_and_texts(call *c);
/* The content of a message, as OpenAI's chat and Cohere have it: a string, or parts of type text and image_url. An
 * empty text counts only where it is the whole content. */
cloob_status input_content(call *c, const json *content);

/* ---- embedding ----------------------------------------------------------------------------------------- */

/* Embeds the inputs within the request's deadline, into c->rows. CLOOB_ERR_BUSY with r->wait set when too many requests
 * with images are running: the handler is then called again. */
cloob_status embed(call *c);

/* The row of input i. */
static inline float *row_at(const call *c, int64_t i) { return c->rows.data + i * c->rows.width; }

/* Rows from `first` on as a list of lists. */
void put_rows(call *c, const char *key, int64_t first, int64_t n);
/* A row as base64 of its floats, little-endian, as every supported machine is. */
void put_base64(json_out *w, const char *key, const float *row, int64_t n);
/* The setting "errors": "skip"; and its part of the answer: for every image null, or why it cannot be read. */
cloob_status read_errors(call *c);
void put_errors(call *c);

/* row (n) to unit length; a row of zeros stays. */
void unit_row(float *row, int64_t n);
double dot_rows(const float *a, const float *b, int64_t n);

/* ---- entries of an index ---------------------------------------------------------------------------- */

/* search_index_query in the call's index, within its memory; sets q->D and lowers q->max_hits to the number of entries.
 * The call owns *out. */
cloob_status find_entries(call *c, search_query *q, search_hit **out, int64_t *found, int64_t *total);

/* An entry's path as a member or an element of the answer. */
void put_entry_name(json_out *w, const char *key, const cloob_search *s, int64_t i);
/* An entry's path in a new string; NULL when out of memory. */
char *entry_name(const cloob_search *s, int64_t i);

#endif
