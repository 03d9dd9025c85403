/* samples.json of a run's folder: what the model says about its validation data; infer/samples.h describes it. */
#ifndef REPORT_SAMPLES_FILE_H
#define REPORT_SAMPLES_FILE_H

#include "core/json.h"

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
double samples_number(const json *object, const char *key); /* NaN: there is none */

#endif
