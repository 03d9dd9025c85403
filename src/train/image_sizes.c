/* A schedule of image sizes: small images in the first epochs, larger ones later.
 *
 * Each stage has its own step and loader. Between two stages the state of the run is copied through host memory, as
 * through a checkpoint: weights, moments, averages, counters. Only the positional embeddings depend on the image size;
 * they and their state are resampled (weights_resize_images), so the optimizer needs no new warm-up. The checkpoint of
 * the epoch before has the old size: a run resumed from it changes the size at the same point and gives the same bytes.
 */
#include <stdlib.h>

#include "model/weights.h"

#include "train/run_loop.h"
#include "train/settings.h"

/* A number above 0 at *at: moves after it. */
static bool take_number(const char **at, int64_t *out)
{
    char *end;
    long long n = strtoll(*at, &end, 10);
    if (end == *at || n < 1 || n > 1000000000 || **at < '0' || **at > '9') return false;
    *at = end;
    *out = n;
    return true;
}

int settings_image_stages(const char *text, image_stage stage[IMAGE_STAGES])
{
    int n = 0;
    for (const char *at = text; at && n < IMAGE_STAGES; at++) {
        image_stage *s = &stage[n];
        s->epoch = 1;
        if (!take_number(&at, &s->size) || s->size > 65536) return 0;
        if (*at == '@' && (at++, !take_number(&at, &s->epoch))) return 0;
        s->epoch--;
        if (n == 0 ? s->epoch != 0 : s->epoch <= stage[n - 1].epoch) return 0;
        n++;
        if (!*at) return n;
        if (*at != ',') return 0;
    }
    return 0;
}

int64_t settings_image_size(const cloob_train_options *o, int64_t epoch)
{
    image_stage stage[IMAGE_STAGES];
    int n = settings_image_stages(o->image_size_schedule, stage), i = 0;
    while (i + 1 < n && stage[i + 1].epoch <= epoch) i++;
    return n ? stage[i].size : 0;
}

int64_t settings_largest_image(const cloob_train_options *o)
{
    image_stage stage[IMAGE_STAGES];
    int64_t largest = 0;
    for (int n = settings_image_stages(o->image_size_schedule, stage); n > 0; n--)
        if (stage[n - 1].size > largest) largest = stage[n - 1].size;
    return largest;
}

cloob_status run_check_stages(cloob_ctx *ctx, const run *r)
{
    image_stage stage[IMAGE_STAGES];
    model_config c = r->so.model;
    for (int n = settings_image_stages(r->o->image_size_schedule, stage); n > 0; n--) {
        c.image_size = stage[n - 1].size;
        CLOOB_TRY(model_config_check(ctx, &c));
    }
    return CLOOB_OK;
}

/* Frees everything of the old size first: both might not fit into device memory. */
static cloob_status recreate_step(cloob_ctx *ctx, run *r, weights *w, int64_t size)
{
    run_position same;
    CLOOB_TRY(run_count_bad(ctx, r));
    step_destroy(r->s);
    loader_destroy(r->batches);
    r->s = NULL, r->batches = NULL;
    r->so.model.image_size = size;
    CLOOB_TRY(comm_agree(ctx, r->c, run_check_memory(ctx, r)));
    CLOOB_TRY(run_make_step(ctx, r));
    if (r->layers) { /* they refer to the parameters of the old step */
        layer_norms_destroy(r->layers), r->layers = NULL;
        CLOOB_TRY(layer_norms_create(ctx, r->log, step_params(r->s), &r->layers));
    }
    CLOOB_TRY(comm_agree(ctx, r->c, checkpoint_apply(ctx, w, "the stage before", r->s, &same)));
    step_set_draws(r->s, (uint64_t)r->at.seed, r->at.updates);
    CLOOB_TRY(comm_agree(ctx, r->c, run_open_loader(ctx, r)));
    return comm_agree(ctx, r->c, loader_seek(ctx, r->batches, r->at.epoch, r->at.step_in_epoch));
}

cloob_status run_enter_stage(cloob_ctx *ctx, run *r)
{
    int64_t size = settings_image_size(r->o, r->at.epoch), before = r->so.model.image_size;
    weights w;
    if (size == 0 || size == before) return CLOOB_OK;
    checkpoint_meta meta = run_meta(r);
    weights_init(&w);
    cloob_status status = checkpoint_gather(ctx, r->s, &r->at, &meta, &w);
    if (status == CLOOB_OK) status = weights_resize_images(ctx, &w, size);
    status = comm_agree(ctx, r->c, status);
    if (status == CLOOB_OK) status = recreate_step(ctx, r, &w, size);
    weights_release(&w);
    if (status == CLOOB_OK)
        journal_line(ctx, r->log, "epoch %lld: images of %lld px from here on, %lld before", (long long)r->at.epoch + 1,
                     (long long)size, (long long)before);
    return status;
}
