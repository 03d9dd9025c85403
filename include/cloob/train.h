/* Training, from one call.
 *
 *     cloob_train_options o;
 *     cloob_train_options_init(&o);
 *     o.train_data = "pairs.tsv";
 *     o.model = "tiny";
 *     if (cloob_train(ctx, &o, &summary) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Names and defaults are those of open_clip and of the paper authors' code; `cloob help train` explains each. Strings are
 * read during the call only. */
#ifndef CLOOB_TRAIN_H
#define CLOOB_TRAIN_H

#include "cloob/data.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_train_options {
    /* data */
    const char *train_data, *val_data;
    cloob_data_options data; /* how the sources are read */
    int64_t train_num_samples, val_num_samples;
    const char *imagenet_val, *imagenet_v2; /* class folders for zero-shot during training */
    const char *zeroshot_data, *zeroshot_prompts, *zeroshot_set;
    const char *vocab;          /* merges file; NULL: trained from the captions */
    int64_t vocab_size;         /* of one trained here */
    const char *const *aug_cfg; /* "key=value" as open_clip names them; after the numbers below */
    int64_t aug_cfg_count;
    double image_mean[3], image_std[3]; /* of images; std 0: the model's */
    const char *image_resize_mode; /* "shortest", "longest", "squash" for images to be embedded; NULL: the model's */
    double aug_scale_min, aug_scale_max, aug_jitter[4], aug_jitter_prob, aug_gray_prob;
    /* the run */
    const char *logs, *name; /* name NULL: made from time, model and settings */
    int64_t workers, batch_size, batch_size_eval, epochs, seed;
    const char *resume;     /* a path, or "latest" */
    int64_t save_frequency; /* epochs */
    const char *save_every; /* "30m", "500steps"; NULL: by epoch only */
    bool save_most_recent, delete_previous_checkpoint;
    int64_t zeroshot_frequency, val_frequency, log_every_n_steps;
    const char *report_to; /* "tensorboard", "none", or both joined by a comma */
    int64_t max_steps;     /* stop after this many updates; 0: by epochs */
    bool analyze;          /* embedding analysis after every epoch */
    /* optimizer */
    double lr, beta1, beta2, eps, wd; /* negative: the default for the model's family */
    int64_t warmup, restart_cycles, epochs_cooldown, accum_freq;
    const char *lr_scheduler;
    bool skip_scheduler;
    double grad_clip_norm, ema; /* 0: off */
    /* the model */
    const char *model, *pretrained, *precision, *device;
    bool grad_checkpointing, pack_texts, force_quick_gelu, lock_image, lock_text, use_bn_sync;
    int64_t force_image_size;
    /* the objective */
    const char *method, *memory; /* memory: "batch", "queue:N", "file:F" */
    double init_inv_tau, scale_hopfield;
    int64_t hopfield_warmup; /* steps before the Hopfield networks set in; 0 in the paper */
    bool learnable_inv_tau, learnable_scale_hopfield;
    /* Asked between steps; true: save and stop with CLOOB_ERR_STOPPED. */
    bool (*should_stop)(void *user);
    void *stop_user;
} cloob_train_options;

CLOOB_API void cloob_train_options_init(cloob_train_options *o);

/* Sets a recipe's values: "cc" or "yfcc", the paper's two. */
CLOOB_API cloob_status cloob_train_preset(cloob_ctx *ctx, const char *name, cloob_train_options *o);

typedef struct cloob_train_summary {
    char run_dir[1024], checkpoint[1024]; /* the last one written */
    int64_t steps, epochs, skipped_steps, bad_samples;
    double loss, seconds, pairs_per_s, wait_share;
    double other_share; /* of the loop's time: neither compute nor waiting for data nor saving */
    int rank, ranks;    /* of this process; rank 0 writes the files */
} cloob_train_summary;

CLOOB_API cloob_status cloob_train(cloob_ctx *ctx, const cloob_train_options *o, cloob_train_summary *summary);

#ifdef __cplusplus
}
#endif
#endif
