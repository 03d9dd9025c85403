/* Many runs: a search over settings, or a comparison of settings (an ablation).
 *
 *     static const char *const rates[] = { "1e-3", "5e-4" }, *const methods[] = { "clip", "cloob" };
 *     sweep_axis axis[] = { { "method", methods, 2 }, { "lr", rates, 2 } };
 *     sweep_options o;
 *     sweep_options_init(&o);
 *     o.train.train_data = "world/train.tsv", o.train.val_data = "world/val.tsv";
 *     o.axis = axis, o.axes = 2, o.select = "image_to_text_R@1";
 *     if (run_sweep(ctx, &o, NULL) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * A search trains combinations of options of training with several seeds, chooses by a validation metric that is named
 * in advance, retrains the choice with fresh seeds and evaluates it once on test data. Without `select` nothing is
 * chosen: the settings are compared, and their differences are tested.
 *
 * All files are in LOGS/NAME: a folder per run, whose summary.json is written when it is finished; report.html; of a
 * search results.jsonl with a line per run, and sweep.md with the tables; of a comparison ablation.md and
 * ablation.json. The same call continues an interrupted sweep: finished runs are kept, unfinished ones resume from
 * their checkpoint. */
#ifndef LAB_SWEEP_SWEEP_H
#define LAB_SWEEP_SWEEP_H

#include "core/option.h"
#include "cloob/train.h"
#include "cloob/types.h"

/* One option and the values it takes, as option_set reads them. */
typedef struct sweep_axis {
    const char *name;
    const char *const *value; /* (values) */
    int64_t values;
} sweep_axis;

typedef struct sweep_options {
    cloob_train_options train; /* of every run; name: the sweep's; seed: the first */
    const sweep_axis *axis;
    int64_t axes;
    /* Several processes, such as a scheduler's array: process `part`, 0 to parts - 1, trains every parts-th run. The
     * last one to end, or a call with parts 0, writes the tables. parts 0: a single process. */
    int64_t part, parts;
/* Every other setting, with its default and meaning, is a row of the table. `random` draws without repetition.
 * `select` names a number of summary.json; losses and ranks are better when
 * lower, all else when higher. Without `by` the choice is made for each method where `method` is an axis, else once.
 * Only the final runs see test data, once. */
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "lab/sweep/sweep_options.def"
} sweep_options;

void sweep_options_init(sweep_options *o);
/* Sets the options that compare the four objectives over five seeds, with the analysis of their embeddings. */
void sweep_compare_objectives(sweep_options *o);
/* The rows of sweep_options.def, then those of train_option_table. Offsets are in sweep_options. */
const option_desc *sweep_option_table(int64_t *count);

typedef struct sweep_summary {
    char folder[1024];                     /* LOGS/NAME */
    int64_t settings;                      /* points of the search */
    int64_t runs, trained, resumed, found; /* in all; from the start, from a checkpoint, already finished */
    int64_t metrics, significant;          /* of a comparison: rows of its table; those with a winner */
    int64_t failed;                        /* runs with a loss that is not finite; never chosen */
    bool complete;                         /* false: other parts still run */
    double seconds;
    int rank; /* of this process; every run uses all ranks, rank 0 reports */
} sweep_summary;

/* summary may be NULL. Refuses to continue with other settings than it began with; values and seeds may be added.
 * CLOOB_ERR_STOPPED when train.should_stop returned true: everything is saved. */
cloob_status run_sweep(cloob_ctx *ctx, const sweep_options *o, sweep_summary *summary);

#endif
