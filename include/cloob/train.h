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
    size_t size; /* of this struct; set by cloob_train_options_init */
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/train_options.def"
    cloob_data_options data; /* how the sources are read */
    /* Asked between steps; true: save and stop with CLOOB_ERR_STOPPED. */
    bool (*should_stop)(void *user);
    void *stop_user;
} cloob_train_options;

CLOOB_API void cloob_train_options_init(cloob_train_options *o);

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
