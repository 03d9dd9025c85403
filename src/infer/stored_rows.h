/* The rows of a file that embeddings retrieve from: Hopfield retrieval between a model and what is done with its rows.
 *
 *     stored_rows s;
 *     CLOOB_TRY(stored_rows_open(ctx, &options, model->scale_hopfield, true, &s));
 *     CLOOB_TRY(stored_rows_retrieve(ctx, &s, rows, n));
 *     stored_rows_release(&s);
 */
#ifndef INFER_STORED_ROWS_H
#define INFER_STORED_ROWS_H

#include "cloob/hopfield.h"
#include "cloob/model.h"

typedef struct stored_rows {
    cloob_hopfield h;
    const char *path; /* borrowed */
    float *rows;
    bool unit; /* what is retrieved gets unit length */
} stored_rows;

/* o->retrieve is not NULL. scale: beta where the options leave it to the checkpoint; 0: unknown. Release it in any
 * case. */
cloob_status stored_rows_open(cloob_ctx *ctx, const cloob_eval_options *o, double scale, bool unit, stored_rows *s);
void stored_rows_release(stored_rows *s);

/* Refuses embeddings of another width; 0 is fine. */
cloob_status stored_rows_check(cloob_ctx *ctx, const stored_rows *s, int64_t width);
/* rows (n, width) in place; NULL is fine. */
cloob_status stored_rows_retrieve(cloob_ctx *ctx, const stored_rows *s, float *rows, int64_t n);

#endif
