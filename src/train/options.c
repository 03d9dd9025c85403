/* Defaults, the paper's two recipes, and flags that do not go together. */
#include <string.h>

#include "train/run.h"

void cloob_train_options_init(cloob_train_options *o)
{
    *o = (cloob_train_options){ .vocab_size = 8192, .aug_scale_min = 0.9, .aug_scale_max = 1.0,
                                .logs = "./logs/", .workers = 4, .batch_size = 64, .batch_size_eval = 256, .epochs = 32,
                                .save_frequency = 1, .zeroshot_frequency = 2, .val_frequency = 1, .log_every_n_steps = 100,
                                .report_to = "tensorboard", .lr = -1, .beta1 = -1, .beta2 = -1, .eps = -1, .wd = 0.2,
                                .warmup = 10000, .restart_cycles = 1, .accum_freq = 1, .lr_scheduler = "cosine",
                                .model = "RN50", .precision = "fp32", .device = "auto", .method = "cloob", .memory = "batch",
                                .init_inv_tau = 30, .scale_hopfield = 8 };
    cloob_data_options_init(&o->data);
}

cloob_status cloob_train_preset(cloob_ctx *ctx, const char *name, cloob_train_options *o)
{
    bool cc = strcmp(name, "cc") == 0;
    if (!cc && strcmp(name, "yfcc") != 0) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "preset %s: choose cc or yfcc", name);
    o->model = "RN50";
    o->method = "cloob";
    o->lr = cc ? 1e-3 : 5e-4;
    o->wd = 0.1;
    o->warmup = cc ? 20000 : 10000;
    o->batch_size = cc ? 512 : 1024;
    o->lr_scheduler = cc ? "cosine-restarts" : "cosine";
    o->restart_cycles = cc ? 4 : 1; /* a cycle of 7 epochs, 28 in all, and three more */
    o->epochs = cc ? 31 : 28;
    o->init_inv_tau = 30;
    o->scale_hopfield = cc ? 8 : 14.3;
    return CLOOB_OK;
}

typedef struct rule {
    bool broken;
    const char *text;
} rule;

cloob_status run_check_options(cloob_ctx *ctx, const cloob_train_options *o)
{
    schedule_kind kind;
    loss_method method;
    const rule rules[] = {
        { !o->train_data && !o->data.type, "--train-data is needed" },
        { o->batch_size < 1, "--batch-size must be 1 or more" },
        { o->epochs < 1, "--epochs must be 1 or more" },
        { o->accum_freq < 1, "--accum-freq must be 1 or more" },
        { o->warmup < 0, "--warmup must be 0 or more" },
        { o->init_inv_tau <= 0, "--init-inv-tau must be above 0" },
        { o->scale_hopfield < 0, "--scale-hopfield must be 0 or more" },
        { o->lock_image && o->lock_text, "--lock-image and --lock-text together leave nothing to train" },
        { !schedule_from_name(o->lr_scheduler, &kind), "--lr-scheduler: choose cosine, cosine-restarts, const or const-cooldown" },
        { !loss_method_from_name(o->method, &method), "--method: choose cloob, clip, infoloob or infonce-hopfield" },
        { o->resume && o->pretrained, "--resume and --pretrained: a resumed run has its weights already" },
        { o->resume && strcmp(o->resume, "latest") == 0 && !o->name, "--resume latest needs the --name of the run" },
        { o->ema < 0 || o->ema >= 1, "--ema must be at least 0 and below 1" },
        { o->save_frequency < 0, "--save-frequency must be 0 or more" },
        { strcmp(o->memory, "batch") != 0, "--memory: only batch is supported by training so far" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].broken) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s", rules[i].text);
    return CLOOB_OK;
}
