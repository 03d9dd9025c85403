/* Random access to many files: plain files directly, gzip files and pipes through an unpacked copy.
 *
 * However many files there are, only some dozens are open at a time. A file that was replaced, truncated or removed
 * after it was added gives an error that names it, never wrong bytes.
 *
 * A gzip file, a pipe or the output of "pipe:COMMAND" is unpacked into one unnamed temporary file, which vanishes with
 * the set. */
#ifndef IO_FILESET_H
#define IO_FILESET_H

#include "core/ctx.h"

typedef struct fileset fileset;

/* cache: the folder for indexes, and for the temporary file; NULL: the user's (cache_folder); "": none. */
cloob_status fileset_create(cloob_ctx *ctx, const char *cache, fileset **out);
void fileset_destroy(fileset *fs);

/* Takes a path or "pipe:COMMAND"; nothing is opened yet. */
cloob_status fileset_add(cloob_ctx *ctx, fileset *fs, const char *spec, int *file);

/* Finds the file, unpacks it if need be. Different files may be opened by different threads at once. */
cloob_status fileset_open(cloob_ctx *ctx, fileset *fs, int file);

/* Exactly n bytes at offset of an opened file; any number of threads. */
cloob_status fileset_read(cloob_ctx *ctx, const fileset *fs, int file, int64_t offset, void *out, size_t n);

int fileset_count(const fileset *fs);
const char *fileset_name(const fileset *fs, int file); /* as it was added */
int64_t fileset_size(const fileset *fs, int file);     /* unpacked bytes */
int64_t fileset_mtime_ns(const fileset *fs, int file); /* 0 for temporary ones */
const char *fileset_path(const fileset *fs, int file); /* NULL for temporary ones */
const char *fileset_cache(const fileset *fs);          /* NULL: none */

/* The folder for caches: $CLOOB_CACHE, else $XDG_CACHE_HOME/cloob, else $HOME/.cache/cloob. NULL when none is known or
 * when out of memory; the caller frees. */
char *cache_folder(void);

/* "DIR/KIND-hash of source.suffix", the caller frees. NULL when out of memory. */
char *cache_path(const char *dir, const char *source, const char *suffix);

#endif
