/* The embeddings of a whole data set, in its order.
 *
 *     embedded e;
 *     CLOOB_TRY(embed_data(ctx, m->enc, m->tok, set, &options, &e));
 *     ... e.image, e.text, e.label ...
 *     embedded_release(&e);
 */
#ifndef INFER_EMBED_DATA_H
#define INFER_EMBED_DATA_H

#include "data/load/loader.h"
#include "model/encoder.h"

typedef struct embed_options {
    cloob_output what;
    int64_t batch;    /* images read at a time */
    int workers;      /* threads that decode; 0: the calling one */
    double bad_share; /* of the first samples that may be unreadable; 0: any */
} embed_options;

void embed_options_init(embed_options *o); /* unit rows, 64, 2 */

/* Embeddings of a data set, or of a batch of it. */
typedef struct embedded {
    int64_t rows, bad; /* samples embedded, and left out because they cannot be read */
    int64_t image_width, text_width;
    float *image;   /* (rows, image_width) */
    float *text;    /* (rows, text_width); NULL without captions */
    int64_t *label; /* (rows); NULL without classes */
    int64_t *index; /* (rows) which sample each row is */
} embedded;

/* tok may be NULL: images only. Views have the encoder's size. On failure e is empty, otherwise the caller releases it.
 * Fails if no sample can be read. */
cloob_status embed_data(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d, const embed_options *o,
                        embedded *e);
void embedded_release(embedded *e);

/* The same in batches, so that memory does not grow with the set. Rows may be changed by the visitor and are
 * valid until it returns. *bad: samples left out because they cannot be read. */
typedef cloob_status embed_visitor(cloob_ctx *ctx, void *user, const embedded *batch);
cloob_status embed_data_each(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d,
                             const embed_options *o, embed_visitor *visit, void *user, int64_t *bad);

/* Makes a loader store its batches in memory that the device copies at full speed; the device outlives the loader. */
void loader_feeds(loader_options *o, device *dev);

/* At least `wanted` rows, rounded up to whole batches of the encoder. */
int64_t embed_rows_at_once(const encoder *enc, int64_t wanted);

#endif
