/* A model's weights in memory: named tensors, configuration and metadata. Defines cloob's file format.
 *
 * Names are canonical (model/shapes.c). In addition to the model's parameters there may be logit_scale and
 * logit_scale_hopfield (logarithms, one element), NAME.num_batches_tracked of batch norms, and tensors whose names
 * start with "train." (the state of a run, not used here). Tensors have the type of the file and are views of the
 * mapped file where possible.
 *
 * The native file is a safetensors file whose metadata has
 *     format        "cloob"
 *     config        the configuration as JSON (model/config.h)
 *     activation    "quickgelu" or "gelu"
 *     preprocess    JSON: size, mean, std, resize, interpolation
 *     version       of the program that wrote it
 *     file_version, digest.model, digest.train     see model/digest.h
 * and, if known, tokenizer (the text of its merges), method, inv_tau, scale_hopfield, epoch, run, auto_precision (the
 * precision that "auto" selects for these weights).
 *
 *     weights w;
 *     CLOOB_TRY(weights_read_native(ctx, path, &w));
 *     const tensor *t = weights_find(&w, "visual.conv1.weight");
 *     weights_release(&w);
 * */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "io/safetensors.h"
#include "io/torch/torchfile.h"
#include "model/config.h"

enum { WEIGHT_SHARDS = 512 }; /* the largest number of files of one model */

/* One file of a sharded model: either st or torch is used. */
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
    st_file st; /* the file that the tensors point into: st, torch, or `shard` */
    torch_file torch;
    weight_shard *shard; /* for a sharded model */
    int64_t shards;
} weights;

void weights_init(weights *w); /* same as zeroed memory */
void weights_release(weights *w);

/* Lets the system reclaim the pages of a tensor in a mapped file; they are read again on the next access. Does nothing
 * for other tensors. Call it after reading a tensor, so that a large model is never completely in memory. */
void weights_drop_pages(const weights *w, const tensor *t);
/* As weights_drop_pages, after the last use of a tensor: if the file was copied into memory instead of mapped, the
 * bytes are lost. */
void weights_forget(const weights *w, const tensor *t);

/* Replaces the matrices by copies in another float type. Vectors keep their type: they are a thousandth of a model and
 * scale everything else. */
cloob_status weights_convert(cloob_ctx *ctx, weights *w, cloob_dtype to);
/* Adds a tensor. The name is copied, the data is not: it must live as long as w (in w->a or a mapped file). */
cloob_status weights_add(cloob_ctx *ctx, weights *w, const char *name, const tensor *t);
const tensor *weights_find(const weights *w, const char *name); /* NULL if absent */

/* Sets a metadata value, replacing an earlier one; key and value are copied. NULL removes the key. */
cloob_status weights_set_meta(cloob_ctx *ctx, weights *w, const char *key, const char *value);
const char *weights_get_meta(const weights *w, const char *key); /* NULL if absent */

/* Fails, in one line, if tensors are missing or have other shapes than the configuration requires. */
cloob_status weights_check(cloob_ctx *ctx, const weights *w, const char *path);

/* Reads a file in cloob's format and checks version, checksum, names and shapes. */
cloob_status weights_read_native(cloob_ctx *ctx, const char *path, weights *w);
/* Checks the training state, which weights_read_native does not. *stored: whether the file has a checksum. */
cloob_status weights_verify(cloob_ctx *ctx, const char *path, const weights *w, bool *stored);
/* Sets format, config, activation, preprocess, versions and checksums, then writes atomically. */
cloob_status weights_write_native(cloob_ctx *ctx, const char *path, weights *w);

/* Sharded weights with an index: transformers' model.safetensors.index.json and pytorch_model.bin.index.json. */

/* Whether the path has the name of an index. */
bool shards_looks_like(const char *path);

/* Maps all files that the index names, from its folder, into w->shard. Fails unless the shards hold exactly the tensors
 * that the index lists, each once and in the listed file. On failure, w owns the files opened so far. */
cloob_status shards_open(cloob_ctx *ctx, const char *index, weights *w);

/* Weights for images of another size. */

/* Resizes the positional embeddings of w's image tower to the grid of `image_size`, and sets w->config.image_size.
 * Bicubic with antialiasing, as in open_clip; the class token's row is not changed. Moments and averages in a run's
 * state are resized, too. Fails for an image size that the model does not support. */
cloob_status weights_resize_images(cloob_ctx *ctx, weights *w, int64_t image_size);

#endif
