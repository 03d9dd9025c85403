/* A run: data, tokenizer, step and folder brought together, and the loop over epochs. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <pthread.h>

#include "train/settings.h"
#include "cloob/train.h"
#include "core/sbuf.h"
#include "data/load/loader.h"
#include "model/encoder.h"
#include "optim/schedule.h"
#include "train/checkpoint.h"
#include "train/journal.h"
#include "train/memory_budget.h"

typedef struct run {
    cloob_train_options options;  /* the caller's, with what they leave open filled in */
    const cloob_train_options *o; /* those */
    cloob_progress_fn *show;      /* the context's sink of progress, while the run has its own */
    void *show_user;
    pthread_t thread; /* that exchanges with other ranks */
    comm *c, *gpus;   /* ranks, in host memory; the same in GPU memory, NULL where c serves */
    device *dev;
    device_decoder *decoder; /* of images, on the device; NULL: the CPU decodes */
    dataset *train, *val;
    tokenizer *tok;
    char *tok_text; /* merges, as checkpoints store them */
    step_options so;
    step *s;
    loader *batches;
    journal *log;
    schedule sched;
    double lr;
    run_settings *stored;      /* of the run that goes on; NULL: none, or unknown */
    sbuf notes;                /* what was chosen and why, a line each */
    char model_name[64];       /* of given weights */
    bool chose_small;          /* a model for little data or no GPU */
    cloob_train_options asked; /* the options before the rest was chosen, and */
    size_t notes_before;       /* the length of the notes then */
    int64_t at_chance;         /* validations on end that were no better than guessing */
    weights given;             /* what the run begins with, while it is being opened */
    bool has_given;
    params_draft *draft; /* what it begins with where nothing is given: drawn while the step is made */
    char from[1024];     /* the checkpoint it goes on from */
    run_position at;
    int64_t steps_per_epoch, first_update;
    int64_t total_steps; /* the end of the run and of its schedule, in updates */
    int64_t stop_at;     /* that, or `max_steps` before it */
    double started, last_saved;
    double loop_seconds, wait_seconds,
        other_seconds; /* of the loop; of it until batches were there; neither that nor compute */
    int64_t last_saved_update;
    memory_need need;  /* planned before anything was taken */
    char latest[1024]; /* the last checkpoint written, or the one that this run was resumed from */
    cloob_train_summary sum;
} run;

/* Checks flags against each other and fills what depends on the model. Nothing is written. */
cloob_status run_check_options(cloob_ctx *ctx, const cloob_train_options *o);

/* `report_loss` against a method that is known. */
cloob_status run_check_report_loss(cloob_ctx *ctx, const cloob_train_options *o);

/* "90s", "30m", "2h" in seconds, "500steps" in steps; 0 when it is none of these. */
double run_save_interval(const char *text, bool *steps);

/* "r=8" or "r=8,alpha=16": the rank, and alpha / r, which is 1 without alpha; false: it is neither. */
bool run_lora(const char *text, int64_t *rank, double *scale);

/* "112,160@11,224@25": 112 px from epoch 1 on, 160 from epoch 11 on. */
enum { IMAGE_STAGES = 32 };
typedef struct image_stage {
    int64_t size, epoch; /* from this epoch on, counted from 0 */
} image_stage;
/* How many stages; 0: it is not such a list. */
int run_image_stages(const char *text, image_stage stage[IMAGE_STAGES]);
/* The image size of an epoch, of the epochs' largest; 0 without a schedule. */
int64_t run_image_size(const cloob_train_options *o, int64_t epoch);
int64_t run_largest_image(const cloob_train_options *o);
/* Refuses a schedule with a size that the model cannot have. */
cloob_status run_check_stages(cloob_ctx *ctx, const run *r);
/* Makes the step and the loader for the image size of the epoch that begins, where that is another than before: the
 * state of the run goes over, positional embeddings and their state resampled. */
cloob_status run_enter_stage(cloob_ctx *ctx, run *r);

/* Parts of run_open that a change of the image size repeats. */
cloob_status run_check_memory(cloob_ctx *ctx, run *r);
cloob_status run_make_step(cloob_ctx *ctx, run *r);
cloob_status run_open_loader(cloob_ctx *ctx, run *r);

/* Of the first samples, how many may be unreadable. */
double run_bad_share(const run *r);
/* Unreadable samples that the loader met, into r->sum; collective. */
cloob_status run_count_bad(cloob_ctx *ctx, run *r);

/* What decodes images (`image_decoder`): opens the GPU's decoder where it is asked for; chooses (auto: both are timed)
 * before the loader is made with lo; and the device bytes that it may take. */
cloob_status run_open_decoder(cloob_ctx *ctx, run *r);
cloob_status run_choose_decoder(cloob_ctx *ctx, run *r, loader_options *lo);
size_t run_decoder_bytes(const run *r);
/* Says in the log who decodes; done: how many images it left to the CPU. Nothing where the CPU decodes all. */
void run_tell_decoder(cloob_ctx *ctx, run *r, bool done);

/* Opens everything; on failure what was opened is closed by run_close. */
cloob_status run_open(cloob_ctx *ctx, run *r, const cloob_train_options *o);
void run_close(cloob_ctx *ctx, run *r);

/* Trains until the epochs, the steps or the caller end it. */
cloob_status run_loop(cloob_ctx *ctx, run *r);
/* No step is left in the last epoch, yet it was never closed: its checkpoint was written with another batch. */
bool run_ends_unfinished(const run *r);

/* What the end of an epoch owes: which parts of its evaluation are due. */
epoch_debt run_debt(run *r, int64_t epoch);
/* Pays r->at.owed: loss and retrieval on the validation pairs, zero-shot on class folders. Writes results.jsonl and the
 * log. */
cloob_status run_validate(cloob_ctx *ctx, run *r);
/* The same for a debt out of a checkpoint, unless results.jsonl shows that it was paid before the run ended. */
cloob_status run_settle_debt(cloob_ctx *ctx, run *r);

/* Rows it embeds at a time; 0: this run never validates. */
int64_t run_eval_batch(const run *r);

/* The zero-shot part of it: its members of a line of results. */
bool run_has_zeroshot(const run *r);
/* What would be wrong with it after an epoch is said before the first. */
cloob_status run_check_zeroshot(cloob_ctx *ctx, const run *r);
cloob_status run_zeroshot(cloob_ctx *ctx, run *r, encoder *e, int64_t epoch, json_out *line);

/* What a checkpoint of the run says besides its state; points into r. */
checkpoint_meta run_meta(const run *r);
/* Writes a checkpoint and moves `latest` to it. */
cloob_status run_save(cloob_ctx *ctx, run *r, const char *name);

/* Settings that the caller left open, chosen from the data and the machine. What is chosen differently from open_clip's
 * defaults (RN50, 64 pairs, 32 epochs, a warm-up of 10,000 steps) gets a line in r->notes that says why. */

/* Where a run is resumed, what is open comes from its params.txt, if there is one. r->from: the checkpoint. */
cloob_status auto_options_resume(cloob_ctx *ctx, run *r);

/* The method, and with it the temperature and beta, of the weights that the run begins with. Call after
 * auto_options_resume. */
cloob_status auto_options_objective(cloob_ctx *ctx, run *r);

/* The model, from r->given, or from the number and size of the images and the device. Call after the data is open. */
cloob_status auto_options_model(cloob_ctx *ctx, run *r);

/* Batch, epochs, warm-up, learning rate, temperature and the onset of retrieval. Call when the model is known. */
void auto_options_rest(cloob_ctx *ctx, run *r);

/* A batch that was left open and does not fit into memory becomes the largest that does; what depends on it is chosen
 * anew. One rank alone: several would have to agree. */
cloob_status auto_options_fit(cloob_ctx *ctx, run *r, const memory_case *c);

#endif
