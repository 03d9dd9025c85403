/* An index over a plain tar: the offset of every file, so that any of them can be read with one pread.
 *
 * Understands old, ustar, GNU (long names, large sizes) and pax archives. Only regular files are listed.
 * Nothing is ever unpacked to a path that an archive names; members with absolute names or ".." are left
 * out all the same and counted, as are damaged headers and members that end behind the file: the scan continues
 * at the next valid header.
 *
 *     tar_index t;
 *     CLOOB_TRY(tar_open(ctx, files, file, &t));
 *     for (int64_t i = 0; i < t.count; i++) ... tar_name(&t, i), t.member[i].offset, t.member[i].size ...
 *     tar_release(&t);
 */
#ifndef IO_TAR_H
#define IO_TAR_H

#include "core/ctx.h"
#include "core/sbuf.h"
#include "io/fileset.h"

typedef struct tar_member {
    int64_t offset, size; /* of the content */
    int64_t name;         /* where its name begins in `names` */
} tar_member;

typedef struct tar_index {
    tar_member *member;
    int64_t count, capacity;
    sbuf names;      /* zero-terminated, one after the other */
    int64_t skipped; /* damaged, cut off or unsafe members */
} tar_index;

/* Exactly n bytes at offset. */
typedef cloob_status tar_read_fn(void *arg, int64_t offset, void *out, size_t n);

/* Reads the headers of `size` bytes. A file in which no header is found near the beginning is refused; an
 * empty one has no members. */
cloob_status tar_scan(cloob_ctx *ctx, tar_read_fn *read, void *arg, int64_t size, const char *name, tar_index *out);

/* The same for an opened file of a set, through the index cached on disk when there is a sound one, and
 * leaving one there otherwise (if the folder can be written). */
cloob_status tar_open(cloob_ctx *ctx, const fileset *files, int file, tar_index *out);

void tar_release(tar_index *t);
const char *tar_name(const tar_index *t, int64_t i);

/* ---- the cached form, for tar_open and tests ------------------------------------------------------- */

/* False (and an empty index) unless the file at `path` is whole, sound, and made for this source, size and
 * time of change. */
bool tar_cache_load(cloob_ctx *ctx, const char *path, const char *source, int64_t size, int64_t mtime_ns,
                    tar_index *out);
cloob_status tar_cache_save(cloob_ctx *ctx, const char *path, const char *source, int64_t size, int64_t mtime_ns,
                            const tar_index *t);

#endif
