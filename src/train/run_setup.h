/* The setup of a training run: opens ranks, device, data, tokenizer, model, step and run folder, and closes them.
 * run_loop.h trains with them and evaluates between epochs. */
#ifndef TRAIN_RUN_SETUP_H
#define TRAIN_RUN_SETUP_H

#include <pthread.h>

#include "cloob/train.h"
#include "core/sbuf.h"
#include "data/load/loader.h"
#include "optim/schedule.h"
#include "train/checkpoint.h"
#include "train/journal.h"
#include "train/memory_budget.h"
#include "train/settings.h"

/* What a run starts from, and the settings chosen for it. */
typedef struct run_start {
    char from[1024];      /* the checkpoint to resume */
    run_settings *stored; /* settings.json of the resumed run; NULL: not resumed, or no such file */
    weights given;        /* given weights, until they are in the step */
    bool has_given;
    cloob_train_options asked; /* the options before auto_options_rest */
    sbuf notes;                /* one line per chosen setting, with the reason */
    size_t notes_before;       /* length of notes before auto_options_rest */
    char model_name[64];       /* of given weights */
    bool chose_small;          /* a small model was chosen, for little data or no GPU */
} run_start;

/* Length of the run, in updates, and its learning rate. */
typedef struct run_plan {
    schedule sched;
    double lr;
    int64_t steps_per_epoch;
    int64_t total_steps; /* the end of the run and of its schedule */
    int64_t stop_at;     /* total_steps, or `max_steps` if that is lower */
} run_plan;

/* The last checkpoint that this run wrote, or the one it resumed. */
typedef struct run_saved {
    char path[1024];
    double when;
    int64_t updates;
} run_saved;

typedef struct run_timing {
    double started;
    double loop, wait, other; /* seconds of the loop; waiting for batches; neither waiting nor computing */
} run_timing;

/* The caller's progress function, while the run replaces it. */
typedef struct run_caller {
    cloob_progress_fn *show;
    void *user;
    pthread_t thread; /* the thread that exchanges with other ranks */
} run_caller;

typedef struct run {
    cloob_train_options options;  /* the caller's, with open settings filled in */
    const cloob_train_options *o; /* = &options */
    run_caller caller;
    comm *c, *gpus; /* ranks in host memory; in GPU memory, NULL: c serves */
    device *dev;
    device_decoder *decoder; /* of images, on the device; NULL: the CPU decodes */
    dataset *train, *val;
    tokenizer *tok;
    char *tok_text; /* merges, as checkpoints store them */
    step_options so;
    memory_need need; /* planned before anything is allocated */
    step *s;
    loader *batches;
    journal *log;
    journal_tee tee;     /* on rank 0: lines of the context to out.log */
    layer_norms *layers; /* NULL: not requested, or not rank 0 */
    run_start start;
    run_plan plan;
    run_position at;
    run_saved saved;
    run_timing time;
    sbuf metrics;       /* the line of results of the epoch that ended; empty: none */
    bool metrics_due;   /* that epoch was evaluated */
    bool stopped_early; /* by `early_stop` */
    int64_t at_chance;  /* consecutive validations no better than guessing */
    cloob_train_summary sum;
} run;

/* Opens everything; after a failure run_close closes what was opened. */
cloob_status run_open(cloob_ctx *ctx, run *r, const cloob_train_options *o);
void run_close(cloob_ctx *ctx, run *r);

/* Parts of run_open that a change of the image size repeats. */
cloob_status run_check_memory(cloob_ctx *ctx, run *r);
cloob_status run_make_step(cloob_ctx *ctx, run *r);
cloob_status run_open_loader(cloob_ctx *ctx, run *r);

/* The share of the first samples that may be unreadable. */
double run_bad_share(const run *r);

/* ---- provenance of the run: provenance.c --------------------------------------------------------- */

/* An object: version and commit, command line, data digests, host, libraries, device. */
void provenance_put(cloob_ctx *ctx, const run *r, json_out *w, const char *key);

/* ---- events for the caller's on_log ---- */

/* Begins {"event": NAME, "step": ..., "epoch": ...}; the caller adds members and calls run_event_end, which calls
 * on_log on rank 0, if it is set, and releases the line. */
json_out run_event_begin(const run *r, const char *name, int64_t epoch);
void run_event_end(const run *r, json_out *event);

/* ---- the image decoder (`image_decoder`), image_decoder.c ---- */

/* Opens the GPU's decoder if it is requested. */
cloob_status run_open_decoder(cloob_ctx *ctx, run *r);
/* Chooses the decoder for a loader with options lo; auto times both. */
cloob_status run_choose_decoder(cloob_ctx *ctx, run *r, loader_options *lo);
/* Device bytes that it may allocate. */
size_t run_decoder_bytes(const run *r);
/* Logs the GPU decoder's name; at the end (done) the number of images that the CPU decoded instead. Logs nothing when
 * the CPU decodes all. */
void run_log_decoder(cloob_ctx *ctx, run *r, bool done);

/* ---- settings that the caller left open, auto_options.c ----
 * Chosen from the data and the machine. Each choice that differs from open_clip's defaults (RN50, 64 pairs, 32 epochs,
 * a warm-up of 10,000 steps) adds a line with the reason to start.notes. */

/* Takes open settings of a resumed run from its settings.json, if there is one. start.from: the checkpoint. */
cloob_status auto_options_resume(cloob_ctx *ctx, run *r);

/* The method, temperature and beta of the given weights. Call after auto_options_resume. */
cloob_status auto_options_objective(cloob_ctx *ctx, run *r);

/* The model, from the given weights, or from the number and size of the images and the device. Call after the data is
 * open. */
cloob_status auto_options_model(cloob_ctx *ctx, run *r);

/* Batch, epochs, warm-up, learning rate, temperature and the start of retrieval. Call when the model is known. */
void auto_options_rest(cloob_ctx *ctx, run *r);

/* Reduces an open batch that does not fit into memory to the largest that does, and chooses again what depends on it.
 * With several ranks it does nothing: they would have to agree. */
cloob_status auto_options_fit(cloob_ctx *ctx, run *r, const memory_case *c);

#endif
