/* What the files of samples share. */
#ifndef INFER_SAMPLES_IMPL_H
#define INFER_SAMPLES_IMPL_H

#include "core/json.h"
#include "eval/zeroshot.h"
#include "lab/report/samples.h"
#include "lab/synth/world_truth.h"

enum { SAMPLES_CLASSES = 64 /* of one factor */, SAMPLES_DIGITS = 4 /* of cosines and probabilities */ };

typedef struct samples {
    cloob_ctx *ctx;
    model *m;
    const dataset *d;
    const samples_options *o;
    int64_t n, D;
    float *image, *text; /* (n, D) unit rows */
    float *cosine;       /* (n, n): image i, text j */
    int64_t *index;      /* (n) which sample of the set */
    char **caption;      /* (n) */
    int64_t *number;     /* (n) place among the images of the file, -1: not there */
    int64_t images;
    json_out thumbs, out; /* the list of images, and the object that it becomes the last member of */
    world_truth truth;    /* F 0: none */
    zeroshot z[WORLD_FACTORS];
} samples;

/* The image's place in the file; writes its thumbnail on first use. */
int64_t samples_use(samples *s, int64_t row);

typedef struct samples_hit {
    int64_t row;
    float score;
} samples_hit;

/* The k largest of score (n), best first, `without` (a row, or -1) left out. Returns how many. */
int64_t samples_top(const float *score, int64_t n, int64_t stride, int64_t without, samples_hit *hit, int64_t k);

/* Each appends a member of the object. */
void samples_gallery(samples *s);
void samples_retrieval(samples *s);
void samples_sets(samples *s);

#endif
