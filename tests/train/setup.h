/* A step over procedural weights, images and texts, on a device of its own. */
#ifndef TESTS_TRAIN_SETUP_H
#define TESTS_TRAIN_SETUP_H

#include "../model/procedural.h"
#include "check.h"

#include "train/step.h"

typedef struct setup {
    device *dev;
    step *s;
    float *images;
    int32_t *tokens;
    int64_t image, context, D; /* elements of an image, of a text and of an embedding */
} setup;

/* With rows pairs; the step's own status, everything else is checked. */
static inline cloob_status setup_open(cloob_ctx *ctx, setup *u, const step_options *o, const char *where, int64_t rows)
{
    const model_config *c = &o->model;
    *u = (setup){ .image = 3 * c->image_size * c->image_size, .context = c->context, .D = c->embed };
    CHECK_OK(ctx, device_open(ctx, where, &u->dev));
    CLOOB_TRY(step_create(ctx, o, u->dev, NULL, &u->s));
    CHECK_OK(ctx, procedural_params(ctx, step_params(u->s)));
    u->images = malloc((size_t)(rows * u->image) * sizeof *u->images);
    u->tokens = malloc((size_t)(rows * u->context) * sizeof *u->tokens);
    procedural_images(u->images, rows, c->image_size);
    procedural_tokens(u->tokens, rows, c);
    return CLOOB_OK;
}

static inline void setup_close(setup *u)
{
    step_destroy(u->s);
    device_close(u->dev);
    free(u->images);
    free(u->tokens);
}

#endif
