/* Choices found by timing (which algorithm for which shape), kept on disk between runs.
 *
 * The file is named after and begins with the device, the libraries' versions and the format; a file with other
 * contents is overwritten. Every line has a checksum: a damaged one is dropped and its choice timed again. Processes
 * that time the same choice at the same time agree on the one that was added first. Place: $CLOOB_TUNE_CACHE (a folder,
 * or "off"), else $XDG_CACHE_HOME/cloob, else $HOME/.cache/cloob. Not being able to read or write it costs time, never
 * an error. */
#ifndef TENSOR_CUDA_TUNE_H
#define TENSOR_CUDA_TUNE_H

#ifdef __cplusplus
extern "C" {
#endif
#include "core/ctx.h"

typedef struct tune_cache tune_cache;

enum { TUNE_KEY = 200, TUNE_VALUE = 96 };

cloob_status tune_open(cloob_ctx *ctx, const char *device, const char *versions, tune_cache **out);
void tune_close(tune_cache *t); /* NULL is fine */

/* key has no white space. Exactly `bytes` (at most TUNE_VALUE) must be stored for a hit. */
bool tune_get(const tune_cache *t, const char *key, void *value, size_t bytes);
/* Stores the choice and appends it to the file at once. If another process has added this key since the file was last
 * read, *value becomes its choice. */
void tune_put(tune_cache *t, const char *key, void *value, size_t bytes);
/* Over the choices that were asked for or made since opening, whatever their order; others of the file do not count. */
uint64_t tune_choices_hash(const tune_cache *t);

#ifdef __cplusplus
}
#endif
#endif
