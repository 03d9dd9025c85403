/* Weights in 8 bits: every matrix row (output channel) has one scale, and its elements are round(value / scale), -127
 * to 127.
 *
 * In cloob's format a matrix NAME is I8 of its own shape, and NAME.int8_scale holds the scales, F32 (rows). Vectors
 * stay as they were. Other formats get floats. */
#ifndef MODEL_INT8_H
#define MODEL_INT8_H

#include "model/weights.h"

/* The name of a matrix's scales. */
enum { INT8_NAME = 224 };
const char *int8_scale_name(const char *name, char text[INT8_NAME]);

/* Every float matrix becomes I8 with scales, in w's arena. */
cloob_status int8_quantise(cloob_ctx *ctx, weights *w);
/* Back to F32; the scales go. Nothing happens where no tensor is I8. */
cloob_status int8_expand(cloob_ctx *ctx, weights *w);
/* One I8 matrix of w as F32; `to` is large enough. False: its scales are missing or do not fit. */
bool int8_row(const weights *w, const char *name, const tensor *t, float *to);

#endif
