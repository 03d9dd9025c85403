/* A run's options as lines "key: value": what params.txt tells, and what an ablation holds equal. */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include "cloob/train.h"
#include "core/option.h"
#include "core/sbuf.h"

typedef enum settings_part {
    SETTINGS_LEARNING, /* what decides which weights come out, but the method and the seed */
    SETTINGS_ALL,      /* but max_steps, which ends one session of a run and is no property of it */
} settings_part;

/* Keys are the members' names, which are the flags' with underscores; None, True and False as Python writes them. */
void settings_put(sbuf *out, const cloob_train_options *o, settings_part part);

/* What a source becomes that is a command ("pipe:cat *.tar"): a file must not make us run one. run_check_options asks
 * for it again. */
#define SETTINGS_COMMAND "pipe:"

/* The rows of train_options.def, then those of data_options.def for `data`; offsets are in cloob_train_options. */
const option_desc *train_option_table(int64_t *count);

/* Recipes, the paper's among them: a name, the one it begins with (or NULL), and what it is. */
typedef struct train_preset {
    const char *name, *like, *help;
} train_preset;
/* What a recipe sets, in the texts of option_set, and where the value is from. */
typedef struct train_preset_row {
    const char *preset, *setting, *value, *source;
} train_preset_row;
const train_preset *preset_table(int64_t *count);
const train_preset_row *preset_rows(int64_t *count);

/* Sets a recipe's values; what it does not name is left alone. */
cloob_status preset_apply(cloob_ctx *ctx, const char *name, cloob_train_options *o);

/* The settings of a run that goes on. `resume`: its name under `logs`, or its folder. *out is NULL where it names no
 * run: "latest", or a checkpoint. The options belong to the handle; they resume from the newest checkpoint. */
typedef struct run_settings run_settings;
cloob_status run_settings_open(cloob_ctx *ctx, const char *logs, const char *resume, run_settings **out);
const cloob_train_options *run_settings_options(const run_settings *s);
void run_settings_close(run_settings *s);

/* Settings out of a params.txt; close with run_settings_close. */
cloob_status settings_read(cloob_ctx *ctx, const char *path, run_settings **out);

/* A run's name is that of one folder inside `logs`; NULL is fine. */
cloob_status settings_check_name(cloob_ctx *ctx, const char *name);

/* Strings that are NULL become their defaults. */
void settings_fill(cloob_train_options *o);

#endif
