/* Training, from one call.
 *
 *     cloob_train_options o;
 *     cloob_train_options_init(&o);
 *     o.train_data = "pairs.tsv";
 *     o.model = "tiny";
 *     if (cloob_train(ctx, &o, &summary) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Names and defaults are those of open_clip and of the paper authors' code; `cloob help train` explains each. Strings
 * are read during the call only. */
#ifndef CLOOB_TRAIN_H
#define CLOOB_TRAIN_H

#include "cloob/data.h"
#include "cloob/options.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every setting, with its default and meaning, is a row of train_options.def. NULL strings are their defaults. */
typedef struct cloob_train_options {
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/train_options.def"
    cloob_data_options data; /* how the sources are read */
    /* Asked between steps; true: save and stop with CLOOB_ERR_STOPPED. */
    bool (*should_stop)(void *user);
    void *stop_user;
} cloob_train_options;

CLOOB_API void cloob_train_options_init(cloob_train_options *o);

/* The rows of train_options.def, then those of data_options.def for `data`; offsets are in cloob_train_options. */
CLOOB_API const cloob_option *cloob_train_option_table(int64_t *count);

/* Recipes, the paper's among them: a name, the one it begins with (or NULL), and what it is. */
typedef struct cloob_preset {
    const char *name, *like, *help;
} cloob_preset;
/* What a recipe sets, in the texts of cloob_option_set, and where the value is from. */
typedef struct cloob_preset_row {
    const char *preset, *setting, *value, *source;
} cloob_preset_row;
CLOOB_API const cloob_preset *cloob_preset_table(int64_t *count);
CLOOB_API const cloob_preset_row *cloob_preset_rows(int64_t *count);

/* Sets a recipe's values; what it does not name is left alone. */
CLOOB_API cloob_status cloob_train_preset(cloob_ctx *ctx, const char *name, cloob_train_options *o);

/* The settings of a run that goes on. `resume`: its name under `logs`, or its folder. *out is NULL where it names no
 * run: "latest", or a checkpoint. The options belong to the handle; they resume from the newest checkpoint. */
typedef struct cloob_run_settings cloob_run_settings;
CLOOB_API cloob_status cloob_run_settings_open(cloob_ctx *ctx, const char *logs, const char *resume,
                                               cloob_run_settings **out);
CLOOB_API const cloob_train_options *cloob_run_settings_options(const cloob_run_settings *s);
CLOOB_API void cloob_run_settings_close(cloob_run_settings *s);

typedef struct cloob_train_summary {
    char run_dir[1024], checkpoint[1024]; /* the last one written */
    int64_t steps, epochs, skipped_steps, bad_samples;
    double loss, seconds, pairs_per_s, wait_share;
    double other_share; /* of the loop's time: neither compute nor waiting for data nor saving */
    char method[24];    /* what was trained, where the options left it open */
    int rank, ranks;    /* of this process; rank 0 writes the files */
} cloob_train_summary;

CLOOB_API cloob_status cloob_train(cloob_ctx *ctx, const cloob_train_options *o, cloob_train_summary *summary);

#ifdef __cplusplus
}
#endif
#endif
