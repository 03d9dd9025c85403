/* Which checkpoint a resumed run starts from. */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H

#include "core/ctx.h"

enum { RESUME_PATH = 1024 };

/* The newest valid checkpoint in a folder: latest.safetensors, or, when that is damaged (logged), the one with the most
 * updates among the others with a valid checksum. An error when there is none. */
cloob_status resume_find(cloob_ctx *ctx, const char *folder, char path[RESUME_PATH]);

/* The other name in the folder of a checkpoint that `latest` links to. Empty when there is none, or when path is not in
 * the folder. */
void resume_real_name(const char *folder, const char *path, char name[RESUME_PATH]);

/* True for a checkpoint directly in the folder: the run continues in place. */
bool resume_is_inside(const char *folder, const char *path);

/* Removes temporary files that killed writers left in a folder of checkpoints. */
void resume_clean(const char *folder);

#endif
