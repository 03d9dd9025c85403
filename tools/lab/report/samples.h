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
#ifndef LAB_REPORT_SAMPLES_H
#define LAB_REPORT_SAMPLES_H

#include "core/json.h"
#include "data/sets/dataset.h"
#include "eval/zeroshot.h"
#include "infer/model_file.h"
#include "lab/synth/world_truth.h"

enum { MAX_SAMPLES = 2000 };

typedef struct samples_options {
    const char *const *search; /* sentences to search for; none: captions of the set */
    int64_t searches;
    const char *world; /* a folder of cloob synth whose validation images d are; NULL: factors are not known */
    const char *checkpoint, *data; /* named in the file */
} samples_options;

/* d: a set with captions; the model has a tokenizer. Appends one JSON object. */
cloob_status samples_json(cloob_ctx *ctx, model *m, const dataset *d, const samples_options *o, sbuf *out);

/* ---- for the files that make the members ----------------------------------------------------------- */

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
