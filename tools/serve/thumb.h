/* Thumbnails, made once and cached in memory up to 64 MiB. */
#ifndef SERVE_THUMB_H
#define SERVE_THUMB_H

#include "serve/http.h"

typedef struct thumb_cache thumb_cache;

/* Images are decoded within the budget. NULL when memory is out. */
thumb_cache *thumb_cache_create(budget *memory);
void thumb_cache_destroy(thumb_cache *c);

/* A JPEG of at most size x size pixels of the file behind fd, upright; kept under `key` (path, time and size). The
 * caller frees *data. CLOOB_ERR_BUSY when other requests hold the memory for too long. */
cloob_status thumb_get(cloob_ctx *ctx, thumb_cache *c, const char *key, int fd, int64_t file_bytes, int64_t size,
                       int64_t max_pixels, char **data, size_t *bytes);

#endif
