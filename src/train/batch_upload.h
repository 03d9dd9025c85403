/* Uploads batches from host memory to the towers' input buffers.
 *
 * On a GPU a micro-batch is first copied to a staging buffer while the one before is computed. batch_upload_take copies
 * it from there to the towers' inputs, whose addresses do not change, and frees the staging buffer for the next. With
 * one micro-batch per step, the next step's batch may be started before this one is taken: its copy begins then. On a
 * host the towers' inputs are filled directly. */
#ifndef TRAIN_BATCH_UPLOAD_H
#define TRAIN_BATCH_UPLOAD_H

#include "tensor/device.h"

typedef struct batch_upload batch_upload;

/* The parts of a batch. UPLOAD_KEPT exists only with patch dropout. */
enum { UPLOAD_IMAGES, UPLOAD_TOKENS, UPLOAD_KEPT, UPLOAD_PARTS };

/* to: the towers' inputs, for one of `accum` micro-batches; NULL: no such part. The device outlives the upload. */
cloob_status batch_upload_create(cloob_ctx *ctx, device *dev, const tensor *const to[UPLOAD_PARTS], int64_t accum,
                                 batch_upload **out);
void batch_upload_destroy(batch_upload *st); /* NULL is valid */

/* Device bytes of the staging buffer for an input of `bytes`. */
size_t batch_upload_bytes(const device *dev, size_t bytes);

/* True when a batch may be started before the previous one has been taken. */
bool batch_upload_ahead(const batch_upload *st);

/* Starts the upload of accum micro-batches from host memory, which must not change until batch_upload_wait after they
 * were taken. note: a number for each, which batch_upload_note returns; NULL: 0. */
cloob_status batch_upload_start(cloob_ctx *ctx, batch_upload *st, const void *const part[UPLOAD_PARTS],
                                const int *note);

/* The note of the micro-batch that batch_upload_take copies next; 0: none. */
int batch_upload_note(const batch_upload *st);

/* Fills the towers' inputs with the next micro-batch, in the order 0, 1, ..., accum - 1, and again in this order when
 * accum is above 1. CLOOB_ERR_ARGUMENT when no batch was started. */
cloob_status batch_upload_take(cloob_ctx *ctx, batch_upload *st, int64_t micro);

/* Waits until the copies that were started no longer read host memory. */
cloob_status batch_upload_wait(cloob_ctx *ctx, batch_upload *st);

#endif
