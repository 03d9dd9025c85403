/* The options of training: their table, checks, and params.txt. */
#include "train/settings.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/needs.h"
#include "core/option.h"
#include "core/text.h"
#include "data/sets/dataset.h"
#include "train/hopfield_memory.h"
#include "train/resume.h"
#include "core/option.h"
#include "train/settings.h"

static const option_desc table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_train_options, , __VA_ARGS__)
#include "cloob/train_options.def"
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_train_options, data., __VA_ARGS__)
#include "cloob/data_options.def"
};
enum { ROWS = sizeof table / sizeof *table };

const option_desc *train_option_table(int64_t *count) { return OPTION_TABLE(table, count); }

void cloob_train_options_init(cloob_train_options *o)
{
    if (!o) return;
    *o = (cloob_train_options){ .size = sizeof *o, .data.size = sizeof o->data };
    option_defaults(table, ROWS, o);
}

void settings_put(sbuf *out, const cloob_train_options *o, settings_part part)
{
    for (int i = 0; i < ROWS; i++) {
        if (part == SETTINGS_LEARNING && !table[i].learns) continue;
        if (part == SETTINGS_ALL && table[i].offset == offsetof(cloob_train_options, max_steps)) continue;
        char *text = option_get(&table[i], o);
        sbuf_printf(out, "%s: %s\n", table[i].name, text ? text : "");
        if (!text) out->failed = true;
        free(text);
    }
}

void settings_fill(cloob_train_options *o)
{
    for (int i = 0; i < ROWS; i++) {
        const char **at = (const char **)(void *)((char *)o + table[i].offset);
        if (table[i].type == OPTION_STRING && !*at) *at = table[i].fallback;
    }
}

double settings_save_interval(const char *text, bool *steps)
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
        "`name` must be a folder's name: no slash, not . or .., no dash at the beginning; `logs` says where "
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
    for (int i = 0; i < ROWS; i++) {
        if (option_valid(&table[i], o)) continue;
        option_rule(&table[i], must, sizeof must);
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`%s` %s", table[i].field, must);
    }
    for (int i = 0; i < ROWS; i++) {
        const char *text =
            table[i].type == OPTION_STRING ? *(const char *const *)((const char *)o + table[i].offset) : NULL;
        if (text && strcmp(text, SETTINGS_COMMAND) == 0)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "`%s` of the run is a command (pipe:), which is not run out of a file; give `%s` again",
                            table[i].field, table[i].field);
    }
    CLOOB_TRY(settings_check_name(ctx, o->name));
    const rule rules[] = {
        { o->save_every && settings_save_interval(o->save_every, &steps) <= 0,
          "`save_every` must be a time or a number of steps, as 90s, 30m, 2h or 500steps" },
        { o->lora && !settings_lora(o->lora, &rank, &scale),
          "`lora` must be a rank, with a scale where it is not the rank: r=8, or r=8,alpha=16" },
        { o->image_size_schedule && !settings_image_stages(o->image_size_schedule, stage),
          "`image_size_schedule` must be sizes with the epochs they begin at, as 112,160@11,224@25" },
        { o->report_to[0] && strcmp(o->report_to, "tensorboard") != 0 && strcmp(o->report_to, "none") != 0,
          "`report_to` must be tensorboard or none" },
        { o->image_std[0] > 0 && (o->image_std[1] <= 0 || o->image_std[2] <= 0), "`image_std` must be above 0" },
        { o->image_std[0] <= 0 && (o->image_std[1] > 0 || o->image_std[2] > 0), "`image_std` must be above 0" },
        { o->image_std[0] <= 0 && (o->image_mean[0] != 0 || o->image_mean[1] != 0 || o->image_mean[2] != 0),
          "`image_mean` and `image_std` go together" },
    };
    return first_broken(ctx, rules, sizeof rules / sizeof *rules);
}

/* Values against each other. */
static cloob_status check_together(cloob_ctx *ctx, const cloob_train_options *o)
{
    bool typed = o->data.type && strcmp(o->data.type, "synthetic") == 0;
    bool cooldown = strcmp(o->lr_scheduler, "const-cooldown") == 0;
    const rule rules[] = {
        { !o->train_data && !typed, "`train_data` is needed (or `type` synthetic, to try a run without data)" },
        { o->lock_image && o->lock_text && !o->lock_image_unlocked_groups && !o->lock_text_unlocked_layers,
          "`lock_image` and `lock_text` together leave nothing to train" },
        { o->lock_image_unlocked_groups && !o->lock_image, "`lock_image_unlocked_groups` goes with `lock_image`" },
        { o->lock_text_unlocked_layers && !o->lock_text, "`lock_text_unlocked_layers` goes with `lock_text`" },
        { o->resume && o->pretrained, "`resume` and `pretrained`: a resumed run has its weights already" },
        { o->finetune && !o->pretrained && !o->resume, "`finetune` begins with weights: give `pretrained`" },
        { o->resume && strcmp(o->resume, "latest") == 0 && !o->name, "`resume` latest needs the `name` of the run" },
        { o->image_size_schedule && o->force_image_size > 0,
          "`image_size_schedule` and `force_image_size` both set the image size; give one of them" },
        { o->data.upsampling && !o->data.resampled, "`upsampling` needs `resampled`" },
        { cooldown && o->epochs_cooldown < 1, "`lr_scheduler` const-cooldown needs `epochs_cooldown`" },
        { o->epochs_cooldown > 0 && !cooldown, "`epochs_cooldown` goes with `lr_scheduler` const-cooldown" },
        { o->epochs >= 0 && o->epochs_cooldown > o->epochs, "`epochs_cooldown` is more than `epochs`" },
        { o->restart_cycles > 1 && strcmp(o->lr_scheduler, "cosine-restarts") != 0,
          "`restart_cycles` goes with `lr_scheduler` cosine-restarts" },
        { o->restart_epochs > 0 && strcmp(o->lr_scheduler, "cosine-restarts") != 0,
          "`restart_epochs` goes with `lr_scheduler` cosine-restarts" },
        { o->restart_epochs > 0 && o->restart_cycles > 1,
          "`restart_epochs` and `restart_cycles` say the same in two ways; give one of them" },
        { o->zeroshot_set && !o->zeroshot_prompts,
          "`zeroshot_set` names a set of `zeroshot_prompts`, which is not given" },
        { o->zeroshot_prompts && !o->zeroshot_data && !o->imagenet_val && !o->imagenet_v2,
          "`zeroshot_prompts` needs the class folders: `zeroshot_data`" },
        { o->analyze && !o->val_data, "`analyze` needs `val_data`" },
    };
    return first_broken(ctx, rules, sizeof rules / sizeof *rules);
}

cloob_status settings_check_report_loss(cloob_ctx *ctx, const cloob_train_options *o)
{
    bool of_open_clip = strcmp(o->method, "clip") == 0 || strcmp(o->method, "siglip") == 0;
    if (strcmp(o->report_loss, "open_clip") != 0 || of_open_clip) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "`report_loss` open_clip goes with `method` clip or siglip, the losses that open_clip has");
}

cloob_status settings_check(cloob_ctx *ctx, const cloob_train_options *o)
{
    CLOOB_TRY(check_values(ctx, o));
    CLOOB_TRY(hopfield_memory_check(ctx, o->memory));
    bool open = strcmp(o->method, "auto") == 0 && (o->pretrained || o->resume); /* known when those are read */
    if (!open) CLOOB_TRY(settings_check_report_loss(ctx, o));
    return check_together(ctx, o);
}

/* ---- params.txt ---------------------------------------------------------------------------------- */

enum { MAX_ITEMS = 64 }; /* of a list */

struct run_settings {
    cloob_train_options o;
    arena a; /* strings and lists */
};

/* "scale=(0.5, 1.0) flip_prob=0.5": an item begins where a word with an equals sign does. */
static bool begins_item(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    return n > 0 && at[n] == '=';
}

static cloob_status set_list(cloob_ctx *ctx, const option_desc *o, run_settings *s, char *text)
{
    int64_t count = 0;
    const char **item = arena_push(&s->a, MAX_ITEMS * sizeof *item);
    if (!item) return ctx_no_memory(ctx, MAX_ITEMS * sizeof *item, o->name);
    for (char *at = text; *at && count < MAX_ITEMS; at++)
        if (at == text || (at[-1] == ' ' && begins_item(at))) {
            if (at > text) at[-1] = '\0';
            item[count++] = at;
        }
    struct {
        const char *const *item;
        int64_t count;
    } list = { item, count };
    memcpy((char *)&s->o + o->offset, &list, sizeof list);
    return CLOOB_OK;
}

static cloob_status set_line(cloob_ctx *ctx, const char *path, char *line, run_settings *s)
{
    char *colon = strstr(line, ": ");
    if (!colon) return CLOOB_OK;
    *colon = '\0';
    char *text = colon + 2;
    /* In files from before schedule_steps existed, max_steps meant both. */
    const char *key = strcmp(line, "max_steps") == 0 ? "schedule_steps" : line;
    const option_desc *option = option_find(table, ROWS, key);
    if (!option || strcmp(text, "None") == 0) return CLOOB_OK; /* a fact about the run; or nothing was set */
    if (option->type == OPTION_LIST) return set_list(ctx, option, s, text);
    if (option->type == OPTION_STRING && dataset_runs_commands(ctx, text)) text = SETTINGS_COMMAND;
    if (option_set(option, &s->o, text)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s cannot be %s", path, line, text);
}

/* Defaults, except that strings are NULL: None in the file must not become a default. */
static void begin(cloob_train_options *o)
{
    cloob_train_options_init(o);
    for (int i = 0; i < ROWS; i++)
        if (table[i].type == OPTION_STRING) *(const char **)(void *)((char *)o + table[i].offset) = NULL;
}

static cloob_status fill(cloob_ctx *ctx, const char *path, run_settings *s)
{
    file_bytes bytes;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    char *rest = arena_string(&s->a, bytes.data); /* file_read adds a zero byte */
    file_bytes_release(&bytes);
    if (!rest) return ctx_no_memory(ctx, 1, path);
    begin(&s->o);
    for (char *line; (line = strsep(&rest, "\n"));) CLOOB_TRY(set_line(ctx, path, line, s));
    return CLOOB_OK;
}

cloob_status settings_read(cloob_ctx *ctx, const char *path, run_settings **out)
{
    run_settings *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, path);
    cloob_status status = fill(ctx, path, s);
    if (status == CLOOB_OK) *out = s;
    else run_settings_close(s);
    return status;
}

const cloob_train_options *run_settings_options(const run_settings *s) { return s ? &s->o : NULL; }

void run_settings_close(run_settings *s)
{
    if (!s) return;
    arena_release(&s->a);
    free(s);
}

/* ---- a run by its name --------------------------------------------------------------------------- */

/* The folder that `resume` names: LOGS/NAME, or a path. */
static bool find_run(const char *logs, const char *resume, char folder[RESUME_PATH])
{
    snprintf(folder, RESUME_PATH, "%s%s%s", logs, text_ends_with(logs, "/") ? "" : "/", resume);
    if (!strchr(resume, '/') && file_is_dir(folder)) return true;
    snprintf(folder, RESUME_PATH, "%s", resume);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/';) folder[--n] = '\0';
    return file_is_dir(folder);
}

static cloob_status no_run(cloob_ctx *ctx, const char *logs, const char *resume)
{
    if (strchr(resume, '/') || file_exists(resume)) return CLOOB_OK; /* a checkpoint */
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s%s%s: no such run to resume; check `logs`, or give a checkpoint's path", logs,
                    text_ends_with(logs, "/") ? "" : "/", resume);
}

static bool ends_in_dots(const char *folder)
{
    const char *slash = strrchr(folder, '/'), *last = slash ? slash + 1 : folder;
    return strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
}

/* Sets the options that resume the run: weights and model come from the checkpoint; the device may differ. */
static cloob_status set_resume(cloob_ctx *ctx, const char *folder, run_settings *s)
{
    char real[PATH_MAX];
    if (ends_in_dots(folder) && realpath(folder, real)) folder = real; /* a real name, not . or .. */
    char *logs = arena_string(&s->a, folder), *slash = logs ? strrchr(logs, '/') : NULL;
    if (!logs) return ctx_no_memory(ctx, strlen(folder), folder);
    if (slash) *slash = '\0';
    s->o.logs = slash ? logs : ".";
    s->o.name = slash ? slash + 1 : logs;
    s->o.resume = "latest";
    s->o.pretrained = NULL;
    s->o.model = "auto";
    if (s->o.device && strncmp(s->o.device, "cuda", 4) == 0) s->o.device = "auto";
    return CLOOB_OK;
}

cloob_status run_settings_open(cloob_ctx *ctx, const char *logs, const char *resume, run_settings **out)
{
    char folder[RESUME_PATH], path[RESUME_PATH + 16];
    API_NEEDS(ctx, logs && resume && out);
    *out = NULL;
    if (strcmp(resume, "latest") == 0) return CLOOB_OK;
    if (!find_run(logs, resume, folder)) return no_run(ctx, logs, resume);
    snprintf(path, sizeof path, "%s/params.txt", folder);
    if (!file_exists(path))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: no such file, so %s is no run that could be resumed", path, folder);
    CLOOB_TRY(settings_read(ctx, path, out));
    return set_resume(ctx, folder, *out);
}
