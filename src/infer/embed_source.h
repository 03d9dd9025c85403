/* Where embeddings come from: a data set, a file of tensors, images, a file of texts. Opening says how many
 * rows there may be, running computes them a few hundred at a time and hands them on.
 *
 *     embed_source s;
 *     CLOOB_TRY(embed_source_open(ctx, m, job, &s));
 *     ... room for s.max_rows[i] rows of s.width[i] ...
 *     status = embed_source_run(ctx, &s, put, user, e);
 *     embed_source_close(&s);
 */
#ifndef INFER_EMBED_SOURCE_H
#define INFER_EMBED_SOURCE_H

#include "infer/embed_names.h"
#include "infer/model_file.h"
#include "core/file.h"
#include "io/image/image_list.h"
#include "io/safetensors.h"

/* In the order of a file: the widest elements first, as the format has no padding and readers map it. */
typedef enum embed_part {
    EMBED_LABEL,
    EMBED_ROW,   /* which sample of the data set */
    EMBED_OWNER, /* of a text: which row of the images it belongs to */
    EMBED_IMAGE,
    EMBED_TEXT,
    EMBED_PARTS
} embed_part;

typedef struct embed_source {
    model *m;
    cloob_embed_job job;
    int64_t max_rows[EMBED_PARTS]; /* rows that may come; 0: none of this part */
    int64_t width[EMBED_PARTS];    /* 0 for whole numbers, and without the part */
    st_file tensors;
    const st_entry *images, *tokens; /* in tensors; NULL: not there */
    sample_names names;              /* of the data set */
    image_list files;
    file_bytes text; /* of the file of texts, cut into lines */
    const char **line;
    float *rows; /* room for one batch of images or texts */
    bool *bad;
} embed_source;

/* rows: n floats or int64_t times the part's width, which the receiver may change. */
typedef cloob_status embed_put(cloob_ctx *ctx, void *user, embed_part part, void *rows, int64_t n);

/* Everything that can be wrong with a job is found out here, but for images that cannot be read. */
cloob_status embed_source_open(cloob_ctx *ctx, cloob_model *m, const cloob_embed_job *job, embed_source *s);
/* Counts, widths, names and classes go into e as well. */
cloob_status embed_source_run(cloob_ctx *ctx, embed_source *s, embed_put *put, void *user, cloob_embedded *e);
void embed_source_close(embed_source *s);

/* Open, run, close: rows are added to e, which has none of that kind. */
cloob_status embed_to_memory(cloob_ctx *ctx, cloob_model *m, const cloob_embed_job *job, cloob_embedded *e);

#endif
