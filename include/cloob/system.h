/* What this build and this machine have: optional parts, instruction sets, folders. For reports such as cloob
 * doctor. And how the library writes a file. */
#ifndef CLOOB_SYSTEM_H
#define CLOOB_SYSTEM_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A library that was looked for when cloob was built. */
typedef struct cloob_part {
    const char *name; /* "JPEG" */
    bool present;
    const char *use; /* what needs it */
} cloob_part;

/* All of them; static memory. */
CLOOB_API const cloob_part *cloob_parts(int64_t *count);

/* The instruction sets of this processor that kernels of ours make use of, separated by blanks: "avx2 avx512 vnni". */
CLOOB_API const char *cloob_instruction_sets(void);

/* Where files go that can be made again (unpacked shards, indexes of tars): $CLOOB_CACHE, else $XDG_CACHE_HOME/cloob,
 * else ~/.cache/cloob. False: there is none, or it is longer than `size`. */
CLOOB_API bool cloob_cache_folder(char *out, size_t size);

/* Writes a file whole or not at all: under its name stands what stood there before until all bytes are on the disk.
 * Links are followed and stay; devices and pipes are written to. */
CLOOB_API cloob_status cloob_file_write(cloob_ctx *ctx, const char *path, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
