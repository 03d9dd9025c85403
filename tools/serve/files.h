/* Image files below an index's folder, and their thumbnails. Neither .. nor links lead out of the folder, and only
 * images are opened. */
#ifndef SERVE_FILES_H
#define SERVE_FILES_H

#include "serve/state.h"

/* The entry whose path below the folder this is; -1: none. */
int64_t entry_find(const cloob_search *s, const char *path);

/* Of two real paths: whether the first is the folder or below it. */
bool path_is_below(const char *path, const char *folder);

/* Opens an entry's file, which must be a plain file below x->root after all links, and begin as an image does. -1: not
 * possible. */
int entry_open(const served_index *x, const cloob_search *s, const char *path, int64_t *bytes);

/* The first `bytes` of a file, or as many as there are, in memory; false: not possible. A mapping would end the server
 * when the file is shortened. */
typedef struct file_view {
    void *data;
    size_t bytes;
} file_view;
bool file_view_open(int fd, int64_t bytes, file_view *out);
void file_view_close(file_view *v);

/* ---- thumbnails, made once and cached in memory up to 64 MiB --------------------------------------- */

typedef struct thumb_cache thumb_cache;

/* Images are decoded within the budget. NULL when memory is out. */
thumb_cache *thumb_cache_create(budget *memory);
void thumb_cache_destroy(thumb_cache *c);

/* A JPEG of at most size x size pixels of the file behind fd, upright; cached under `key` (path, time and size). The
 * caller frees *data. CLOOB_ERR_BUSY when other requests hold the memory for too long. */
cloob_status thumb_get(cloob_ctx *ctx, thumb_cache *c, const char *key, int fd, int64_t file_bytes, int64_t size,
                       int64_t max_pixels, char **data, size_t *bytes);

#endif
