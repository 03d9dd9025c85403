/* Texts and images of a request, in whatever dialect they came. */
#ifndef SERVE_INPUT_H
#define SERVE_INPUT_H

#include "serve/state.h"
#include "core/json.h"

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

/* "%s" with the context's text set; for handlers. */
cloob_status refuse(cloob_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
