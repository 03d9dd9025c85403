/* Another program's tensors under their own names, and their configuration. Used by interchange*.c alone. */
#ifndef MODEL_SOURCE_H
#define MODEL_SOURCE_H

#include "model/interchange.h"

typedef struct source_key {
    const char *name; /* without "module." */
    int64_t index;    /* into entry */
} source_key;

typedef struct source {
    const char *path;
    const st_entry *entry;
    int64_t count;
    source_key *sorted; /* by name */
    bool *used;         /* by index */
    weight_names names;
    bool native;
} source;

/* Indexes the tensors of w->st or w->torch; detects the naming scheme. Lives in w->a. */
cloob_status source_index(cloob_ctx *ctx, const char *path, weights *w, source *s);
/* The entry called by its foreign name; -1 when absent. */
int64_t source_find(const source *s, const char *name);

/* Sizes from shapes; fails with the name of what is missing or does not follow from shapes. */
cloob_status source_infer(cloob_ctx *ctx, const source *s, model_config *c);

/* Finds the configuration and puts it into w->config; *from: a description of its source. */
cloob_status interchange_config(cloob_ctx *ctx, const interchange_options *o, const source *s, weights *w,
                                const char **from);

#endif
