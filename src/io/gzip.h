/* Streams that may be gzip: plain bytes pass through, gzip (several members too) is unpacked on the way.
 *
 * Memory is bounded whatever the stream's length. A stream that unpacks to more than GZIP_RATIO times its size is a
 * bomb, not data, and is refused once it has given GZIP_GRACE bytes. A stream that ends early or is damaged is refused
 * with one line that names it. */
#ifndef IO_GZIP_H
#define IO_GZIP_H

#include <stdio.h>

#include "core/ctx.h"
#include "core/file.h"
#include "core/sbuf.h"

enum { GZIP_RATIO = 300, GZIP_GRACE = 64 << 20 }; /* captions reach 30; zeros 1030 */

/* Takes the next bytes; a status other than CLOOB_OK ends the copy and is passed on. */
typedef cloob_status gzip_sink(void *arg, const void *bytes, size_t n);

/* Copies `in` to the sink. name is for messages. */
cloob_status gzip_copy(cloob_ctx *ctx, FILE *in, const char *name, gzip_sink *sink, void *arg);

/* Bytes in memory: whether they are gzip, and what they unpack to, at most `limit` bytes, appended to out. */
bool gzip_is(const void *bytes, size_t size);
cloob_status gzip_expand(cloob_ctx *ctx, const void *bytes, size_t size, size_t limit, const char *name, sbuf *out);

/* Whether a regular file begins with gzip's two bytes. False when it cannot be read, and for pipes, whose bytes come
 * once. */
bool gzip_is_file(const char *path);

#endif
