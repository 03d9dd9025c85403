/* Trains a model in one call: data, schedules, checkpoints, evaluation and resuming.
 *
 *     cloob_train_options o;
 *     cloob_train_summary summary;
 *     cloob_train_options_init(&o);
 *     o.train_data = "pairs.tsv";
 *     o.model = "tiny";
 *     if (cloob_train(ctx, &o, &summary) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Settings have the names and defaults of open_clip and of the paper authors' code; `cloob help train --all` explains
 * each. Strings are read during the call only. */
#ifndef CLOOB_TRAIN_H
#define CLOOB_TRAIN_H

#include "cloob/data.h"
#include "cloob/options.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One evaluation of a custom loss, which replaces the loss of `method`: a function of the embeddings, with gradients.
 * With several ranks, every rank calls it with the rows of all ranks and must compute the same result; each rank then
 * uses the gradients of its own rows. */
typedef struct cloob_loss_call {
    size_t size;        /* of this struct */
    int64_t step;       /* number of completed updates */
    int64_t n, d;       /* pairs over all ranks and micro-batches; width of the embeddings */
    const float *x, *y; /* (n, d) unit rows in host memory: images, texts; row i of both is a pair */
    double inv_tau;     /* current inverse temperature */
    /* Written by the function. dx and dy are zero before the call, and NULL in validation, which needs only the loss.
     * dinv_tau, the derivative of the loss by inv_tau, is used with `learnable_inv_tau`. */
    float *dx, *dy; /* (n, d): gradients of the loss */
    double loss, dinv_tau;
} cloob_loss_call;

/* A finished step. on_step is called on every rank; the numbers are over all ranks. */
typedef struct cloob_train_step {
    size_t size;
    int64_t step, steps; /* completed updates; updates of the whole run */
    int64_t epoch;       /* counted from 1 */
    double loss, image_term, text_term, grad_norm, lr, inv_tau;
    bool skipped; /* loss or gradient not finite: no update */
} cloob_train_step;

/* A finished epoch, after its checkpoint and its evaluation. */
typedef struct cloob_train_epoch {
    size_t size;
    int64_t epoch, epochs, step;
    double loss;            /* of the last step */
    const char *checkpoint; /* path of the latest checkpoint; "": none yet */
    const char *metrics;    /* JSON object as in results.jsonl; NULL: no evaluation, or not rank 0 */
} cloob_train_epoch;

/* Every setting, with its default and meaning, is a row of train_options.def. A NULL string means the default. */
typedef struct cloob_train_options {
    size_t size; /* of this struct; set by cloob_train_options_init */
    /* Called between steps. If it returns true, the run is saved and the call returns CLOOB_ERR_STOPPED. */
    bool (*should_stop)(void *user);
    void *stop_user;
    /* Callbacks; each may be NULL and is called in the thread that called cloob_train. If `loss` returns false, the run
     * ends with CLOOB_ERR_ARGUMENT. `loss` cannot be combined with `method` siglip (its bias is learned), a `memory`
     * other than batch, or `learnable_scale_hopfield`; otherwise `method` is only recorded. */
    bool (*loss)(void *user, cloob_loss_call *call);
    void *loss_user;
    void (*on_step)(void *user, const cloob_train_step *step);
    void *step_user;
    void (*on_epoch)(void *user, const cloob_train_epoch *epoch);
    void *epoch_user;
    /* Receives one JSON object for the start of the run, each logged step, each evaluation and the end; the member
     * "event" names which. Rank 0 only. `cloob train --log-to` writes the same objects. */
    void (*on_log)(void *user, const char *json);
    void *log_user;
    CLOOB_OPTIONS_INSIDE(cloob_data_options, data, 1024); /* how the sources are read */
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/train_options.def"
} cloob_train_options;

CLOOB_OPTIONS_INIT(cloob_train_options)

/* Sets one setting of train_options.def or data_options.def by name, from the text that its flag accepts:
 * ("batch-size", "128"), ("lock_image", "True"). A string value is stored as a pointer and must outlive its use.
 * "preset" sets the values of a preset; set it first. `aug_cfg` is a list: assign the member directly. Fails with
 * CLOOB_ERR_ARGUMENT if the name is unknown or the value is invalid. */
CLOOB_API cloob_status cloob_train_options_set(cloob_ctx *ctx, cloob_train_options *o, const char *name,
                                               const char *value);

typedef struct cloob_train_summary {
    char run_dir[1024], checkpoint[1024]; /* checkpoint: the latest */
    int64_t steps, epochs, skipped_steps, bad_samples;
    double loss, seconds, pairs_per_s, wait_share;
    double other_share; /* share of the time spent on neither compute, waiting for data nor saving */
    char method[24];    /* the method that was trained, also if the options have auto */
    int rank, ranks;    /* of this process; rank 0 writes the files */
} cloob_train_summary;

/* Trains a run, or resumes it. summary may be NULL. After CLOOB_ERR_STOPPED the run can be resumed: `resume` is its
 * name below `logs`, or its folder, and its settings are read from there; options that differ from their defaults
 * override them. */
CLOOB_API cloob_status cloob_train(cloob_ctx *ctx, const cloob_train_options *o, cloob_train_summary *summary);

#ifdef __cplusplus
}
#endif
#endif
