/* A batch on its way from host memory to where the towers read it.
 *
 * On a GPU a micro-batch first arrives in a place of its own, by a copy that goes on while the one before is
 * computed on; taking it is a short copy on the device, so the towers' inputs keep their addresses, and frees
 * the place for the next. With one micro-batch a step the next step's batch may be put while this one is
 * still to be taken: it sets out when that happens. On a host the towers' inputs are filled straight away. */
#ifndef TRAIN_BATCH_UPLOAD_H
#define TRAIN_BATCH_UPLOAD_H

#include "tensor/device.h"

typedef struct batch_upload batch_upload;

/* The parts of a batch. UPLOAD_KEPT is there with patch dropout alone. */
enum { UPLOAD_IMAGES, UPLOAD_TOKENS, UPLOAD_KEPT, UPLOAD_PARTS };

/* to: the towers' inputs, for one of `accum` micro-batches; NULL: there is no such part. The device outlives the
 * stage. */
cloob_status batch_upload_create(cloob_ctx *ctx, device *dev, const tensor *const to[UPLOAD_PARTS], int64_t accum,
                                 batch_upload **out);
void batch_upload_destroy(batch_upload *st); /* NULL is fine */

/* Device bytes of the place for an input of `bytes`. */
size_t batch_upload_bytes(const device *dev, size_t bytes);

/* True when a batch may be put before the one put last has been taken. */
bool batch_upload_ahead(const batch_upload *st);

/* Starts the way of accum micro-batches in host memory, which stays untouched until batch_upload_wait after they
 * were taken; ahead: after the batch before them was taken. note: a number for each, which comes back with
 * it; NULL: 0. */
cloob_status batch_upload_start(cloob_ctx *ctx, batch_upload *st, const void *const part[UPLOAD_PARTS],
                                const int *note);

/* The note of the micro-batch that batch_upload_take brings next; 0: there is none. */
int batch_upload_note(const batch_upload *st);

/* Fills the towers' inputs with the next micro-batch, in the order 0, 1, ..., accum - 1, and once more when
 * accum is above 1. Without one it is CLOOB_ERR_ARGUMENT. */
cloob_status batch_upload_take(cloob_ctx *ctx, batch_upload *st, int64_t micro);

/* Waits until what has set out no longer reads host memory. */
cloob_status batch_upload_wait(cloob_ctx *ctx, batch_upload *st);

#endif
