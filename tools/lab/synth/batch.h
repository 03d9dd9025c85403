/* Many scenes to encoded images, on all threads. */
#ifndef SYNTH_BATCH_H
#define SYNTH_BATCH_H

#include "lab/synth/synth.h"

typedef struct synth_item {
    synth_scene scene;
    sbuf path;    /* the file to write; empty: none */
    sbuf encoded; /* the file's bytes */
} synth_item;

const char *synth_extension(void); /* "jpg"; "png" in a build without libjpeg */

/* Draws and encodes n items at `size` pixels; writes those that have a path. The same bytes whatever the
 * number of threads. On failure the text is that of the first item that failed. */
cloob_status synth_batch(cloob_ctx *ctx, int64_t size, synth_item *item, int64_t n);
void synth_item_release(synth_item *item);

/* Appends a PNG of rgb (size, size, 3) to out. */
cloob_status synth_encode_png(cloob_ctx *ctx, const uint8_t *rgb, int64_t size, sbuf *out);

#endif
