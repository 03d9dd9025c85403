/* A model's weights in memory: named tensors, the configuration, and metadata; and cloob's file format.
 *
 * Names are canonical (model/shapes.c). Besides the model's own there may be logit_scale and
 * logit_scale_hopfield (logarithms, one element), NAME.num_batches_tracked of batch norms, and tensors whose
 * names begin with "train." (the state of a run, not used here). Tensors are views of the
 * mapped file wherever possible, of the type they were stored in.
 *
 * The native file is a safetensors file whose metadata has
 *     format        "cloob"
 *     config        the configuration as JSON (model/config.h)
 *     activation    "quickgelu" or "gelu"
 *     preprocess    JSON: size, mean, std, resize, interpolation
 *     version       of the program that wrote it
 *     file_version, digest.model, digest.train     see model/digest.h
 * and, where known, tokenizer (the text of its merges), method, inv_tau, scale_hopfield, epoch, run, auto_precision
 * (what the precision "auto" is for these weights).
 *
 *     weights w;
 *     CLOOB_TRY(weights_read_native(ctx, path, &w));
 *     const tensor *t = weights_find(&w, "visual.conv1.weight");
 *     weights_release(&w);
 */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "io/safetensors.h"
#include "io/torch/torchfile.h"
#include "model/config.h"

enum { WEIGHT_SHARDS = 512 }; /* the most files of one model */

/* One file of a model in several: one of the two. */
typedef struct weight_shard {
    const char *name;
    st_file st;
    torch_file torch;
} weight_shard;

typedef struct weights {
    arena a; /* names, and tensors that are not views */
    st_entry *entry;
    int64_t count, capacity;
    model_config config;
    st_meta *meta;
    int64_t meta_count, meta_capacity;
    st_file st; /* what the tensors point into */
    torch_file torch;
    weight_shard *shard; /* or these, of a file in shards */
    int64_t shards;
} weights;

void weights_init(weights *w); /* empty; the same as zeroed memory */
void weights_release(weights *w);

/* Lets the system take back the pages of a tensor in a mapped file; they are read again at the next access. Does
 * nothing to a tensor in other memory. Called after each tensor was read, so that a large model never is in memory as a
 * whole. */
void weights_drop_pages(const weights *w, const tensor *t);
/* The same after the last use of a tensor: in a file that was copied into memory its bytes are lost. */
void weights_forget(const weights *w, const tensor *t);

/* The name is copied, the data are not: they must live as long as w (in w->a, or in a mapped file). */
/* Copies of the matrices in another type of floats. Vectors keep theirs: they are a thousandth of a model and scale
 * everything else. */
cloob_status weights_convert(cloob_ctx *ctx, weights *w, cloob_dtype to);
cloob_status weights_add(cloob_ctx *ctx, weights *w, const char *name, const tensor *t);
const tensor *weights_find(const weights *w, const char *name); /* NULL when absent */

/* Replaces a value of the same key; both are copied. A NULL value removes the key. */
cloob_status weights_set_meta(cloob_ctx *ctx, weights *w, const char *key, const char *value);
const char *weights_get_meta(const weights *w, const char *key); /* NULL when absent */

/* One line that lists what is missing or has another shape than the configuration requires; OK when all match. */
cloob_status weights_check(cloob_ctx *ctx, const weights *w, const char *path);

/* Reads a file of format "cloob"; checks its version and checksum, and names and shapes against its
 * configuration. */
cloob_status weights_read_native(cloob_ctx *ctx, const char *path, weights *w);
/* What reading leaves unchecked: the training state. *stored: whether the file has a checksum. */
cloob_status weights_verify(cloob_ctx *ctx, const char *path, const weights *w, bool *stored);
/* Sets format, config, activation, preprocess, versions and checksums, then writes atomically. */
cloob_status weights_write_native(cloob_ctx *ctx, const char *path, weights *w);

/* Weights in several files with an index: transformers' model.safetensors.index.json and
 * pytorch_model.bin.index.json. */

/* True for the name of an index. */
bool shards_looks_like(const char *path);

/* Maps every file that the index names, in its folder, into w->shard. Every tensor must be in the file the index says,
 * once, and no file may hold others. On failure what was opened belongs to w all the same. */
cloob_status shards_open(cloob_ctx *ctx, const char *index, weights *w);

/* Positional embeddings of another grid: weights for images of another size. */

/* Resizes the image tower's positional embeddings (grid x grid rows, after that of a class token) of w to the grid of
 * `image_size` and notes that size in w->config. Bicubic with antialiasing, as open_clip resizes them; that of the
 * class token stays. The state of a run that belongs to them (moments, averages) is resized with them. Refuses sizes
 * that the model cannot have. */
cloob_status weights_resize_images(cloob_ctx *ctx, weights *w, int64_t image_size);

#endif
