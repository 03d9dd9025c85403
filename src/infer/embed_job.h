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

#include "infer/model_file.h"
#include "core/file.h"
#include "io/image/image_list.h"
#include "io/safetensors.h"
#include "data/sets/dataset.h"

/* What the samples of a data set are called and say, read before their images: so that every row of a file of
 * embeddings can be traced to its image and caption. */

/* Names and captions stand in the header of a file, which the format limits to 100 MB. */
enum { SAMPLE_NAMES_LIMIT = 64 << 20 };

typedef struct sample_names {
    int64_t samples;
    char **name;    /* (samples); NULL: left out, because all together are longer than the limit */
    char **caption; /* (first[samples]); NULL as well, or without captions */
    int64_t *first; /* (samples + 1) sample i has captions first[i] to first[i + 1] - 1 */
} sample_names;

/* Frees n strings and their list, which may be NULL. */
void free_list(char **list, int64_t n);

typedef struct embed_result {
    int64_t rows; /* of image and label, or of text where there are texts alone */
    int64_t text_rows;
    int64_t bad; /* inputs left out because they cannot be read */
    int64_t image_width, text_width;
    float *image, *text; /* NULL: none */
    int64_t *label;      /* (rows); NULL: no classes */
    int64_t *row; /* (rows) which sample of the data set; gaps where images could not be read. NULL: no data set */
    int64_t *text_image; /* (text_rows) which row of image a text belongs to; NULL: row i has text i */
    char **name;         /* (rows) of the images; NULL: unknown */
    char **caption;      /* (text_rows); NULL: unknown, or too long all together (64 MiB) */
    char **class_name;   /* (classes) */
    int64_t classes;
} embed_result;

void embed_result_release(embed_result *e);

/* A data set in its order: images, captions where there are any and the model has a tokenizer, labels where
 * there are classes. workers: threads that decode.
 *
 * Here and in the next, *e is zero-initialised before the first call; each fills what it names, and
 * refuses to replace what another has filled. On failure e keeps what it had. */
cloob_status embed_dataset(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, cloob_output what, int workers,
                           embed_result *e);
/* Files and folders; fills image and name. A file that was named must be readable, those in folders are left
 * out and counted. */
cloob_status embed_image_files(cloob_ctx *ctx, cloob_model *m, const char *const *path, int64_t n, cloob_output what,
                               embed_result *e);

/* Everything of the above in one go, into a file instead of memory. */
typedef struct embed_job {
    cloob_output what;
    const cloob_dataset *data; /* the four sources as above; NULL or 0: not this one */
    bool all_captions;         /* of the data set: every caption of an image, and text_image says whose it is */
    const char *tensors;
    const char *const *images; /* (images_count) files and folders */
    int64_t images_count;
    const char *texts;
    cloob_eval_options eval;
} embed_job;

void embed_job_init(embed_job *job); /* unit rows, no source */

/* Writes `image`, `text`, `label`, `row`, `text_image` and, in the metadata, `names`, `captions` and `classes` as JSON
 * lists; or, when the path ends in .npy, the one matrix there is, and PATH.txt with a name per row. Rows go to the file
 * as they come, so that memory does not grow with their number. Its space is taken at the beginning; it is written
 * atomically, so that a kill leaves nothing under its name. *e is overwritten with counts, widths, names, captions and
 * classes; all else stays NULL. */
cloob_status embed_to_file(cloob_ctx *ctx, cloob_model *m, const embed_job *job, const char *path, embed_result *e);

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
    embed_job job;
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
cloob_status embed_source_open(cloob_ctx *ctx, cloob_model *m, const embed_job *job, embed_source *s);
/* Counts, widths, names and classes go into e as well. */
cloob_status embed_source_run(cloob_ctx *ctx, embed_source *s, embed_put *put, void *user, embed_result *e);
void embed_source_close(embed_source *s);

/* Open, run, close: rows are added to e, which has none of that kind. */
cloob_status embed_to_memory(cloob_ctx *ctx, cloob_model *m, const embed_job *job, embed_result *e);

#endif
