/* The handlers that the table of routes names, and what they share. */
#ifndef SERVE_HANDLERS_H
#define SERVE_HANDLERS_H

#include "infer/search_index.h"
#include "serve/state.h"

route_fn handle_embeddings, handle_models, handle_embed, handle_info;            /* api_embed.c */
route_fn handle_live, handle_ready, handle_ping, handle_metrics, handle_openapi; /* api_status.c */
route_fn handle_predict;                                                         /* api_immich.c */
route_fn handle_search, handle_indexes;                                          /* api_search.c */
route_fn handle_knn, handle_indices_list, handle_metadata;                       /* api_knn.c */
route_fn handle_classify, handle_similarity;                                     /* api_vision.c */
route_fn handle_runs, handle_run;                                                /* api_runs.c */
route_fn handle_map;                                                             /* api_map.c */
route_fn handle_thumb, handle_image, handle_page, handle_asset;                  /* api_files.c */

/* ---- inputs: texts and images of a request, from any of the protocols ------------------------------ */

typedef struct inputs {
    cloob_batch_input *in;
    int64_t n, cap, limit; /* most: more are refused */
    void **owned;          /* freed with the rest */
    int64_t owned_count, owned_cap;
    account *memory; /* of the request */
} inputs;

void inputs_init(inputs *i, const serve *s, const http_request *q);
void inputs_release(inputs *i);

/* Texts and bytes stay the caller's. */
cloob_status inputs_text(cloob_ctx *ctx, inputs *i, const char *text);
cloob_status inputs_own_text(cloob_ctx *ctx, inputs *i, char *text); /* freed with the inputs, also on failure */
cloob_status inputs_bytes(cloob_ctx *ctx, inputs *i, const void *data, size_t bytes);
/* An image as clients write it: a data URL, bare base64, or an http(s) URL whose host is allowed. */
cloob_status inputs_image(cloob_ctx *ctx, serve *s, inputs *i, const char *text);
/* A string that is an image when it is a data URL of one, else a text. */
cloob_status inputs_either(cloob_ctx *ctx, serve *s, inputs *i, const char *text);
/* A list of token ids. */
cloob_status inputs_tokens(cloob_ctx *ctx, inputs *i, const json *list);

/* The body as a JSON object. The caller closes *doc. */
cloob_status body_object(cloob_ctx *ctx, const http_request *q, json_doc **doc);

/* Refuses an object with a member that `known`, words between blanks, does not list: a misspelt setting is not
 * ignored. */
cloob_status known_keys(cloob_ctx *ctx, const json *object, const char *known);

/* CLOOB_ERR_ARGUMENT with this text. */
cloob_status refuse(cloob_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Embeds what was gathered with the request's deadline; on failure r holds the error and the result is false. So it is
 * when too many requests with images are running: then r waits, and the handler is called again. */
bool embed_inputs(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, served_model *m, const inputs *i,
                  cloob_output what, bool refuse_long, cloob_batch_rows *rows);

/* The model that a request names; on failure r holds the error and the result is NULL. */
served_model *model_of(serve *s, const http_request *q, http_reply *r, const char *name);

/* search_index_query within a request's memory; sets q->D and lowers q->max_hits to the number of entries. The caller
 * frees *out, also after a failure. */
cloob_status find_entries(cloob_ctx *ctx, account *memory, const cloob_search *s, search_query *q, search_hit **out,
                          int64_t *found, int64_t *total);

/* An entry's path in a new string; NULL when memory is out. */
char *entry_name(const cloob_search *s, int64_t i);

/* row (n) to unit length; a row of zeros stays. */
void unit_row(float *row, int64_t n);

#endif
