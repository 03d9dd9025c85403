/* The part of zip that torch files use: stored (uncompressed) members, found by name, read from memory; and a writer of
 * such files.
 *
 * Torch stores its members uncompressed so that they can be mapped; a compressed member may be present
 * (TorchScript's code is) but cannot be read, so a zip bomb has nothing to expand. Every claim of the
 * directory is checked against the file: members are inside it and do not overlap. */
#ifndef IO_TORCH_ZIP_H
#define IO_TORCH_ZIP_H

#include "core/arena.h"
#include "core/file.h"
#include "core/sbuf.h"

typedef struct zip_member {
    const char *name;
    const unsigned char *data; /* NULL when compressed or encrypted */
    uint64_t size;
} zip_member;

typedef struct zip_reader {
    zip_member *member; /* sorted by name */
    int64_t count;
} zip_reader;

/* True when the bytes begin as a zip file does. */
bool zip_looks_like(const unsigned char *data, size_t size);

/* Reads the directory; names go into the arena, data point into the bytes. name is for messages. */
cloob_status zip_open_bytes(cloob_ctx *ctx, arena *a, const unsigned char *data, size_t size, const char *name,
                            zip_reader *z);
const zip_member *zip_find(const zip_reader *z, const char *name); /* NULL when absent */

/* Writing: begin with a file_writer's stream, add members, end. Data of each member is aligned to 64 bytes.
 */
typedef struct zip_writer {
    FILE *stream;
    uint64_t at; /* bytes written */
    sbuf directory;
    int64_t count;
} zip_writer;

void zip_writer_begin(zip_writer *w, FILE *stream);
/* A member may have less than 4 GiB; the whole file may have more. Stream errors are seen by the commit. */
cloob_status zip_writer_add(cloob_ctx *ctx, zip_writer *w, const char *name, const void *data, size_t size);
cloob_status zip_writer_end(cloob_ctx *ctx, zip_writer *w);
void zip_writer_release(zip_writer *w);

#endif
