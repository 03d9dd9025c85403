/* Bodies of include/cloob/synth.h. */
#include "cloob/synth.h"

#include <stdio.h>

#include "lab/synth/write.h"
#include "core/needs.h"

void cloob_synth_options_init(cloob_synth_options *o)
{
    if (!o) return;
    *o = (cloob_synth_options){
        .count = 10000, .val_count = -1, .per_class = -1, .size = 64, .strength = SYNTH_STRENGTH, .shard_samples = 1000
    };
}

cloob_status cloob_synth_write(cloob_ctx *ctx, const cloob_synth_options *o, cloob_synth_result *r)
{
    API_NEEDS(ctx, o);
    return synth_write(ctx, o, r);
}

cloob_status cloob_synth_pair(cloob_ctx *ctx, const cloob_synth_options *o, int64_t index, uint8_t *rgb, char *caption,
                              size_t caption_bytes)
{
    API_NEEDS(ctx, o);
    synth_world w = { o->seed, o->strength };
    synth_scene scene;
    if (index < 0) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "pair %lld: they are numbered from 0", (long long)index);
    synth_draw(&w, SYNTH_TRAIN, index, &scene);
    if (caption) {
        sbuf text = { 0 };
        synth_caption(&scene, &text);
        if (text.failed) return ctx_no_memory(ctx, caption_bytes, "a caption");
        snprintf(caption, caption_bytes, "%s", text.data);
        sbuf_release(&text);
    }
    return rgb ? synth_render(ctx, &scene, o->size, rgb) : CLOOB_OK;
}

cloob_status cloob_synth_sheet(cloob_ctx *ctx, const cloob_synth_options *o, int rows, int columns, const char *path)
{
    API_NEEDS(ctx, o && path);
    synth_world w = { o->seed, o->strength };
    return synth_sheet(ctx, &w, rows, columns, o->size, path);
}
