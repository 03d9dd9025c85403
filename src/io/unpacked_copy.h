/* Plain copies of gzip files and pipes, for random access. Used by fileset.c only. */
#ifndef IO_UNPACKED_COPY_H
#define IO_UNPACKED_COPY_H

#include "core/ctx.h"

/* An unnamed file in `dir` (NULL: $TMPDIR, /var/tmp or /tmp); its descriptor. */
cloob_status unpacked_copy_temporary(cloob_ctx *ctx, const char *dir, int *fd);

/* Appends the unpacked content of a path or "pipe:COMMAND" at `base`; *size bytes were written. */
cloob_status unpacked_copy_append(cloob_ctx *ctx, const char *spec, int fd, int64_t base, int64_t *size);

/* The unpacked copy of a gzip file in the cache folder, made now unless a whole one for the same size and
 * time of change is there. *path: the caller frees. *size: its content; a trailer follows it. */
cloob_status unpacked_copy_cached(cloob_ctx *ctx, const char *dir, const char *source, int64_t source_size,
                                  int64_t source_mtime_ns, char **path, int64_t *size);

#endif
