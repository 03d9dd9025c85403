/* The synthetic image-text world: scenes of eight factors, captions that name some of them, and a test of
 * held-out combinations for every factor. docs/reference/synth.md shows it and lists all values.
 *
 *     synth_options o;
 *     synth_options_init(&o);
 *     o.out = "world"; o.count = 20000;
 *     if (synth_write(ctx, &o, NULL) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Images and captions are a pure function of seed, strength, split and index: the same on any number of
 * threads. */
#ifndef LAB_SYNTH_WRITE_H
#define LAB_SYNTH_WRITE_H

#include <stdio.h>

#include "core/ctx.h"
#include "core/file.h"
#include "lab/synth/synth.h"

typedef enum synth_format { SYNTH_CSV, SYNTH_WEBDATASET } synth_format;

typedef struct synth_options {
    const char *out;   /* the folder; made if it is not there */
    int64_t count;     /* training pairs, 1 to 10,000,000 */
    int64_t val_count; /* validation pairs; negative: a tenth of count, at least 16 */
    int64_t per_class; /* test images of each class; negative: count / 200, within 4 and 100 */
    int64_t size;      /* pixels a side, 16 to 2048 */
    uint64_t seed;
    double strength; /* of the co-occurrences in training data, 0 to 1 */
    synth_format format;
    int64_t shard_samples; /* per tar, for webdataset */
    bool force;            /* write into a folder with other files */
} synth_options;

/* Fills the defaults: 10,000 pairs of 64 pixels, seed 0, strength 0.25, CSV, 1,000 samples a shard. */
void synth_options_init(synth_options *o);

typedef struct synth_result {
    int64_t train, val, test; /* images written */
    int64_t shards;           /* tar files; 0 for CSV */
    int64_t bytes;            /* of all images */
    double seconds;
} synth_result;

/* Writes the data set. A folder with other files is refused unless force is set; an earlier set is replaced. An
 * interrupted set is marked in synth.json, and the next call replaces it. r may be NULL. */
cloob_status synth_write(cloob_ctx *ctx, const synth_options *o, synth_result *r);

/* The defaults for negative numbers. */
int64_t synth_val_count(const synth_options *o);
int64_t synth_per_class(const synth_options *o);

/* ---- texts: each appends to s -------------------------------------------------------------------- */

/* The two lists of ground truth: factors.tsv (filepath, split, a value per factor) and naming.tsv (filepath, split,
 * held_out, and 1 where the caption names the factor). */
typedef enum synth_list { SYNTH_VALUES, SYNTH_NAMING } synth_list;
void synth_put_header(sbuf *s, synth_list list);
void synth_put_row(sbuf *s, synth_list list, const char *file, const char *split, const synth_scene *scene);

/* {"object": "ball", ..., "named": ["object", ...], "held_out": false} */
void synth_put_truth(sbuf *s, const synth_scene *scene);

/* {"object": {"classes": [...], "templates": [...]}, ...} */
void synth_put_prompts(sbuf *s);

/* The description of the set: settings, naming rates, favourites and held-out pairs. */
void synth_put_mark(sbuf *s, const synth_options *o);

/* Closes a stream and sets it to NULL; a write that failed before is an error, too. Safe to call on a closed one. */
cloob_status synth_close(cloob_ctx *ctx, const char *name, FILE **f);

/* A plain tar file, written member by member (ustar; no dates or owners, so the same content is the same bytes). name:
 * up to 99 bytes. A failed write is reported by close, which may be called on a closed file. */
void synth_tar_add(FILE *tar, const char *name, const void *data, size_t bytes);
cloob_status synth_tar_close(cloob_ctx *ctx, FILE **tar);

#define SYNTH_MARK "synth.json" /* the marker of a set: written first as unfinished, and last with its settings */

/* Makes the folder, removes an earlier set in it, and marks it as cloob's. Refuses an out that is a file, cannot be
 * written, or contains other files (unless force). */
cloob_status synth_folder_begin(cloob_ctx *ctx, const char *out, bool force);

/* ---- many scenes to encoded images, on all threads ----------------------------------------------- */

typedef struct synth_item {
    synth_scene scene;
    char name[192];       /* in the set */
    char path[FILE_PATH]; /* the file to write; empty: none */
    sbuf encoded;         /* its bytes, a JPEG */
} synth_item;

/* Draws and encodes n items at `size` pixels; writes those that have a path. The same bytes whatever the
 * number of threads. On failure the text is that of the first item that failed. Release `encoded`. */
cloob_status synth_batch(cloob_ctx *ctx, int64_t size, synth_item *item, int64_t n);

#endif
