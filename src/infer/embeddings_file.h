/* Embeddings in safetensors files: matrices, labels and class names of a mapped file. */
#ifndef INFER_EMBEDDINGS_FILE_H
#define INFER_EMBEDDINGS_FILE_H

#include "cloob/eval.h"
#include "cloob/hopfield.h"
#include "cloob/model.h"
#include "cloob/objective.h"

typedef struct embeddings_file embeddings_file; /* an open safetensors file */

cloob_status embeddings_open(cloob_ctx *ctx, const char *path, embeddings_file **out);
void embeddings_close(embeddings_file *e);

/* The first tensor that exists of "image|x"; valid until the file is closed. */
cloob_status embeddings_matrix(cloob_ctx *ctx, embeddings_file *e, const char *names, cloob_matrix *out);
bool embeddings_has(const embeddings_file *e, const char *names);
/* Class labels, one per row: integers, or floats that are whole numbers; valid until the file is closed. */
cloob_status embeddings_labels(cloob_ctx *ctx, embeddings_file *e, const char *names, int64_t rows,
                               const int64_t **out);
/* The names of the classes, as cloob embed stores them; valid until the file is closed. NULL and 0: it has none. */
cloob_status embeddings_classes(cloob_ctx *ctx, embeddings_file *e, const char *const **name, int64_t *count);

/* The trained classifier as safetensors: `weight` (classes, dimensions), `bias` (classes), `label` (classes).
 */
cloob_status probe_save(cloob_ctx *ctx, const cloob_probe_result *r, const char *path);

/* The loss of a file with x, y (or image, text) and perhaps U, V. gradients: a file to write dx, dy (and dU, dV) to, or
 * NULL. */
cloob_status objective_file(cloob_ctx *ctx, const cloob_objective_options *o, const char *input, const char *gradients,
                            cloob_objective_result *r);

/* Hopfield retrieval of embeddings from the rows of a file.
 *
 *     stored_rows s;
 *     CLOOB_TRY(stored_rows_open(ctx, &options, model->scale_hopfield, true, &s));
 *     CLOOB_TRY(stored_rows_retrieve(ctx, &s, rows, n));
 *     stored_rows_release(&s);
 */

typedef struct stored_rows {
    cloob_hopfield h;
    const char *path; /* borrowed */
    float *rows;
    bool unit; /* retrieved rows are scaled to unit length */
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
