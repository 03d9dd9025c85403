/* A tower as an ONNX file (opset 17, IR 8), for onnxruntime and others.
 *
 * Image tower: "images" (batch, 3, S, S) float, normalised by the metadata's "preprocess", to "image_embeddings"
 * (batch, D), unit rows. Text tower: "tokens" (batch, T) int64, padded as the tokenizer does, to "text_embeddings". The
 * batch is any. The graph is made from the tower's own ops, batch norm folded into the convolutions, weights in f32. */
#ifndef MODEL_ONNX_ONNX_H
#define MODEL_ONNX_ONNX_H

#include "model/weights.h"

/* Writes atomically. A tower above the 2 GB that a file of this kind may have is CLOOB_ERR_UNSUPPORTED. */
cloob_status onnx_write(cloob_ctx *ctx, const char *path, const weights *w, bool text);

#endif
