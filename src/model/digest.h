/* The checksum of a file in cloob's format, over all of its tensors and metadata.
 *
 *     digest.train   over the tensors of a run's state (names that begin with "train.")
 *     digest.model   over all other tensors and all metadata, digest.train among them
 *     file_version   of the layout; a file of a later version is refused
 *
 * The checksums cover names, types, shapes and bytes, but not the order in the file. Every reader of the weights checks
 * digest.model. The check of a mapped file is skipped if its inode, size and times have not changed since it last
 * passed; a server, a resumed run and `cloob info` always check, the last two also digest.train. Files written before
 * 0.2 have no checksums and are not checked. */
#ifndef MODEL_DIGEST_H
#define MODEL_DIGEST_H

#include "io/safetensors.h"

enum { DIGEST_FILE_VERSION = 1 };

/* Content of a file: tensors in host memory, and metadata. */
typedef struct digest_input {
    const st_entry *entry;
    int64_t count;
    const st_meta *meta;
    int64_t meta_count;
    void (*done)(void *user, const st_entry *e); /* called after each tensor of the weights; NULL: not used */
    void *user;
} digest_input;

enum { DIGEST_TEXT = 17 };

/* The value of digest.train, and of digest.model; digest.train must be in the metadata before digest.model is
 * computed. */
cloob_status digest_train(cloob_ctx *ctx, const digest_input *in, char text[DIGEST_TEXT]);
cloob_status digest_model(cloob_ctx *ctx, const digest_input *in, char text[DIGEST_TEXT]);

/* Checks file_version, and digest.model if the file has one. */
cloob_status digest_check_model(cloob_ctx *ctx, const char *path, const digest_input *in);

/* As digest_check_model. The result for a large mapped file is cached in the cache folder until inode, size or times
 * change. */
cloob_status digest_check_model_once(cloob_ctx *ctx, const char *path, const digest_input *in);

/* Checks digest.train. Together with digest.model this covers every byte. *stored: whether the file has a
 * digest.train. */
cloob_status digest_check_train(cloob_ctx *ctx, const char *path, const digest_input *in, bool *stored);

#endif
