/* The handlers in the table of routes, and their common functions: the call, fields of JSON bodies, inputs, embedding.
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

/* State of a request while its handler runs. A handler that returns CLOOB_OK has written its answer to w, which is sent
 * with status 200, or has set r. Any other status becomes an error with the context's text, unless r already has an
 * error. After the handler, open brackets of w are closed, and everything the call owns is released. */
struct call {
    serve *s;
    cloob_ctx *ctx;
    const http_request *q;
    http_reply *r;
    json_doc *doc;
    const json *root; /* the body, an object; NULL: not JSON (GET, images, forms) */
    json_out w;

    batch_input *in; /* inputs to embed */
    int64_t inputs, inputs_cap;
    void **owned; /* memory freed with the call */
    int64_t owned_count, owned_cap;

    served_model *m;    /* the model of the call; NULL: embed() finds it by `model` */
    const char *model;  /* name in the request; NULL: the first model */
    int64_t dimensions; /* 0: all */
    int64_t images;     /* number of images, if images and texts are separate lists; the images are first */
    bool raw;           /* rows are not scaled to unit length */
    bool refuse_long;   /* a text longer than the context is refused instead of cut */
    bool may_be_empty;  /* an empty input is not an error; the result then has no rows */
    bool skip_errors;   /* unreadable images do not fail the request: their rows are zeros */
    char **error;       /* (images) why an image is unreadable, NULL if it is readable; NULL: all are */
    batch_rows rows;    /* set by embed() */

    served_index *x; /* set by call_index() */
    index_view *v;
};

/* Starts an answer that is an object with a list as its next member; both stay open. */
static inline void answer_list(call *c, const char *key)
{
    json_begin(&c->w, NULL, '{');
    json_begin(&c->w, key, '[');
}

/* Processes a request on the calling thread. */
void call_run(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r);

/* Sets an error with this HTTP status; for `return call_error(..)`. */
#define call_error(c, code, ...) (http_error((c)->r, (c)->q, code, __VA_ARGS__), CLOOB_ERR_ARGUMENT)

/* Sets x and v to the index of this name (NULL or "": the first) and its current view. */
cloob_status call_index(call *c, const char *name);

/* ---- bodies -------------------------------------------------------------------------------------- */

/* Fails with CLOOB_ERR_ARGUMENT and this text. */
#define refuse(ctx, ...) ctx_fail(ctx, CLOOB_ERR_ARGUMENT, __VA_ARGS__)

/* Parses the body as a JSON object. The caller closes *doc. */
cloob_status body_object(cloob_ctx *ctx, const http_request *q, json_doc **doc);

/* Parses a multipart body. The call owns the parts. */
cloob_status body_parts(call *c, form_part **part, int *n);

/* Fails if the object has a member that is not in `known`, a list of words separated by spaces, so that misspelt
 * settings are not ignored. */
cloob_status known_keys(cloob_ctx *ctx, const json *object, const char *known);

/* Read a member of an object; null counts as absent. *out is unchanged if the member is absent or has the wrong type,
 * which is an error. */
bool field_absent(const json *object, const char *key);
cloob_status field_text(cloob_ctx *ctx, const json *object, const char *key, const char **out);
cloob_status field_bool(cloob_ctx *ctx, const json *object, const char *key, bool *out);
cloob_status field_int(cloob_ctx *ctx, const json *object, const char *key, int64_t min, int64_t max, int64_t *out);
cloob_status field_number(cloob_ctx *ctx, const json *object, const char *key, double *out);
/* Reads a member that is one of two words; *out: whether it is the second. */
cloob_status field_word(cloob_ctx *ctx, const json *object, const char *key, const char *no, const char *yes,
                        bool *out);

/* ---- inputs: texts and images of a request ---------------------------------------------------------- */

/* Makes the call own this memory, also on failure. Fails with CLOOB_ERR_MEMORY for NULL. */
cloob_status call_own(call *c, void *memory);
/* Add an input. Texts and bytes remain the caller's. */
cloob_status input_text(call *c, const char *text);
cloob_status input_own_text(call *c, char *text); /* call_own, then input_text */
cloob_status input_bytes(call *c, const void *data, size_t bytes);
/* Adds an image in the forms that clients send: a data URL, bare base64, or an http(s) URL of an allowed host. */
cloob_status input_image(call *c, const char *text);
/* Adds a list of token ids. */
cloob_status input_tokens(call *c, const json *list);
/* Adds a string, a list of token ids, an object {"text": ..} or {"image": ..}, or a list of these. A string is an image
 * if it is an image data URL or `images` is set. */
cloob_status input_any(call *c, const json *v, bool images);
/* Adds the string object[key], or its list of strings, as texts or images; does nothing if the key is absent. */
cloob_status input_list(call *c, const json *object, const char *key, bool images);
/* Adds the images of root["images"], then the texts of root["texts"]; sets c->images. */
cloob_status input_images_and_texts(call *c);
/* Adds the content of a message in the form of OpenAI's chat and Cohere: a string, or parts of type text and image_url.
 * An empty text is only added if it is the whole content. */
cloob_status input_content(call *c, const json *content);

/* ---- embedding ----------------------------------------------------------------------------------------- */

/* Embeds the inputs into c->rows before the request's deadline. Returns CLOOB_ERR_BUSY with r->wait set if too many
 * requests with images are running; the handler is then called again. */
cloob_status embed(call *c);

/* Row of input i. */
static inline float *row_at(const call *c, int64_t i) { return c->rows.data + i * c->rows.width; }

/* Writes rows from `first` on as a list of lists. */
void put_rows(call *c, const char *key, int64_t first, int64_t n);
/* Writes a row as base64 of its floats (little-endian, as on every supported machine). */
void put_base64(json_out *w, const char *key, const float *row, int64_t n);
/* Reads the setting "errors": "skip"; writes, for every image, null or why it is unreadable. */
cloob_status read_errors(call *c);
void put_errors(call *c);

/* Scales a row (n) to unit length; a row of zeros is unchanged. */
void unit_row(float *row, int64_t n);
double dot_rows(const float *a, const float *b, int64_t n);

/* ---- entries of an index ---------------------------------------------------------------------------- */

/* Searches the call's index (search_index_query) within the memory of its account; sets q->D and limits q->max_hits to
 * the number of entries. The call owns *out. */
cloob_status find_entries(call *c, search_query *q, search_hit **out, int64_t *found, int64_t *total);

/* Writes an entry's path as a member or list element. */
void put_entry_name(json_out *w, const char *key, const cloob_search *s, int64_t i);
/* Returns an entry's path in a new string; NULL: out of memory. */
char *entry_name(const cloob_search *s, int64_t i);

#endif
