/* State while a tower's graph is built, and the pieces that towers share. */
#ifndef MODEL_BUILD_H
#define MODEL_BUILD_H

#include "model/tower.h"

typedef struct build {
    graph *g;
    const params *p;
    const tower_options *o;
} build;

/* A parameter by name. The name is formatted as by printf: build_param(b, "visual.layer%d.%d.conv1.weight", 1, 0). An
 * unknown name sets the graph's error status and returns NO_VALUE. */
value_id build_param(build *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A convolution weight (O, kh, kw, C) seen as the weight (O, 1, 1, kh kw C) of a 1 x 1 convolution, for an input whose
 * pixels already hold whole windows. */
value_id build_param_point(build *b, const char *name);
/* Rows [first, first + count) of a matrix, or elements of a vector. */
value_id build_param_rows(build *b, int64_t first, int64_t count, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The first row of a matrix as a vector. */
value_id build_param_row(build *b, const char *name);
bool build_has(const build *b, const char *name);

value_id build_linear(build *b, value_id x, value_id w, value_id bias);
/* x times PREFIX.WEIGHT, plus PREFIX.BIAS (NULL: none), plus `residual` (NO_VALUE: none), plus the output of the
 * weight's adapters if it has any. */
value_id build_adapted(build *b, value_id x, const char *prefix, const char *weight, const char *bias,
                       value_id residual);
/* x w without a bias; w is (in, out). */
value_id build_project(build *b, value_id x, value_id w);
value_id build_layernorm(build *b, value_id x, const char *prefix, double eps);
value_id build_add(build *b, value_id x, value_id y);

/* Layout of the sequences that a transformer processes, and which of its output rows are needed. */
typedef struct build_sequences {
    const model_blocks *blocks;
    int64_t heads;
    bool causal;
    int64_t side;   /* columns of the grid of patches, for rotary positions */
    int64_t skip;   /* tokens before the first patch */
    bool whole;     /* return all tokens */
    value_id index; /* (B): the token to return for each sequence; NO_VALUE: token 0 */
    value_id mask;  /* (B): queries after this token are replaced, so that they attend to all tokens equally; NO_VALUE:
                     * no mask */
    value_id start; /* packed sequences: (B + 1) first rows, as in OP_PACK_TEXTS, whose `last` output is `index`;
                     * NO_VALUE: not packed */
    int64_t tokens; /* packed sequences: the largest number of tokens in one */
} build_sequences;

/* Applies `layers` blocks to x (B, T, C), or packed (R, C). Returns the shape of x if s->whole, else (B, C): the last
 * block is then computed for one token of each sequence. */
value_id build_transformer(build *b, value_id x, const char *prefix, int64_t layers, const build_sequences *s);
/* Attention pooling as in SigLIP: one learned query attends to all tokens of x (B, T, C), or packed (R, C), followed by
 * an MLP. Returns (B, C). */
value_id build_map_pool(build *b, value_id x, const char *prefix, int64_t heads, const build_sequences *s);

/* Projects `features` to the embedding: by the matrix `name`; by a linear layer with a bias; or, with hidden > 0, by an
 * MLP with a hidden layer of that width. */
value_id build_projection(build *b, value_id features, const char *name, int64_t hidden, bool bias);

value_id build_resnet(build *b, value_id images);
value_id build_convnext(build *b, value_id images);
value_id build_fastvit(build *b, value_id images);
/* Convolutions in place of the patch embedding (config.patch_stem): (N, h, w, 3) to (N, 2h / patch, 2w / patch, width /
 * 4). */
value_id build_patch_stem(build *b, value_id images);
value_id build_vit(build *b, value_id images);

/* Finishes the graph: normalises `raw` to unit rows, names the results, fuses ops, and appends the backward pass if
 * requested. */
cloob_status build_finish(build *b, value_id features, value_id raw);

#endif
