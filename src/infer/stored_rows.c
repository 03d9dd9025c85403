/* Retrieval from the rows of a file. */
#include "infer/stored_rows.h"

#include <stdlib.h>
#include <string.h>

#include "cloob/eval.h"
#include "core/ctx.h"
#include "infer/embeddings_file.h"

cloob_status stored_rows_open(cloob_ctx *ctx, const cloob_eval_options *o, double scale, bool unit, stored_rows *s)
{
    embeddings_file *file;
    cloob_matrix stored;
    bool text = o->retrieve_from && strcmp(o->retrieve_from, "text") == 0;
    double beta = o->scale_hopfield >= 0 ? o->scale_hopfield : scale > 0 ? scale : CLOOB_DEFAULT_SCALE_HOPFIELD;
    *s = (stored_rows){ .path = o->retrieve, .unit = unit };
    CLOOB_TRY(embeddings_open(ctx, o->retrieve, &file));
    cloob_status status = embeddings_matrix(ctx, file, text ? "text|y|V" : "image|x|U", &stored);
    if (status == CLOOB_OK) status = matrix_floats(ctx, &stored, &s->rows);
    if (status == CLOOB_OK) s->h = (cloob_hopfield){ s->rows, stored.rows, stored.columns, beta };
    embeddings_close(file);
    return status;
}

void stored_rows_release(stored_rows *s)
{
    free(s->rows);
    *s = (stored_rows){ 0 };
}

cloob_status stored_rows_check(cloob_ctx *ctx, const stored_rows *s, int64_t width)
{
    if (!width || width == s->h.dim) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: rows of %lld, the embeddings have %lld", s->path, (long long)s->h.dim,
                    (long long)width);
}

cloob_status stored_rows_retrieve(cloob_ctx *ctx, const stored_rows *s, float *rows, int64_t n)
{
    cloob_hopfield_options o;
    if (!rows || n == 0) return CLOOB_OK;
    cloob_hopfield_options_init(&o);
    o.unit = s->unit;
    return cloob_hopfield_retrieve(ctx, &s->h, &o, rows, n, rows, NULL);
}
