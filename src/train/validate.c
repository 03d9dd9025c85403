/* Validation: embeddings of the validation pairs, loss, recall, zero-shot. */
#include "train/run.h"

cloob_status run_validate(cloob_ctx *ctx, run *r, int64_t epoch)
{
    (void)ctx, (void)r, (void)epoch;
    return CLOOB_OK;
}
