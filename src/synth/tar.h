/* Plain tar files, written member by member (ustar; no dates or owners, so the same content is the same
 * bytes). */
#ifndef SYNTH_TAR_H
#define SYNTH_TAR_H

#include "core/ctx.h"

typedef struct synth_tar {
    void *stream; /* FILE */
    char *path;
} synth_tar;

cloob_status synth_tar_open(cloob_ctx *ctx, const char *path, synth_tar *t);
/* name: up to 99 bytes. A failed write is reported by close. */
void synth_tar_add(synth_tar *t, const char *name, const void *data, size_t bytes);
cloob_status synth_tar_close(cloob_ctx *ctx, synth_tar *t); /* safe to call on a closed one */

#endif
