/* A small synthetic world in a scratch folder, for tests of sweeps. */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include "check.h"
#include "cloob/cloob.h"
#include "core/file.h"
#include "core/json.h"
#include "lab/sweep/sweep.h"
#include "lab/synth/write.h"

static cloob_ctx *ctx;
static char root[512], train_data[600], val_data[600], classes[600], prompts[600];
static int steps_allowed;

/* For `should_stop`: stops after steps_allowed steps. */
static inline bool stop(void *user)
{
    (void)user;
    return --steps_allowed < 0;
}

/* Runs of a few steps on the world. */
static inline void world_options(cloob_train_options *o)
{
    o->train_data = train_data, o->val_data = val_data;
    o->model = "tiny", o->force_image_size = 32, o->vocab_size = 600;
    o->batch_size = 8, o->warmup = 1, o->workers = 0;
    o->device = "cpu", o->logs = root, o->report_to = "none";
}

/* Draws a world of `count` pairs and runs the tests, or skips them where images cannot be drawn. Returns the exit
 * code. */
static inline int world_run(int64_t count, void (*tests)(void))
{
    synth_options o;
    char world[600];
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!ctx) return 1;
    scratch_folder(root, sizeof root);
    snprintf(world, sizeof world, "%s/world", root);
    snprintf(train_data, sizeof train_data, "%s/world/train.tsv", root);
    snprintf(val_data, sizeof val_data, "%s/world/val.tsv", root);
    snprintf(classes, sizeof classes, "%s/world/classes/size", root);
    snprintf(prompts, sizeof prompts, "%s/world/prompts.json", root);
    synth_options_init(&o);
    o.out = world, o.count = count, o.size = 32;
    if (synth_write(ctx, &o, NULL) == CLOOB_OK) tests();
    else printf("skipped: %s\n", cloob_error(ctx));
    check_remove(root);
    cloob_ctx_destroy(ctx);
    return check_summary();
}

#endif
