/* An epoch of JPEGs through a loader, by the CPU and by a device's decoder. */
#ifndef TESTS_DATA_DECODED_EPOCHS_H
#define TESTS_DATA_DECODED_EPOCHS_H

#include "data/load/loader.h"

/* True when both give the same samples in the same order, with views that differ by at most `tolerance` levels, and
 * files which the decoder cannot take, or which nobody can read, are counted. */
bool decoded_epochs_agree(cloob_ctx *ctx, device_decoder *decoder, int tolerance);

#endif
