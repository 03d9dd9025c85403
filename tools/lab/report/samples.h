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
#ifndef INFER_SAMPLES_H
#define INFER_SAMPLES_H

#include "core/sbuf.h"
#include "data/sets/dataset.h"
#include "infer/model_file.h"

enum { MAX_SAMPLES = 2000 };

typedef struct samples_options {
    const char *const *search; /* sentences to search for; none: captions of the set */
    int64_t searches;
    const char *world; /* a folder of cloob synth whose validation images d are; NULL: factors are not known */
    const char *checkpoint, *data; /* named in the file */
} samples_options;

/* d: a set with captions; the model has a tokenizer. Appends one JSON object. */
cloob_status samples_json(cloob_ctx *ctx, model *m, const dataset *d, const samples_options *o, sbuf *out);

#endif
