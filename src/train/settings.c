/* One table of all options. */
#include "train/settings.h"

#include <stddef.h>

typedef enum kind { WORD, COUNT, NUMBER, FLAG, CHARACTER } kind;

typedef struct row {
    const char *name;
    kind kind;
    bool learning;
    size_t at;
} row;

#define AT(member) offsetof(cloob_train_options, member)
#define LEARN(kind, member)                                                                                            \
    {                                                                                                                  \
#        member, kind, true, AT(member)                                                                                \
    }
#define OTHER(kind, member)                                                                                            \
    {                                                                                                                  \
#        member, kind, false, AT(member)                                                                               \
    }

static const row rows[] = {
    LEARN(WORD, train_data),
    LEARN(WORD, val_data),
    { "dataset_type", WORD, true, AT(data.type) },
    { "path_data", WORD, true, AT(data.path_data) },
    { "csv_separator", CHARACTER, true, AT(data.csv_separator) },
    { "csv_img_key", WORD, true, AT(data.csv_image_key) },
    { "csv_caption_key", WORD, true, AT(data.csv_caption_key) },
    { "image_key", WORD, true, AT(data.image_key) },
    { "text_key", WORD, true, AT(data.text_key) },
    { "max_image_pixels", COUNT, true, AT(data.max_pixels) },
    { "dataset_resampled", FLAG, true, AT(data.resampled) },
    { "train_data_upsampling_factors", WORD, true, AT(data.upsampling) },
    { "one_caption", FLAG, true, AT(data.one_caption) },
    { "shuffle_window", COUNT, true, AT(data.shuffle_window) },
    LEARN(COUNT, train_num_samples),
    LEARN(COUNT, val_num_samples),
    OTHER(WORD, imagenet_val),
    OTHER(WORD, imagenet_v2),
    OTHER(WORD, zeroshot_data),
    OTHER(WORD, zeroshot_prompts),
    OTHER(WORD, zeroshot_set),
    LEARN(WORD, vocab),
    LEARN(COUNT, vocab_size),
    LEARN(WORD, image_resize_mode),
    LEARN(NUMBER, aug_scale_min),
    LEARN(NUMBER, aug_scale_max),
    LEARN(NUMBER, aug_jitter_prob),
    LEARN(NUMBER, aug_gray_prob),
    OTHER(WORD, logs),
    OTHER(WORD, name),
    OTHER(COUNT, workers),
    LEARN(COUNT, batch_size),
    OTHER(COUNT, batch_size_eval),
    LEARN(COUNT, epochs),
    OTHER(COUNT, seed),
    OTHER(WORD, resume),
    OTHER(COUNT, save_frequency),
    OTHER(WORD, save_every),
    OTHER(FLAG, save_most_recent),
    OTHER(FLAG, delete_previous_checkpoint),
    OTHER(COUNT, zeroshot_frequency),
    OTHER(COUNT, val_frequency),
    OTHER(COUNT, log_every_n_steps),
    OTHER(WORD, report_to),
    LEARN(COUNT, max_steps),
    OTHER(FLAG, analyze),
    LEARN(NUMBER, lr),
    LEARN(NUMBER, beta1),
    LEARN(NUMBER, beta2),
    LEARN(NUMBER, eps),
    LEARN(NUMBER, wd),
    LEARN(COUNT, warmup),
    LEARN(COUNT, restart_cycles),
    LEARN(COUNT, epochs_cooldown),
    LEARN(COUNT, accum_freq),
    LEARN(WORD, lr_scheduler),
    LEARN(FLAG, skip_scheduler),
    LEARN(NUMBER, grad_clip_norm),
    LEARN(NUMBER, ema),
    LEARN(WORD, model),
    LEARN(WORD, pretrained),
    LEARN(WORD, precision),
    OTHER(WORD, device),
    OTHER(FLAG, grad_checkpointing),
    OTHER(FLAG, pack_texts),
    LEARN(FLAG, force_quick_gelu),
    LEARN(FLAG, lock_image),
    LEARN(FLAG, lock_text),
    LEARN(FLAG, use_bn_sync),
    LEARN(COUNT, force_image_size),
    OTHER(WORD, method),
    LEARN(WORD, memory),
    LEARN(NUMBER, init_inv_tau),
    LEARN(NUMBER, scale_hopfield),
    LEARN(COUNT, hopfield_warmup),
    LEARN(FLAG, learnable_inv_tau),
    LEARN(FLAG, learnable_scale_hopfield),
};

static void put_value(sbuf *out, kind k, const void *at)
{
    const char *word = k == WORD ? *(const char *const *)at : NULL;
    switch (k) {
    case WORD: sbuf_puts(out, word ? word : "None"); break;
    case COUNT: sbuf_printf(out, "%lld", (long long)*(const int64_t *)at); break;
    case NUMBER: sbuf_printf(out, "%g", *(const double *)at); break;
    case FLAG: sbuf_puts(out, *(const bool *)at ? "True" : "False"); break;
    case CHARACTER:
        *(const char *)at == '\t' ? sbuf_puts(out, "tab") : sbuf_printf(out, "%c", *(const char *)at);
        break;
    }
}

static void put_numbers(sbuf *out, const char *name, const double *x, int n)
{
    sbuf_printf(out, "%s:", name);
    for (int i = 0; i < n; i++) sbuf_printf(out, " %g", x[i]);
    sbuf_puts(out, "\n");
}

void settings_put(sbuf *out, const cloob_train_options *o, settings_part part)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        if (part == SETTINGS_LEARNING && !r->learning) continue;
        sbuf_printf(out, "%s: ", r->name);
        put_value(out, r->kind, (const char *)o + r->at);
        sbuf_puts(out, "\n");
    }
    put_numbers(out, "aug_jitter", o->aug_jitter, 4);
    put_numbers(out, "image_mean", o->image_mean, 3);
    put_numbers(out, "image_std", o->image_std, 3);
    sbuf_puts(out, "aug_cfg:");
    for (int64_t i = 0; i < o->aug_cfg_count; i++) sbuf_printf(out, " %s", o->aug_cfg[i]);
    sbuf_puts(out, o->aug_cfg_count ? "\n" : " None\n");
}
