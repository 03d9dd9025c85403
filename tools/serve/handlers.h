/* The handlers that the table of routes names, and what they share: fields of JSON bodies, inputs, dialects. */
#ifndef SERVE_HANDLERS_H
#define SERVE_HANDLERS_H

#include "infer/search_index.h"
#include "serve/state.h"

route_fn handle_dialect;                                                     /* dialect.c */
route_fn handle_models;                                                      /* dialect_openai.c */
route_fn handle_info, handle_embed_all, handle_tokenize, handle_decode;      /* dialect_tei.c */
route_fn handle_ping;                                                        /* dialect_immich.c */
route_fn handle_tags, handle_version, handle_meta, handle_no_content;        /* dialects.c */
route_fn handle_knn, handle_indices_list, handle_metadata;                   /* dialect_clip_retrieval.c */
route_fn handle_live, handle_ready, handle_metrics, handle_openapi;          /* api_status.c */
route_fn handle_search, handle_indexes;                                      /* api_search.c */
route_fn handle_runs, handle_run;                                            /* api_runs.c */
route_fn handle_map;                                                         /* api_map.c */
route_fn handle_thumb, handle_image, handle_page, handle_docs, handle_asset; /* files.c */

/* ---- JSON bodies --------------------------------------------------------------------------------- */

/* CLOOB_ERR_ARGUMENT with this text. */
cloob_status refuse(cloob_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The body as a JSON object. The caller closes *doc. */
cloob_status body_object(cloob_ctx *ctx, const http_request *q, json_doc **doc);

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

/* ---- inputs: texts and images of a request ---------------------------------------------------------- */

typedef struct inputs {
    cloob_batch_input *in;
    int64_t n, cap, limit; /* limit: more are refused */
    void **owned;          /* freed with the rest */
    int64_t owned_count, owned_cap;
    serve *s;
    account *memory; /* of the request */
} inputs;

void inputs_init(inputs *i, serve *s, const http_request *q); /* s NULL: one input, not an image */
void inputs_release(inputs *i);

/* Makes the inputs free this memory, also on failure. NULL: CLOOB_ERR_MEMORY. */
cloob_status inputs_own(cloob_ctx *ctx, inputs *i, void *memory);
/* Texts and bytes stay the caller's. */
cloob_status inputs_text(cloob_ctx *ctx, inputs *i, const char *text);
cloob_status inputs_own_text(cloob_ctx *ctx, inputs *i, char *text); /* inputs_own, then inputs_text */
cloob_status inputs_bytes(cloob_ctx *ctx, inputs *i, const void *data, size_t bytes);
/* An image as clients write it: a data URL, bare base64, or an http(s) URL whose host is allowed. */
cloob_status inputs_image(cloob_ctx *ctx, inputs *i, const char *text);
/* A list of token ids. */
cloob_status inputs_tokens(cloob_ctx *ctx, inputs *i, const json *list);
/* A string, a list of token ids, an object {"text": ..} or {"image": ..}, or a list of these. A string is an image when
 * it is a data URL of an image, or when `images` is set. */
cloob_status inputs_any(cloob_ctx *ctx, inputs *i, const json *v, bool images);
/* Strings of the list object[key], or one string, as texts or as images; an absent list adds nothing. */
cloob_status inputs_list(cloob_ctx *ctx, inputs *i, const json *object, const char *key, bool images);
/* The content of a message, as OpenAI's chat and Cohere have it: a string, or parts of type text and image_url. An
 * empty text counts only where it is the whole content. */
cloob_status inputs_content(cloob_ctx *ctx, inputs *i, const json *content);

/* ---- dialects: protocols that send inputs and receive embeddings, or numbers made from them --------------- */

/* One request. The reader fills it; the inputs are then embedded; the writer makes the answer from the rows. */
typedef struct embed_call {
    serve *s;
    const http_request *q;
    http_reply *r; /* a reader that answers by itself sets it and adds no input */
    json_doc *doc; /* of the body; closed with the call */
    const json *root;
    inputs in;
    const char *model;  /* NULL: the first */
    int64_t dimensions; /* 0: all */
    int64_t images;    /* where images and texts are two lists: how many of the inputs, from the first on, are images */
    int64_t per_label; /* prompts of a label (classify) */
    unsigned types;    /* a set of embedding_types (Cohere) */
    bool base64, raw;  /* rows as base64; rows before they get unit length */
    bool refuse_long;  /* a text longer than the context is refused instead of cut */
    bool may_be_empty; /* without inputs the writer gets no rows */
    bool skip_errors;  /* images that cannot be read do not fail the request: their rows are zeros */
    char **error;      /* (images) then why, or NULL for an image that can be read; NULL: all can */
} embed_call;

typedef struct dialect {
    cloob_status (*read)(cloob_ctx *ctx, embed_call *e);
    cloob_status (*write)(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                          json_out *w);
} dialect;

extern const dialect dialect_openai, dialect_tei_embed, dialect_tei_similarity, dialect_tei_root, dialect_immich,
    dialect_ollama, dialect_ollama_prompt, dialect_cohere, dialect_vectorize, dialect_vectors, dialect_classify,
    dialect_compare;

/* The body as a JSON object, into e->doc and e->root. */
cloob_status call_body(cloob_ctx *ctx, embed_call *e);
/* The setting "errors": "skip". */
cloob_status call_errors(cloob_ctx *ctx, embed_call *e);
/* Its part of the answer: for every image null, or why it cannot be read. */
void put_errors(json_out *w, const embed_call *e);
/* All rows as a list of lists. */
void put_rows(json_out *w, const char *key, const float *row, int64_t n, int64_t width);

/* Embeds what was gathered within the request's deadline; on failure r holds the error and the result is false. Also
 * false when too many requests with images are running: then r waits, and the handler is called again. */
bool embed_inputs(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, served_model *m, const inputs *i,
                  const cloob_batch_options *o, cloob_batch_rows *rows);

/* row (n) to unit length; a row of zeros stays. */
void unit_row(float *row, int64_t n);
double dot_rows(const float *a, const float *b, int64_t n);

/* ---- entries of an index ---------------------------------------------------------------------------- */

/* The index of this name (NULL or "": the first) and its current view, which the caller releases. false: r holds the
 * error, and both are NULL. */
bool find_index(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, const char *name, served_index **x,
                index_view **v);

/* search_index_query within a request's memory; sets q->D and lowers q->max_hits to the number of entries. The caller
 * frees *out, also after a failure. */
cloob_status find_entries(cloob_ctx *ctx, account *memory, const cloob_search *s, search_query *q, search_hit **out,
                          int64_t *found, int64_t *total);

/* An entry's path in a new string; NULL when memory is out. */
char *entry_name(const cloob_search *s, int64_t i);

#endif
