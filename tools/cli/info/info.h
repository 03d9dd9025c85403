/* One kind of thing that `cloob info` describes. */
#ifndef CLI_INFO_H
#define CLI_INFO_H

#include "cli/shared_opts.h"

/* The options of cloob info, for those who need them. */
typedef struct info_options {
    cloob_data_options data;
    int64_t examine, batch;
} info_options;

typedef struct info_kind {
    bool (*knows)(const char *what);
    /* Prints on stdout, as JSON when common.json is set; returns the exit code. */
    int (*tell)(const command *self, cloob_ctx *ctx, const char *what, const info_options *o);
} info_kind;

#endif
