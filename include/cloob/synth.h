/* The synthetic image-text world: scenes of eight factors, captions that name some of them, and a test of
 * held-out combinations for every factor. docs/reference/synth.md shows it and lists all values.
 *
 *     cloob_synth_options o;
 *     cloob_synth_options_init(&o);
 *     o.out = "world"; o.count = 20000;
 *     if (cloob_synth_write(ctx, &o, NULL) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Images and captions are a pure function of seed, strength, split and index: the same on any number of
 * threads. */
#ifndef CLOOB_SYNTH_H
#define CLOOB_SYNTH_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cloob_synth_format { CLOOB_SYNTH_CSV, CLOOB_SYNTH_WEBDATASET } cloob_synth_format;

typedef struct cloob_synth_options {
    const char *out;   /* the folder; made if it is not there */
    int64_t count;     /* training pairs, 1 to 10,000,000 */
    int64_t val_count; /* validation pairs; negative: a tenth of count, at least 16 */
    int64_t per_class; /* test images of each class; negative: count / 200, within 4 and 100 */
    int64_t size;      /* pixels a side, 16 to 2048 */
    uint64_t seed;
    double strength; /* of the co-occurrences in training data, 0 to 1 */
    cloob_synth_format format;
    int64_t shard_samples; /* per tar, for webdataset */
    bool force;            /* write into a folder that holds other files too */
} cloob_synth_options;

/* Fills the defaults: 10,000 pairs of 64 pixels, seed 0, strength 0.25, CSV, 1,000 samples a shard. */
CLOOB_API void cloob_synth_options_init(cloob_synth_options *o);

typedef struct cloob_synth_result {
    int64_t train, val, test; /* images written */
    int64_t shards;           /* tar files; 0 for CSV */
    int64_t bytes;            /* of all images */
    double seconds;
} cloob_synth_result;

/* Writes the data set. A folder with other files is refused unless force is set; an earlier set of ours is
 * replaced, after the new one is complete. On failure the folder is as it was. r may be NULL. */
CLOOB_API cloob_status cloob_synth_write(cloob_ctx *ctx, const cloob_synth_options *o, cloob_synth_result *r);

/* Training pair `index` of the world that o describes (size, seed and strength count). rgb: (size, size, 3),
 * overwritten. caption: at most caption_bytes with the terminator; 256 hold every caption. Either may be
 * NULL. */
CLOOB_API cloob_status cloob_synth_pair(cloob_ctx *ctx, const cloob_synth_options *o, int64_t index, uint8_t *rgb,
                                        char *caption, size_t caption_bytes);

/* A PNG to look at: rows x columns training pairs with their captions; with rows 0, a row per factor with all
 * its values. */
CLOOB_API cloob_status cloob_synth_sheet(cloob_ctx *ctx, const cloob_synth_options *o, int rows, int columns,
                                         const char *path);

#ifdef __cplusplus
}
#endif
#endif
