/* Small runs on synthetic pairs in a scratch folder, and the comparison of their checkpoints. */
#ifndef TESTS_SMALL_RUN_H
#define TESTS_SMALL_RUN_H

#include "check.h"
#include "cloob/train.h"
#include "model/weights.h"

static char logs[256]; /* filled by scratch_folder */

static inline void small_run_options(cloob_train_options *o, const char *name, const char *resume)
{
    cloob_train_options_init(o);
    o->data.type = "synthetic", o->train_num_samples = 48;
    o->model = "tiny-vit", o->vocab_size = 540;
    o->batch_size = 8, o->epochs = 2, o->warmup = 1, o->workers = 0, o->skip_scheduler = true;
    o->logs = logs, o->name = name, o->resume = resume, o->device = "cpu";
}

/* True when two checkpoints have the same tensors, optimizer state included, with the same bytes, and at least one
 * tensor whose name begins with `prefix`. */
static inline bool same_checkpoints(cloob_ctx *ctx, const char *a, const char *b, const char *file, const char *prefix)
{
    weights w[2];
    const char *const name[] = { a, b };
    for (int i = 0; i < 2; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s/checkpoints/%s.safetensors", logs, name[i], file);
        if (weights_read_native(ctx, path, &w[i]) != CLOOB_OK) return false;
    }
    bool same = w[0].count == w[1].count, found = false;
    for (int64_t i = 0; i < w[0].count; i++) {
        const tensor *x = &w[0].entry[i].t, *y = weights_find(&w[1], w[0].entry[i].name);
        same = same && y && tensor_bytes(x) == tensor_bytes(y) && memcmp(x->data, y->data, tensor_bytes(x)) == 0;
        found = found || strncmp(w[0].entry[i].name, prefix, strlen(prefix)) == 0;
    }
    weights_release(&w[0]), weights_release(&w[1]);
    return same && found;
}

#endif
