/* The image and text towers as graphs.
 *
 * Inputs: "images" (B, S, S, 3) bytes, or (B, 3, S, S) F32 already normalised; "tokens" (B, T) I32; with `kept`, "kept"
 * (B, K) I32: the tokens to keep of each image, in ascending order, including the class token 0. Results: "output" (B,
 * D), unit rows; "raw" (B, D), before normalisation; with `features`, "features": the input of the projection. With a
 * backward pass, "doutput" (B, D) is an input, too.
 *
 * Two exact optimisations are always on: the last layer of a transformer is computed only for the token that is pooled,
 * and attention of one query forms neither keys nor values, except in a transformer in inference on the CPU
 * (docs/explanation/attention-pool.md). A third is exact and optional: texts are packed without padding, because tokens
 * after the end have no effect. */
#ifndef MODEL_TOWER_H
#define MODEL_TOWER_H

#include "graph/graph.h"
#include "model/params.h"

typedef struct tower_options {
    int64_t batch;
    int64_t tokens;    /* text: use only the first tokens of each row, exact if the text ends within; 0: all */
    int64_t kept;      /* ViT in training: patches per image that the input "kept" selects; 0: all */
    int64_t rows;      /* text: pack the tokens into this many rows, which must suffice; 0: padded */
    bool index_given;  /* text: the input "index" (B) I32 is the token to pool in each row */
    bool train;        /* use batch statistics instead of running statistics */
    bool backward;     /* append the backward pass */
    bool float_images; /* images are (B, 3, S, S) F32 */
    bool features;     /* keep the input of the projection as a result */
    /* Store images as the GPU's convolutions require: padded with zeros to 8 channels if windows overlap, else with
     * windows as rows. */
    bool gpu_input;
    op_fp8 fp8;     /* whether transformers multiply 8-bit matrices */
    bool fuse_gemm; /* fuse GEMMs with the ops on their results: for training on a GPU */
    graph_grad_options grad;
} tower_options;

/* Builds the graph of a tower. Initialises g, also on failure; release it with graph_release. */
cloob_status tower_image(cloob_ctx *ctx, const params *p, const tower_options *o, graph *g);
cloob_status tower_text(cloob_ctx *ctx, const params *p, const tower_options *o, graph *g);

/* Number of tokens up to and including the end token; T for a model whose later tokens matter (see
 * model_config_text_ends). */
int64_t tower_text_length(const model_config *c, const int32_t *token, int64_t T);

#endif
