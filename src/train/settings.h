/* A run's options as lines "key: value": what params.txt tells, and what an ablation holds equal. */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include "cloob/train.h"
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

/* Settings out of a params.txt; close with cloob_run_settings_close. */
cloob_status settings_read(cloob_ctx *ctx, const char *path, cloob_run_settings **out);

/* A run's name is that of one folder inside `logs`; NULL is fine. */
cloob_status settings_check_name(cloob_ctx *ctx, const char *name);

/* Strings that are NULL become their defaults. */
void settings_fill(cloob_train_options *o);

#endif
