/* Embeddings of a data set, a file of tensors, image files or a file of texts, written to a file or to memory.
 *
 *     embed_job job;
 *     embed_result e;
 *     embed_job_init(&job);
 *     job.data = set;
 *     CLOOB_TRY(embed_to_file(ctx, m, &job, "E.safetensors", &e));
 *     embed_result_release(&e);
 */
#ifndef INFER_EMBED_JOB_H
#define INFER_EMBED_JOB_H

#include "core/arena.h"
#include "data/sets/dataset.h"
#include "infer/model_file.h"

typedef struct embed_result {
    int64_t rows; /* of image and label */
    int64_t text_rows;
    int64_t bad;                     /* unreadable inputs, left out */
    int64_t image_width, text_width; /* 0: none */
    float *image, *text;             /* (rows, image_width), (text_rows, text_width); NULL: none */
    int64_t *label;                  /* (rows); NULL: no classes */
    int64_t *row;            /* (rows) sample of the data set; gaps where images are unreadable. NULL: no data set */
    int64_t *text_image;     /* (text_rows) the image row of each text; NULL: row i has text i */
    const char **name;       /* (rows) of the images; NULL: unknown */
    const char **caption;    /* (text_rows); NULL: unknown, or names and captions exceed 64 MiB */
    const char **class_name; /* (classes) */
    int64_t classes;
    arena strings; /* owns names, captions and class names */
} embed_result;

void embed_result_release(embed_result *e);

/* Each source that is not NULL or 0 is embedded. Two sources of images, or two of texts, are refused. */
typedef struct embed_job {
    cloob_output what;
    /* In the order of the set: images, captions if there are any and the model has a tokenizer, labels if there are
     * classes. */
    const cloob_dataset *data;
    bool all_captions;   /* of the data set: every caption of an image, with text_image; false: the first */
    const char *tensors; /* safetensors with images F32 (N, 3, S, S), or tokens I32 or I64 (N, context), or both */
    const char *const *images; /* (images_count) files, folders, glob patterns; unreadable ones are left out */
    int64_t images_count;
    const char *texts;       /* one text per line */
    cloob_eval_options eval; /* decoding threads, Hopfield retrieval */
} embed_job;

void embed_job_init(embed_job *job); /* unit rows, no source */

/* Overwrites *e, which the caller releases; on failure it is empty. */
cloob_status embed_to_memory(cloob_ctx *ctx, cloob_model *m, const embed_job *job, embed_result *e);

/* Writes `image`, `text`, `label`, `row`, `text_image` and, in the metadata, `names`, `captions` and `classes` as JSON
 * lists; or, if path ends in .npy, its only matrix, and PATH.txt with a name per row. Rows are written as they
 * are computed, so memory does not grow with their number; the file is written atomically. *e gets counts, widths,
 * names, captions and classes; its matrices stay NULL. */
cloob_status embed_to_file(cloob_ctx *ctx, cloob_model *m, const embed_job *job, const char *path, embed_result *e);

/* embed_to_memory of one data set. */
cloob_status embed_dataset(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, cloob_output what, int workers,
                           embed_result *e);

#endif
