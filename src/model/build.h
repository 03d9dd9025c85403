/* What the towers are built with: parameters by name, and the small pieces every tower uses. */
#ifndef MODEL_BUILD_H
#define MODEL_BUILD_H

#include "model/tower.h"

typedef struct build {
    graph *g;
    const params *p;
    const tower_options *o;
} build;

/* A parameter by its name, formatted as by printf: build_param(b, "visual.layer%d.%d.conv1.weight", 1, 0). */
value_id build_param(build *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The weight of a convolution whose windows are rows already: that of a 1 x 1 convolution with all their channels. */
value_id build_param_point(build *b, const char *name);
/* Rows [first, first + count) of a matrix, or elements of a vector. */
value_id build_param_rows(build *b, int64_t first, int64_t count, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The first row of a matrix as a vector. */
value_id build_param_row(build *b, const char *name);
bool build_has(const build *b, const char *name);

value_id build_linear(build *b, value_id x, value_id w, value_id bias);
/* x by PREFIX.WEIGHT and PREFIX.BIAS, plus `residual` (or NO_VALUE), plus what the weight's adapters add where it has
 * some. */
value_id build_adapted(build *b, value_id x, const char *prefix, const char *weight, const char *bias,
                       value_id residual);
/* x (in, out): x w, no bias. */
value_id build_project(build *b, value_id x, value_id w);
value_id build_layernorm(build *b, value_id x, const char *prefix, double eps);
value_id build_add(build *b, value_id x, value_id y);

/* What the sequences of a transformer are. */
typedef struct build_sequences {
    const model_blocks *blocks;
    int64_t heads;
    bool causal;
    int64_t side;   /* rotary positions: columns of the grid of patches */
    int64_t skip;   /* tokens in front of it */
    bool whole;     /* all tokens are wanted */
    value_id index; /* (B): the one token of each that is wanted; NO_VALUE: token 0 */
    value_id mask;  /* (B): queries behind this token see all alike; NO_VALUE: as they are */
    value_id start; /* packed: (B + 1), as of OP_PACK_TEXTS, and index is its `last`; NO_VALUE: of one length */
    int64_t tokens; /* packed: the most of one */
} build_sequences;

/* `layers` blocks over x (B, T, C), or packed (R, C). Returns x's shape where it is wanted whole; else (B, C),
 * and the last block is computed for one token of each sequence. */
value_id build_transformer(build *b, value_id x, const char *prefix, int64_t layers, const build_sequences *s);
/* Attention of one learned query over all tokens x (B, T, C), or packed (R, C), then an MLP: (B, C). SigLIP's
 * pooling. */
value_id build_map_pool(build *b, value_id x, const char *prefix, int64_t heads, const build_sequences *s);

/* The embedding of `features`: by the matrix `name`, by one with a bias, or by an MLP. */
value_id build_projection(build *b, value_id features, const char *name, int64_t hidden, bool bias);

value_id build_resnet(build *b, value_id images);
value_id build_convnext(build *b, value_id images);
value_id build_fastvit(build *b, value_id images);
/* The convolutions in front of a ViT's patches (patch_stem): (N, h, w, 3) to (N, 2h / patch, 2w / patch, width / 4). */
value_id build_patch_stem(build *b, value_id images);
value_id build_vit(build *b, value_id images);

/* Unit rows, names, fusion, and the backward pass. */
cloob_status build_finish(build *b, value_id features, value_id raw);

#endif
