/* One kind of thing that `cloob info` describes. */
#ifndef CLI_INFO_H
#define CLI_INFO_H

#include "cli/shared_opts.h"

/* The options of cloob info. */
typedef struct info_options {
    cloob_data_options data;
    int64_t examine, batch;
    const char *view; /* where a PNG of what a model sees goes; NULL: describe */
    int64_t size;
    const char *crop, *interpolation, *resize_mode;
    bool train;
    opt_list aug;
} info_options;

typedef struct info_kind {
    bool (*matches)(const char *what);
    /* Prints on stdout, as JSON when common.json is set; returns the exit code. */
    int (*describe)(const command *self, cloob_ctx *ctx, const char *what, const info_options *o);
} info_kind;

extern const info_kind info_device, info_model, info_weights, info_data;

/* What this machine and build have: lines, or members of the JSON object that is open. */
void machine_text(cloob_ctx *ctx);
void machine_json(cloob_ctx *ctx);

/* --view: writes what a model sees of an image. check: -1, or the exit code. */
int info_view_check(const command *self, info_options *o);
int info_view(const command *self, cloob_ctx *ctx, const char *path, const info_options *o);

#endif
