/* The image and text towers as graphs.
 *
 * Inputs: "images" (B, S, S, 3) bytes, or (B, 3, S, S) F32 already normalised; "tokens" (B, T) I32; with `kept`, "kept"
 * (B, K) I32: which tokens of each image stay, in rising order, the class token 0 among them. Results: "output"
 * (B, D), unit rows; "raw" (B, D) before that; with `features`, "features": what the projection reads. With a backward
 * pass, "doutput" (B, D) is an input too.
 *
 * Two savings are exact and always on: the last layer of a transformer works for the one token that is read, and
 * attention of one query forms neither keys nor values, except a transformer's in inference on the CPU
 * (docs/explanation/attention-pool.md). A third is exact and optional: texts packed to their lengths, since nothing
 * behind the end token is seen. */
#ifndef MODEL_TOWER_H
#define MODEL_TOWER_H

#include "graph/graph.h"
#include "model/params.h"

typedef struct tower_options {
    int64_t batch;
    int64_t
        tokens;   /* text: only the first so many of each row; 0: all. Under the causal mask what follows the end token
                         * changes nothing */
    int64_t kept; /* ViT in training: patches of each image that are seen, which the input "kept" names; 0: all */
    int64_t rows; /* text: packed, each to its length, into so many rows, which must hold them; 0: not */
    bool index_given;  /* text: the input "index" (B) I32 says which token of each row is read */
    bool train;        /* batch statistics; else running ones */
    bool backward;     /* append the backward pass */
    bool float_images; /* images come as F32 (B, 3, S, S) */
    bool features;     /* keep what the projection reads */
    bool
        gpu_input; /* images in the layout of the GPU's convolutions: 8 channels, the rest 0, where windows overlap, and
                        * windows as rows where they do not */
    op_fp8 fp8;    /* transformers multiply 8-bit factors */
    bool fuse_gemm; /* GEMMs with the pass over their result: for a GPU in training */
    graph_grad_options grad;
} tower_options;

/* g is initialised by the call; release it when the executor is made. */
cloob_status tower_image(cloob_ctx *ctx, const params *p, const tower_options *o, graph *g);
cloob_status tower_text(cloob_ctx *ctx, const params *p, const tower_options *o, graph *g);

/* Tokens up to and with the end token; all T of a model that reads others (model_config_text_ends). */
int64_t tower_text_length(const model_config *c, const int32_t *token, int64_t T);

#endif
