/* The options of a run: checks, the values inside them, and their form in params.txt, lines of "key: value". */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include "cloob/train.h"
#include "core/json.h"
#include "core/option.h"
#include "core/sbuf.h"

typedef enum settings_part {
    SETTINGS_LEARNING, /* all that change the resulting weights, except the method and the seed */
    SETTINGS_ALL,      /* all except max_steps, which ends one session of a run */
} settings_part;

/* Keys are the members' names, which are the flags' names with underscores; None, True and False as in Python. */
void settings_put(sbuf *out, const cloob_train_options *o, settings_part part);

/* The same as a JSON object, as settings_load takes it; without the name, `resume` and `max_steps`, which are of one
 * session. */
void settings_put_json(json_out *w, const char *key, const cloob_train_options *o);

/* Replaces a source that is a command ("pipe:cat *.tar"), so that a file cannot run one. settings_check refuses it. */
#define SETTINGS_COMMAND "pipe:"

/* In params.txt and settings.json of a run whose loss is the calling program's. */
#define SETTINGS_OWN_LOSS "own_loss"

/* The rows of train_options.def, then the rows of data_options.def for `data`; offsets are in cloob_train_options. */
const option_desc *train_option_table(int64_t *count);

/* Presets, including the paper's: a name, the preset that it extends (or NULL), and a description. */
typedef struct train_preset {
    const char *name, *like, *help;
} train_preset;
/* A setting of a preset, as texts for option_set, and the source of the value. */
typedef struct train_preset_row {
    const char *preset, *setting, *value, *source;
} train_preset_row;
const train_preset *preset_table(int64_t *count);
const train_preset_row *preset_rows(int64_t *count);

/* Sets the values of a preset; other options do not change. */
cloob_status preset_apply(cloob_ctx *ctx, const char *name, cloob_train_options *o);

/* The settings of a run to resume. `resume`: its name under `logs`, or its folder. *out is NULL if it does not name a
 * run: "latest", or a checkpoint. The options belong to the handle; they resume from the newest checkpoint. */
typedef struct run_settings run_settings;
cloob_status run_settings_open(cloob_ctx *ctx, const char *logs, const char *resume, run_settings **out);
const cloob_train_options *run_settings_options(const run_settings *s);
/* If `resume` of `o` names a run, sets every option that has its default to the run's setting. The caller closes *run,
 * which owns strings of `o`; NULL: `resume` names no run. */
cloob_status run_settings_apply(cloob_ctx *ctx, cloob_train_options *o, run_settings **run);
bool run_settings_has_own_loss(const run_settings *s);
void run_settings_close(run_settings *s);

/* Sets the members of a JSON object in a file, such as settings.json of a run or {"preset": "cc", "lr": 1e-3}; the
 * preset comes first. o NULL: the options of *keep, which begin as defaults. Strings belong to *keep, which
 * run_settings_close frees. A source that is a command becomes SETTINGS_COMMAND. */
cloob_status settings_load(cloob_ctx *ctx, const char *path, cloob_train_options *o, run_settings **keep);

/* A run's name is the name of a folder inside `logs`; NULL is valid. */
cloob_status settings_check_name(cloob_ctx *ctx, const char *name);

/* Sets strings that are NULL to their defaults. */
void settings_fill(cloob_train_options *o);

/* Resets a preset's cycles, unless given explicitly, when the schedule has no restarts. */
void settings_drop_restarts(cloob_train_options *o, bool gave_epochs, bool gave_cycles);

/* Checks every option, and options against each other. Writes nothing. */
cloob_status settings_check(cloob_ctx *ctx, const cloob_train_options *o);
/* `report_loss` against the method, which must be known. */
cloob_status settings_check_report_loss(cloob_ctx *ctx, const cloob_train_options *o);

/* "90s", "30m", "2h" in seconds, "500steps" in steps; 0: not an interval. */
double settings_save_interval(const char *text, bool *steps);

/* "val_loss:5"; false: not of that form, or NULL. best.c */
enum { EARLY_STOP_METRIC = 64 };
bool early_stop_parse(const char *text, char metric[EARLY_STOP_METRIC], int64_t *patience);
/* True for a metric that a run with these options writes. */
bool metric_is_evaluated(const cloob_train_options *o, const char *name);

/* "r=8" or "r=8,alpha=16": the rank, and alpha / r, which is 1 without alpha; false: neither form. */
bool settings_lora(const char *text, int64_t *rank, double *scale);

/* `image_size_schedule` "112,160@11,224@25": 112 px from epoch 1 on, 160 from epoch 11 on. */
enum { IMAGE_STAGES = 32 };
typedef struct image_stage {
    int64_t size, epoch; /* from this epoch on, counted from 0 */
} image_stage;
/* The number of stages; 0: not a valid schedule. */
int settings_image_stages(const char *text, image_stage stage[IMAGE_STAGES]);
/* The image size of an epoch, and the largest of all epochs; 0 without a schedule. */
int64_t settings_image_size(const cloob_train_options *o, int64_t epoch);
int64_t settings_largest_image(const cloob_train_options *o);

#endif
