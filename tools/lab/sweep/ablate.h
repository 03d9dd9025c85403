/* The ablation of the paper: the same training with several objectives over several seeds, and tables of what
 * came out.
 *
 *     ablate_options o;
 *     ablate_options_init(&o);
 *     o.train.train_data = "world/train.tsv";
 *     o.train.val_data = "world/val.tsv";
 *     if (run_ablation(ctx, &o, NULL) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Everything is in LOGS/NAME: a run's folder METHOD-seedN for each, whose summary.json says that it is
 * finished; ablation.md and ablation.json with the tables; report.html. Called again after it was stopped it
 * goes on: finished runs are taken as they are, an unfinished one is resumed from its checkpoint. */
#ifndef LAB_SWEEP_ABLATE_H
#define LAB_SWEEP_ABLATE_H

#include "cloob/train.h"
#include "cloob/types.h"

typedef struct ablate_options {
    cloob_train_options train; /* of every run; method and resume are set here, name is that of the ablation,
                                  seed the first */
/* Every setting, with its default and meaning, is a row of these two. No methods: all four. Several jobs share the
 * context's threads; the first that fails stops the others, which save. They are refused with several ranks. Without
 * prompts, the folders' class names stand in one template. */
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "lab/sweep/ablate_options.def"
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "lab/sweep/runs_options.def"
} ablate_options;

/* The four methods, five seeds, alpha 0.05, analysis on. */
void ablate_options_init(ablate_options *o);
/* The rows of the two, then those of cloob_train_option_table; offsets are in ablate_options. */
const cloob_option *ablate_option_table(int64_t *count);

typedef struct ablate_summary {
    char folder[1024];                     /* LOGS/NAME */
    int64_t runs, trained, resumed, found; /* in all; from the start, from a checkpoint, already finished */
    int64_t metrics, significant;          /* rows of the table; those with a winner */
    double seconds;
    int rank; /* of this process; every run takes all ranks, rank 0 reports */
} ablate_summary;

/* summary may be NULL. Refuses to go on with other settings than it began with. CLOOB_ERR_STOPPED when
 * train.should_stop said so: everything is saved. */
cloob_status run_ablation(cloob_ctx *ctx, const ablate_options *o, ablate_summary *summary);

#endif
