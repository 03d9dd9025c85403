/* Which checkpoint a resumed run begins with. */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H

#include "core/ctx.h"

enum { RESUME_PATH = 1024 };

/* The newest whole checkpoint of a run's folder: latest.safetensors, or, when that is damaged (said in the
 * log), the one with the most updates among the others that pass their checksum. None at all is an error. */
cloob_status resume_find(cloob_ctx *ctx, const char *folder, char path[RESUME_PATH]);

/* The name that a checkpoint has besides `latest`: the other file of the folder that is the same one. Empty when there
 * is none, or when path is not in the folder. */
void resume_real_name(const char *folder, const char *path, char name[RESUME_PATH]);

/* True for a checkpoint in the folder itself: the run goes on in place. */
bool resume_is_inside(const char *folder, const char *path);

/* Removes what writers that were killed left half-written in a folder of checkpoints. */
void resume_clean(const char *folder);

#endif
