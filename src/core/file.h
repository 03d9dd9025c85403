/* Whole files in and out, and mapped files.
 *
 * Writing is atomic: a file of a random name in the target's folder, created exclusively, is flushed to disk and then
 * renamed, so that the target is always either the old or the new content; a full disk or a kill leaves the old one. A
 * symbolic link is followed: its target is replaced, the link stays. A new file has the mode that the umask allows, a
 * replaced one keeps its own. A character device or a pipe is written to directly; a block device, a socket or a folder
 * is refused. */
#ifndef CORE_FILE_H
#define CORE_FILE_H

#include <stdio.h>
#include <time.h>

#include "core/ctx.h"
#include "core/sbuf.h"

#define FILE_TEXT_LIMIT ((size_t)1 << 30) /* above the size of any configuration or caption file */

typedef struct file_bytes {
    char *data; /* zero-terminated, the terminator not counted */
    size_t size;
} file_bytes;

/* Fails with CLOOB_ERR_IO and "PATH: WHAT: REASON", the system's reason for errno. */
cloob_status file_fail(cloob_ctx *ctx, const char *path, const char *what);

/* Opens a regular file, a character device or a pipe for reading. A pipe without a writer is refused after ten seconds;
 * fopen would wait forever. */
cloob_status file_open(cloob_ctx *ctx, const char *path, FILE **out);

/* Reads a regular file or a pipe; refuses more than `limit` bytes. */
cloob_status file_read(cloob_ctx *ctx, const char *path, size_t limit, file_bytes *out);
void file_bytes_release(file_bytes *b);

/* The first *have bytes, at most `bytes`, of a regular file. */
cloob_status file_read_beginning(cloob_ctx *ctx, const char *path, void *data, size_t bytes, size_t *have);

/* pread and pwrite of all n bytes. read: returns how many there are, fewer than n at the end of the file, -1 with
 * errno; write: false with errno. */
ssize_t file_read_at(int fd, void *out, size_t n, int64_t at);
bool file_write_at(int fd, const void *data, size_t n, int64_t at);

/* A file's time in nanoseconds since 1970, clamped to the range of int64_t (years 1677 to 2262). */
int64_t time_ns(struct timespec t);

/* A read-only mapping of a whole regular file; an empty file maps to size 0. Where the context has copy_files, a copy
 * in memory. */
typedef struct file_map {
    const unsigned char *data;
    size_t size;
    bool copied;
} file_map;

cloob_status file_map_open(cloob_ctx *ctx, const char *path, file_map *out);
void file_map_close(file_map *m);
/* Lets the system free the whole pages of [data, data + bytes), if they are in this mapping; false: they are not. Later
 * reads come from the file again. Does nothing to a copy. */
bool file_map_drop(const file_map *m, const void *data, size_t bytes);

/* After begin, write to w.stream; then commit, or abort, which removes the half-written file. Both leave w empty. */
typedef struct file_writer {
    FILE *stream;
    char *path;    /* the target, with links followed */
    char *partial; /* the file that is being written */
    bool nameless; /* it has no name yet */
    bool direct;   /* the target is a device or a pipe: no partial file, no seeking */
} file_writer;

/* Written atomically. If the system can, the file has no name until commit, so that a killed process leaves no file. */
cloob_status file_writer_begin(cloob_ctx *ctx, const char *path, file_writer *w);
/* As begin on systems without nameless files: writes a partial file next to the target. */
cloob_status file_writer_begin_named(cloob_ctx *ctx, const char *path, file_writer *w);
cloob_status file_writer_commit(cloob_ctx *ctx, file_writer *w);
void file_writer_abort(file_writer *w);

/* begin, write, commit. */
cloob_status file_write(cloob_ctx *ctx, const char *path, const void *data, size_t size);
/* Writes what s holds, fails where it ran out of memory, and releases it. */
cloob_status file_write_text(cloob_ctx *ctx, const char *path, sbuf *s);
/* Writes s to folder/name; the caller keeps s. */
cloob_status file_write_in(cloob_ctx *ctx, const char *folder, const char *name, const sbuf *s);
/* The same, readable for the owner alone. */
cloob_status file_write_private(cloob_ctx *ctx, const char *path, const void *data, size_t size);

/* Names the type of a file that clearly contains no tensors, from its first bytes: "a JPEG image", "a text file". NULL:
 * unknown. */
const char *file_kind(const void *first, size_t bytes);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
cloob_status file_make_dirs(cloob_ctx *ctx, const char *path); /* like mkdir -p */

/* "dir/name" in a new string; name alone when it is absolute or dir is empty. NULL when out of memory. */
char *file_join(const char *dir, const char *name);
/* The same in a buffer; fails where it does not fit, as opening the file would. */
enum { FILE_PATH = 4096 };
cloob_status file_in(cloob_ctx *ctx, const char *dir, const char *name, char path[FILE_PATH]);
/* The part of a path after the last slash: "c.jpg" of "a/b/c.jpg". */
const char *file_base(const char *path);
/* The folder part of a path in a new string, "." when it has none. NULL when out of memory. */
char *file_folder(const char *path);

#endif
