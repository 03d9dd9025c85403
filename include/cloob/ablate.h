/* The ablation of the paper: the same training with several objectives over several seeds, and tables of what
 * came out.
 *
 *     cloob_ablate_options o;
 *     cloob_ablate_options_init(&o);
 *     o.train.train_data = "world/train.tsv";
 *     o.train.val_data = "world/val.tsv";
 *     if (cloob_ablate(ctx, &o, NULL) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Everything is in LOGS/NAME: a run's folder METHOD-seedN for each, whose summary.json says that it is
 * finished; ablation.md and ablation.json with the tables; report.html. Called again after it was stopped it
 * goes on: finished runs are taken as they are, an unfinished one is resumed from its checkpoint. */
#ifndef CLOOB_ABLATE_H
#define CLOOB_ABLATE_H

#include "cloob/train.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_ablate_options {
    cloob_train_options train; /* of every run; method and resume are set here, name is that of the ablation,
                                  seed the first */
    const char *const *method; /* (methods) "clip", "infoloob", "infonce-hopfield", "cloob" */
    int64_t methods;
    int64_t seeds;
    int64_t jobs; /* runs side by side, 1 to 64, which share the context's threads; 1. A GPU that one small model
                     leaves idle is filled by several. The first that fails stops the others, which save. Refused
                     with several ranks */
    double alpha; /* a difference is significant below it; 0.05 as in the paper */
    /* Class folders for zero-shot, each with the set of the prompts named like the folder; may be none. */
    const char *const *zeroshot;
    int64_t zeroshots;
    const char *prompts; /* P.json; NULL: the folders' class names in one template */
} cloob_ablate_options;

/* The four methods, five seeds, alpha 0.05, analysis on. */
CLOOB_API void cloob_ablate_options_init(cloob_ablate_options *o);

typedef struct cloob_ablate_summary {
    char folder[1024];                     /* LOGS/NAME */
    int64_t runs, trained, resumed, found; /* in all; from the start, from a checkpoint, already finished */
    int64_t metrics, significant;          /* rows of the table; those with a winner */
    double seconds;
} cloob_ablate_summary;

/* summary may be NULL. Refuses to go on with other settings than it began with. CLOOB_ERR_STOPPED when
 * train.should_stop said so: everything is saved. */
CLOOB_API cloob_status cloob_ablate(cloob_ctx *ctx, const cloob_ablate_options *o, cloob_ablate_summary *summary);

#ifdef __cplusplus
}
#endif
#endif
