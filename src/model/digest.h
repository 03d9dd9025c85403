/* The checksum of a file in cloob's format, over all of its tensors and metadata.
 *
 *     digest.train   over the tensors of a run's state (names that begin with "train.")
 *     digest.model   over all other tensors and all metadata, digest.train among them
 *     file_version   of the layout; a file of a later version is refused
 *
 * Names, types, shapes and bytes count; the order in the file does not. Every reader of the weights checks
 * digest.model. A mapped file with the inode, size and times that it had when it was last found intact is not read
 * again for it; a server, a resumed run and `cloob info` read every file, the last two with digest.train. Files written
 * before 0.2 have none of these; they are read unchecked. */
#ifndef MODEL_DIGEST_H
#define MODEL_DIGEST_H

#include "io/safetensors.h"

enum { DIGEST_FILE_VERSION = 1 };

/* A file's content: tensors in host memory and metadata. */
typedef struct digest_input {
    const st_entry *entry;
    int64_t count;
    const st_meta *meta;
    int64_t meta_count;
    void (*done)(void *user, const st_entry *e); /* NULL, or called after each tensor of the weights */
    void *user;
} digest_input;

enum { DIGEST_TEXT = 17 };

/* The value for digest.train, and, once that is part of the metadata, for digest.model. */
cloob_status digest_train(cloob_ctx *ctx, const digest_input *in, char text[DIGEST_TEXT]);
cloob_status digest_model(cloob_ctx *ctx, const digest_input *in, char text[DIGEST_TEXT]);

/* Version and digest.model of a file that has them. */
cloob_status digest_check_model(cloob_ctx *ctx, const char *path, const digest_input *in);

/* The same, remembered in the cache folder for a large file that is mapped, until its inode, size or times change. */
cloob_status digest_check_model_once(cloob_ctx *ctx, const char *path, const digest_input *in);

/* digest.train: together with the above, every byte. *stored: whether there was one. */
cloob_status digest_check_train(cloob_ctx *ctx, const char *path, const digest_input *in, bool *stored);

#endif
