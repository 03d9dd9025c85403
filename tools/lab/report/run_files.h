/* A run's folder, read: settings, training metrics, validations, analyses. Everything is in the arena. */
#ifndef REPORT_RUN_FILES_H
#define REPORT_RUN_FILES_H

#include "core/json.h"
#include "core/arena.h"
#include "cloob/data.h"
#include "cloob/model.h"
#include "core/ctx.h"

/* Numbers in columns, from the tab-separated files a run leaves behind (metrics.tsv, eigenvalues.tsv,
 * similarities.tsv). */
typedef struct table {
    int64_t columns, rows;
    char **name;     /* (columns), of the header */
    double *value;   /* (rows, columns) */
    int64_t damaged; /* lines left out: too few columns, or not numbers */
} table;

int64_t table_find(const table *t, const char *name); /* the column, or -1 */

static inline double table_at(const table *t, int64_t row, int64_t column)
{
    return t->value[row * t->columns + column];
}

/* What a model says about a data set, with the images: the content of samples.json in a run's folder, which the report
 * shows. Numbers are computed on up to MAX_SAMPLES pairs, evenly spread over the set.
 *
 *   images     [{"src": a data URL, "caption", "never_seen"}]; the others name images by their place here
 *   gallery    [{"image", "says": [{"factor", "label", "truth", "p"}]}] with known factors, else
 *              [{"image", "captions": [{"text", "score", "own"}], "rank"}]
 *   searches   [{"text", "hits": [{"image", "score"}]}]
 *   retrieval  {"image_to_text": {"best": [...], "worst": [...]}, "text_to_image": the same}
 *   neighbors  [{"image", "near": [{"image", "score"}]}]
 *   matrix     {"images": [...], "texts": [...], "cosine": [[...]]}
 *   sets       [{"name", "labels", "n", "top1", "chance", "confusion"}] with known factors, over images never seen */

enum { MAX_SAMPLES = 2000 };

typedef struct samples_options {
    const char *const *search; /* sentences to search for; none: captions of the set */
    int64_t searches;
    const char *world; /* a folder of cloob synth whose validation images d are; NULL: factors are not known */
    const char *checkpoint, *data; /* named in the file */
} samples_options;

/* d: a set with captions; the model has a tokenizer. Appends one JSON object. */
cloob_status samples_json(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, const samples_options *o, sbuf *out);

typedef struct samples_file {
    const json *root;   /* NULL: there is none */
    const json **image; /* (images) */
    int64_t images;
} samples_file;

/* A file that is absent is fine; one that is damaged is logged and counted in *damaged. Everything is in the arena. */
cloob_status samples_file_read(cloob_ctx *ctx, arena *a, const char *dir, samples_file *out, int64_t *damaged);

/* The image that a member names; NULL: none. */
const json *samples_image(const samples_file *f, const json *number);
/* A member that is an array with elements; NULL otherwise. */
const json *samples_list(const json *object, const char *key);

typedef struct run_param {
    const char *key, *value;
} run_param;

typedef struct run_analysis {
    int64_t epoch;
    table eigenvalues;  /* index, x, y */
    table similarities; /* from, to, matched, top10_unmatched, ... counts; 0 rows when there was one modality
                           alone */
} run_analysis;

typedef struct run_files {
    const char *dir, *name, *method;
    run_param *param;
    int64_t params;
    table metrics;       /* step, epoch, loss, ...; rows in order of step, repeated steps of a resumed run once */
    const json **result; /* one object per validation */
    int64_t results;
    run_analysis *analysis; /* in order of epoch */
    int64_t analyses;
    samples_file samples;
    int64_t damaged; /* lines left out of all files */
} run_files;

/* A folder that is absent or holds nothing of a run is an error. What is damaged is left out, counted and
 * logged. */
cloob_status run_files_read(cloob_ctx *ctx, arena *a, const char *dir, run_files *out);

const char *run_param_get(const run_files *r, const char *key); /* "" when absent */
/* The number under a key of the last validation that has it; false: none has. */
bool run_last_result(const run_files *r, const char *key, double *out);

/* Zero-shot results next to a run: zeroshot*.json as `cloob zeroshot --json` writes them, and examples*.json
 * or classify*.json as `cloob classify --json` does. Everything is in the arena. */

typedef struct score_file {
    const char *path, *set; /* set: what the file's name says after "zeroshot-" */
    const char *run;        /* of which run, "" if the file does not name one */
    const json *root;
} score_file;

typedef struct score_files {
    score_file *file;
    int64_t count, room, damaged;
} score_files;

/* Reads what is there in a folder; a folder that is absent holds nothing. run NULL: taken from the file's
 * "checkpoint", or the only run there is. Files that were read before are not read again. */
cloob_status score_files_scan(cloob_ctx *ctx, arena *a, const char *folder, const run_files *run, const run_files *runs,
                              int64_t n, score_files *out);

#endif
