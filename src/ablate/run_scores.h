/* What a trained run scores on class folders and on pairs, as members of a JSON object. */
#ifndef ABLATE_RUN_SCORES_H
#define ABLATE_RUN_SCORES_H

#include "ablate/runs.h"
#include "cloob/model.h"

/* Ends the object of `out` and writes it where all went well so far; releases it in any case. */
cloob_status run_write_object(cloob_ctx *ctx, cloob_status so_far, cloob_json_out *out, const char *path);

/* What a data set is called: "world/classes/object/" -> "object". */
void run_set_name(const char *path, char out[128]);

/* The run's last checkpoint, for inference on the device it was trained on. */
cloob_status run_open_model(cloob_ctx *ctx, const cloob_ablate_options *o, const ablate_run *r, cloob_model **m);

/* zeroshot/SET for each folder and, of several, zeroshot/average. Leaves PREFIXzeroshot-SET.json in the run's folder,
 * where the report finds it. */
cloob_status run_put_zeroshots(cloob_ctx *ctx, const cloob_ablate_options *o, const ablate_run *r, cloob_model *m,
                               const char *prefix, cloob_json_out *out);

/* Evaluates the run on r->test and leaves test.json: zero-shot accuracies; retrieval both ways, by all captions of an
 * image; Ajne's statistic, effective eigenvalues and similarities. A run that has the file is left alone. */
cloob_status run_test_once(cloob_ctx *ctx, const cloob_ablate_options *o, const ablate_run *r);

#endif
