/* The batching encoder (cloob/batcher.h) beyond its public interface. */
#ifndef INFER_BATCHER_H
#define INFER_BATCHER_H

#include "cloob/batcher.h"
#include "data/text/tokenizer.h"
#include "infer/model_file.h"

typedef struct cloob_batcher batcher;

/* The digest of the model in use (model_file.h). */
void batcher_get_digest(batcher *b, char out[DIGEST_TEXT]);

/* The tokenizer of the model in use, which stays until batcher_release_tokenizer. CLOOB_ERR_ARGUMENT when the model has
 * none; there is nothing to release then. */
cloob_status batcher_acquire_tokenizer(cloob_ctx *ctx, batcher *b, const tokenizer **out);
void batcher_release_tokenizer(batcher *b);

/* The raw rows of all tokens of one text: out->n is their number. Otherwise as cloob_batcher_encode. */
cloob_status batcher_encode_tokens(cloob_ctx *ctx, batcher *b, const cloob_batch_input *in,
                                   const cloob_batch_options *o, cloob_batch_rows *out);

/* Upper bound of bucket i in seconds; the last is infinity. */
double latency_bound(int i);
void latency_add(cloob_latency *h, double seconds);

#endif
