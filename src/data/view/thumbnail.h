/* Small JPEGs of images, upright. */
#ifndef DATA_VIEW_THUMBNAIL_H
#define DATA_VIEW_THUMBNAIL_H

#include "core/sbuf.h"
#include "io/image/image.h"

/* A JPEG of at most size x size pixels, never larger than the image, turned as its EXIF orientation says. Appended to
 * out. limits may be NULL. CLOOB_ERR_UNSUPPORTED in a build without libjpeg. */
cloob_status thumbnail_make(cloob_ctx *ctx, const void *bytes, size_t count, const char *name,
                            const image_limits *limits, int64_t size, sbuf *out);

#endif
