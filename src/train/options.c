/* Defaults, the paper's two recipes, and flags that do not go together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/run.h"

void cloob_train_options_init(cloob_train_options *o)
{
    *o = (cloob_train_options){ .vocab_size = 8192,
                                .aug_scale_min = 0.9,
                                .aug_scale_max = 1.0,
                                .logs = "./logs/",
                                .workers = 4,
                                .batch_size = 64,
                                .batch_size_eval = 256,
                                .epochs = 32,
                                .save_frequency = 1,
                                .zeroshot_frequency = 2,
                                .val_frequency = 1,
                                .log_every_n_steps = 100,
                                .report_to = "tensorboard",
                                .lr = -1,
                                .beta1 = -1,
                                .beta2 = -1,
                                .eps = -1,
                                .wd = 0.2,
                                .warmup = 10000,
                                .restart_cycles = 1,
                                .accum_freq = 1,
                                .lr_scheduler = "cosine",
                                .model = "RN50",
                                .precision = "fp32",
                                .device = "auto",
                                .method = "cloob",
                                .memory = "batch",
                                .init_inv_tau = 30,
                                .scale_hopfield = 8 };
    cloob_data_options_init(&o->data);
}

cloob_status cloob_train_preset(cloob_ctx *ctx, const char *name, cloob_train_options *o)
{
    bool cc = strcmp(name, "cc") == 0;
    if (!cc && strcmp(name, "yfcc") != 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "preset %s: choose cc or yfcc", name);
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

double run_save_interval(const char *text, bool *steps)
{
    static const struct {
        const char *unit;
        double factor;
        bool steps;
    } units[] = {
        { "s", 1, false }, { "m", 60, false }, { "h", 3600, false }, { "step", 1, true }, { "steps", 1, true },
    };
    char *unit;
    double n = text ? strtod(text, &unit) : 0;
    if (!(n > 0) || !isfinite(n)) return 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].unit) == 0) {
            *steps = units[i].steps;
            return n * units[i].factor;
        }
    return 0;
}

typedef struct rule {
    bool broken;
    const char *text;
} rule;

static cloob_status first_broken(cloob_ctx *ctx, const rule *rules, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rules[i].broken) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s", rules[i].text);
    return CLOOB_OK;
}

static bool is_one_of(const char *text, const char *const *words)
{
    while (*words && strcmp(text, *words) != 0) words++;
    return *words != NULL;
}

/* Each value by itself. */
static cloob_status check_values(cloob_ctx *ctx, const cloob_train_options *o)
{
    static const char *const precisions[] = { "amp_bf16", "bf16", "fp32", NULL };
    static const char *const reports[] = { "tensorboard", "none", "", NULL };
    schedule_kind kind;
    loss_method method;
    model_resize resize;
    bool steps;
    const rule rules[] = {
        { o->batch_size < 1, "--batch-size must be 1 or more" },
        { o->batch_size_eval < 1, "--batch-size-eval must be 1 or more" },
        { o->epochs < 1, "--epochs must be 1 or more" },
        { o->accum_freq < 1, "--accum-freq must be 1 or more" },
        { o->workers < 0 || o->workers > 1024, "--workers must be between 0 and 1024" },
        { o->warmup < 0, "--warmup must be 0 or more" },
        { o->log_every_n_steps < 1, "--log-every-n-steps must be 1 or more" },
        { o->vocab_size < 514,
          "--vocab-size must be 514 or more: 512 ids stand for bytes, two for start and end; merges come on top" },
        { !(o->init_inv_tau > 0), "--init-inv-tau must be above 0" },
        { !(o->scale_hopfield >= 0), "--scale-hopfield must be 0 or more" },
        { o->beta1 >= 1 || o->beta2 >= 1, "--beta1 and --beta2 must be below 1" },
        { !(o->wd >= 0), "--wd must be 0 or more" },
        { !(o->grad_clip_norm >= 0), "--grad-clip-norm must be 0 or more" },
        { !(o->ema >= 0) || o->ema >= 1, "--ema must be at least 0 and below 1" },
        { o->save_frequency < 0, "--save-frequency must be 0 or more" },
        { o->save_every && run_save_interval(o->save_every, &steps) <= 0,
          "--save-every: a time or a number of steps, as 90s, 30m, 2h or 500steps" },
        { o->restart_cycles < 1, "--restart-cycles must be 1 or more" },
        { !o->data.csv_separator, "--csv-separator must be one character" },
        { o->image_resize_mode && !model_resize_from_name(o->image_resize_mode, &resize),
          "--image-resize-mode: choose shortest, longest or squash" },
        { !schedule_from_name(o->lr_scheduler, &kind),
          "--lr-scheduler: choose cosine, cosine-restarts, const or const-cooldown" },
        { !loss_method_from_name(o->method, &method), "--method: choose cloob, clip, infoloob or infonce-hopfield" },
        { o->precision && strcmp(o->precision, "fp16") == 0,
          "--precision fp16: use amp_bf16, which has the range of fp32 and needs no loss scaling" },
        { o->precision && !is_one_of(o->precision, precisions), "--precision: choose amp_bf16, bf16 or fp32" },
        { !is_one_of(o->report_to, reports), "--report-to: choose tensorboard or none" },
        { o->name && (!*o->name || strchr(o->name, '/')),
          "--name must be a word without a slash; --logs says where runs are kept" },
    };
    return first_broken(ctx, rules, sizeof rules / sizeof *rules);
}

/* Values against each other. */
static cloob_status check_together(cloob_ctx *ctx, const cloob_train_options *o)
{
    bool typed = o->data.type && strcmp(o->data.type, "synthetic") == 0;
    bool cooldown = strcmp(o->lr_scheduler, "const-cooldown") == 0;
    const rule rules[] = {
        { !o->train_data && !typed, "--train-data is needed (or --dataset-type synthetic, to try a run without data)" },
        { o->lock_image && o->lock_text, "--lock-image and --lock-text together leave nothing to train" },
        { o->resume && o->pretrained, "--resume and --pretrained: a resumed run has its weights already" },
        { o->resume && strcmp(o->resume, "latest") == 0 && !o->name, "--resume latest needs the --name of the run" },
        { o->data.upsampling && !o->data.resampled, "--train-data-upsampling-factors needs --dataset-resampled" },
        { cooldown && o->epochs_cooldown < 1, "--lr-scheduler const-cooldown needs --epochs-cooldown" },
        { o->epochs_cooldown > 0 && !cooldown, "--epochs-cooldown goes with --lr-scheduler const-cooldown" },
        { o->epochs_cooldown > o->epochs, "--epochs-cooldown is more than --epochs" },
        { o->restart_cycles > 1 && strcmp(o->lr_scheduler, "cosine-restarts") != 0,
          "--restart-cycles goes with --lr-scheduler cosine-restarts" },
        { o->zeroshot_set && !o->zeroshot_prompts,
          "--zeroshot-set names a set of --zeroshot-prompts, which is not given" },
        { o->zeroshot_prompts && !o->zeroshot_data && !o->imagenet_val && !o->imagenet_v2,
          "--zeroshot-prompts needs the class folders: --zeroshot-data" },
        { o->analyze && !o->val_data, "--analyze needs --val-data" },
    };
    return first_broken(ctx, rules, sizeof rules / sizeof *rules);
}

cloob_status run_check_options(cloob_ctx *ctx, const cloob_train_options *o)
{
    CLOOB_TRY(check_values(ctx, o));
    CLOOB_TRY(hopfield_memory_check(ctx, o->memory));
    return check_together(ctx, o);
}
