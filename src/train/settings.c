/* The options of training: their table, checks, and params.txt. */
#include "train/settings.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ctx.h"
#include "core/needs.h"
#include "core/sbuf.h"
#include "train/hopfield_memory.h"

static const option_desc table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_train_options, , __VA_ARGS__)
#include "cloob/train_options.def"
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_train_options, data., __VA_ARGS__)
#include "cloob/data_options.def"
};
enum { ROWS = sizeof table / sizeof *table };

const option_desc *train_option_table(int64_t *count) { return OPTION_TABLE(table, count); }

void cloob_train_options_init_size(cloob_train_options *o, size_t size)
{
    cloob_train_options d = { .data.size = sizeof d.data };
    option_defaults(table, ROWS, &d);
    options_write(o, size, &d, sizeof d);
}

cloob_status cloob_train_options_set(cloob_ctx *ctx, cloob_train_options *o, const char *name, const char *value)
{
    char must[256];
    API_NEEDS(ctx, o && name && value);
    cloob_train_options set;
    cloob_train_options_init(&set);
    CLOOB_TRY(options_read(ctx, "cloob_train_options", &set, sizeof set, o));
    set.size = o->size;
    const option_desc *d = option_find(table, ROWS, name);
    if (strcmp(name, "preset") == 0) CLOOB_TRY(preset_apply(ctx, value, &set));
    else if (!d)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "unknown training option \"%.60s\"; `cloob help train` lists the options", name);
    else if (option_end(d) > set.size)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`%s` is newer than the program's headers: compile it again",
                        d->field);
    else if (!option_set(d, &set, value)) {
        option_rule(d, must, sizeof must);
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`%s` %s: %s", d->field, value, must);
    }
    memcpy(o, &set, set.size < sizeof set ? set.size : sizeof set);
    return CLOOB_OK;
}

void settings_fill(cloob_train_options *o)
{
    for (int i = 0; i < ROWS; i++) {
        const char **at = (const char **)(void *)((char *)o + table[i].offset);
        if (table[i].type == OPTION_STRING && !*at) *at = table[i].fallback;
    }
}

void settings_drop_restarts(cloob_train_options *o, bool gave_epochs, bool gave_cycles)
{
    if (o->lr_scheduler && strcmp(o->lr_scheduler, "cosine-restarts") == 0) return;
    if (!gave_epochs) o->restart_epochs = 0;
    if (!gave_cycles) o->restart_cycles = 1;
}

double settings_save_interval(const char *text, bool *steps)
{
    char *unit;
    double n = text ? strtod(text, &unit) : 0;
    if (!(n > 0) || !isfinite(n)) return 0;
    *steps = strcmp(unit, "step") == 0 || strcmp(unit, "steps") == 0;
    bool seconds = strcmp(unit, "s") == 0, minutes = strcmp(unit, "m") == 0, hours = strcmp(unit, "h") == 0;
    return *steps || seconds ? n : minutes ? 60 * n : hours ? 3600 * n : 0;
}

/* "key=" at *at: moves after it. */
static bool skip_key(const char **at, const char *key)
{
    size_t n = strlen(key);
    if (strncmp(*at, key, n) != 0 || (*at)[n] != '=') return false;
    *at += n + 1;
    return true;
}

bool settings_lora(const char *text, int64_t *rank, double *scale)
{
    enum { MAX_VALUE = 65536 };
    char *end = NULL;
    if (!skip_key(&text, "r")) skip_key(&text, "rank");
    long long r = strtoll(text, &end, 10);
    if (end == text || r < 1 || r > MAX_VALUE) return false;
    double alpha = (double)r;
    if (*end == ',') {
        text = end + 1;
        if (!skip_key(&text, "alpha")) return false;
        alpha = strtod(text, &end);
        if (end == text) return false;
    }
    if (*end || !(alpha > 0) || !isfinite(alpha)) return false;
    *rank = r;
    *scale = alpha / (double)r;
    return true;
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

cloob_status settings_check_name(cloob_ctx *ctx, const char *name)
{
    bool bad =
        name && (!*name || *name == '-' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0);
    for (const char *c = name; c && *c; c++) bad |= (unsigned char)*c < ' ' || *c == 127;
    if (!bad) return CLOOB_OK;
    return ctx_fail(
        ctx, CLOOB_ERR_ARGUMENT,
        "`name` must be a folder's name: no slash, not . or .., no dash at the beginning; `logs` sets where "
        "runs are kept");
}

/* Each value on its own. */
static cloob_status check_values(cloob_ctx *ctx, const cloob_train_options *o)
{
    char must[256];
    bool steps;
    int64_t rank;
    double scale;
    image_stage stage[IMAGE_STAGES];
    char metric[EARLY_STOP_METRIC];
    int64_t patience;
    for (int i = 0; i < ROWS; i++) {
        if (option_valid(&table[i], o)) continue;
        option_rule(&table[i], must, sizeof must);
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`%s` %s", table[i].field, must);
    }
    for (int i = 0; i < ROWS; i++) {
        const char *text =
            table[i].type == OPTION_STRING ? *(const char *const *)((const char *)o + table[i].offset) : NULL;
        if (text && strcmp(text, SETTINGS_COMMAND) == 0)
            return ctx_fail(
                ctx, CLOOB_ERR_ARGUMENT,
                "`%s` in the file of settings is a command (pipe:), which is not run from a file; give `%s` again",
                table[i].field, table[i].field);
    }
    CLOOB_TRY(settings_check_name(ctx, o->name));
    const rule rules[] = {
        { o->save_every && settings_save_interval(o->save_every, &steps) <= 0,
          "`save_every` must be a time or a number of steps, such as 90s, 30m, 2h or 500steps" },
        { o->lora && !settings_lora(o->lora, &rank, &scale),
          "`lora` must be a rank, optionally with alpha: r=8, or r=8,alpha=16" },
        { o->image_size_schedule && !settings_image_stages(o->image_size_schedule, stage),
          "`image_size_schedule` must be sizes with their first epochs, such as 112,160@11,224@25" },
        { o->report_to[0] && strcmp(o->report_to, "tensorboard") != 0 && strcmp(o->report_to, "none") != 0,
          "`report_to` must be tensorboard or none; for W&B, MLflow and other trackers use `log_to`: see "
          "docs/reference/training.md" },
        { o->early_stop && !early_stop_parse(o->early_stop, metric, &patience),
          "`early_stop` must be a metric and a number of evaluations, such as val_loss:3" },
        { o->image_std[0] > 0 && (o->image_std[1] <= 0 || o->image_std[2] <= 0), "`image_std` must be above 0" },
        { o->image_std[0] <= 0 && (o->image_std[1] > 0 || o->image_std[2] > 0), "`image_std` must be above 0" },
        { o->image_std[0] <= 0 && (o->image_mean[0] != 0 || o->image_mean[1] != 0 || o->image_mean[2] != 0),
          "`image_mean` and `image_std` must be given together" },
    };
    return first_broken(ctx, rules, sizeof rules / sizeof *rules);
}

/* Values against each other. */
static cloob_status check_metrics(cloob_ctx *ctx, const cloob_train_options *o)
{
    char stops_by[EARLY_STOP_METRIC] = "";
    int64_t patience;
    early_stop_parse(o->early_stop, stops_by, &patience);
    const char *name[] = { o->keep_best, o->early_stop ? stops_by : NULL };
    for (int i = 0; i < 2; i++)
        if (name[i] && !metric_is_evaluated(o, name[i]))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "`%s`: this run does not evaluate %s; val_loss, clip_val_loss, text_to_image_R@1 and "
                            "similar metrics need `val_data`, zeroshot-val-top1 needs `zeroshot_data`",
                            i ? "early_stop" : "keep_best", name[i]);
    return CLOOB_OK;
}

static cloob_status check_together(cloob_ctx *ctx, const cloob_train_options *o)
{
    bool typed = o->data.type && strcmp(o->data.type, "synthetic") == 0;
    bool cooldown = strcmp(o->lr_scheduler, "const-cooldown") == 0;
    const rule rules[] = {
        { !o->train_data && !typed, "`train_data` is needed (or `type` synthetic, to try a run without data)" },
        { o->lock_image && o->lock_text && !o->lock_image_unlocked_groups && !o->lock_text_unlocked_layers,
          "`lock_image` and `lock_text` together leave nothing to train" },
        { o->lock_image_unlocked_groups && !o->lock_image, "`lock_image_unlocked_groups` requires `lock_image`" },
        { o->lock_text_unlocked_layers && !o->lock_text, "`lock_text_unlocked_layers` requires `lock_text`" },
        { o->resume && o->pretrained,
          "`resume` cannot be combined with `pretrained`: a resumed run already has its weights" },
        { o->finetune && !o->pretrained && !o->resume, "`finetune` needs `pretrained` weights" },
        { o->resume && strcmp(o->resume, "latest") == 0 && !o->name, "`resume` latest needs the `name` of the run" },
        { o->image_size_schedule && o->force_image_size > 0,
          "`image_size_schedule` and `force_image_size` both set the image size; give one of them" },
        { o->data.upsampling && !o->data.resampled, "`upsampling` needs `resampled`" },
        { cooldown && o->epochs_cooldown < 1, "`lr_scheduler` const-cooldown needs `epochs_cooldown`" },
        { o->epochs_cooldown > 0 && !cooldown, "`epochs_cooldown` requires `lr_scheduler` const-cooldown" },
        { o->epochs >= 0 && o->epochs_cooldown > o->epochs, "`epochs_cooldown` is more than `epochs`" },
        { o->restart_cycles > 1 && strcmp(o->lr_scheduler, "cosine-restarts") != 0,
          "`restart_cycles` requires `lr_scheduler` cosine-restarts" },
        { o->restart_epochs > 0 && strcmp(o->lr_scheduler, "cosine-restarts") != 0,
          "`restart_epochs` requires `lr_scheduler` cosine-restarts" },
        { o->restart_epochs > 0 && o->restart_cycles > 1,
          "`restart_epochs` and `restart_cycles` both set the length of a cycle; give one of them" },
        { o->zeroshot_set && !o->zeroshot_prompts, "`zeroshot_set` requires `zeroshot_prompts`" },
        { o->zeroshot_prompts && !o->zeroshot_data && !o->imagenet_val && !o->imagenet_v2,
          "`zeroshot_prompts` needs class folders: give `zeroshot_data`" },
        { o->analyze && !o->val_data, "`analyze` needs `val_data`" },
        { o->save_embeddings && !o->val_data, "`save_embeddings` needs `val_data`" },
    };
    return first_broken(ctx, rules, sizeof rules / sizeof *rules);
}

cloob_status settings_check_report_loss(cloob_ctx *ctx, const cloob_train_options *o)
{
    bool of_open_clip = strcmp(o->method, "clip") == 0 || strcmp(o->method, "siglip") == 0;
    if (strcmp(o->report_loss, "open_clip") != 0 || of_open_clip) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "`report_loss` open_clip requires `method` clip or siglip, the losses that open_clip has");
}

cloob_status settings_check(cloob_ctx *ctx, const cloob_train_options *o)
{
    CLOOB_TRY(check_values(ctx, o));
    CLOOB_TRY(hopfield_memory_check(ctx, o->memory));
    bool open = strcmp(o->method, "auto") == 0 && (o->pretrained || o->resume); /* known when those are read */
    if (!open) CLOOB_TRY(settings_check_report_loss(ctx, o));
    CLOOB_TRY(check_metrics(ctx, o));
    return check_together(ctx, o);
}

/* ---- presets, from presets.def ---------------------------------------------------------------------- */

static const train_preset presets[] = {
#define PRESET(name, like, help) { #name, like, help },
#define SET(preset, setting, value, source)
#include "train/presets.def"
};

static const train_preset_row preset_values[] = {
#define PRESET(name, like, help)
#define SET(preset, setting, value, source) { #preset, #setting, value, source },
#include "train/presets.def"
};

enum { PRESETS = sizeof presets / sizeof *presets, PRESET_ROWS = sizeof preset_values / sizeof *preset_values };

const train_preset *preset_table(int64_t *count) { return *count = PRESETS, presets; }

const train_preset_row *preset_rows(int64_t *count) { return *count = PRESET_ROWS, preset_values; }

static cloob_status refuse_preset(cloob_ctx *ctx, const char *name)
{
    sbuf names = { 0 };
    for (int i = 0; i < PRESETS; i++)
        sbuf_printf(&names, "%s%s", i == 0 ? "" : i + 1 == PRESETS ? " or " : ", ", presets[i].name);
    ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "preset %s: choose %s", name, names.data ? names.data : "another");
    sbuf_release(&names);
    return CLOOB_ERR_ARGUMENT;
}

cloob_status preset_apply(cloob_ctx *ctx, const char *name, cloob_train_options *o)
{
    API_NEEDS(ctx, name && o);
    int p = 0;
    while (p < PRESETS && strcmp(presets[p].name, name) != 0) p++;
    if (p == PRESETS) return refuse_preset(ctx, name);
    if (presets[p].like) CLOOB_TRY(preset_apply(ctx, presets[p].like, o));
    for (int i = 0; i < PRESET_ROWS; i++) {
        if (strcmp(preset_values[i].preset, name) != 0) continue;
        const option_desc *option = option_find(table, ROWS, preset_values[i].setting);
        if (!option || !option_set(option, o, preset_values[i].value))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "preset %s: %s cannot be %s", name, preset_values[i].setting,
                            preset_values[i].value);
    }
    return CLOOB_OK;
}
