/* Builds the towers of a step, and chooses the numbers of rows of packed texts. */
#include "train/step_impl.h"

enum { ALIGN = 16 }; /* rows: whole tiles of the GEMMs */

static tower_options options_of(const step_options *o, const device *dev, const params *p, bool text)
{
    bool gpu = dev->backend == BACKEND_CUDA;
    tower_options t = { .batch = o->batch,
                        .train = true,
                        .backward = params_trains(p, text),
                        .kept = text ? 0 : model_config_patches_kept(&o->model),
                        .float_images = o->float_images,
                        .gpu_input = gpu,
                        .fuse_gemm = gpu,
                        .fp8 = gpu ? o->fp8 : OP_FP8_NEVER,
                        .grad = o->grad };
    if (gpu && o->model.family != MODEL_RESNET && !t.grad.checkpoint && !o->save_memory) t.grad.recompute = false;
    return t;
}

/* Fractions of the rows of full-length texts, a fifth to a third apart. Batches of one data set have nearly the same
 * mean length, so a run uses one or two of them; captions of 14 tokens on average, of 77, use a fifth. */
static int rows_of(int64_t batch, int64_t tokens, int64_t rows[TOWER_SIZES])
{
    static const int64_t parts[TOWER_SIZES] = { 8, 6, 5, 4, 3, 2, 1 };
    int64_t whole = batch * tokens;
    int count = 0;
    for (int i = 0; i < TOWER_SIZES; i++) {
        int64_t share = (whole + parts[i] - 1) / parts[i], r = (share + ALIGN - 1) / ALIGN * ALIGN;
        if (r > whole) r = whole;
        if (count == 0 || r > rows[count - 1]) rows[count++] = r;
    }
    return count;
}

cloob_status towers_build(cloob_ctx *ctx, const step_options *o, const device *dev, const params *p, bool text,
                          towers *t)
{
    tower_options options = options_of(o, dev, p, text);
    bool packed = text && o->pack_texts && model_config_text_ends(&p->config);
    *t = (towers){ 0 };
    int sizes = packed ? rows_of(o->batch, o->model.context, t->rows) : 1;
    for (t->count = 0; t->count < sizes;) {
        graph *g = &t->g[t->count];
        if (packed) options.rows = t->rows[t->count];
        t->count++;
        CLOOB_TRY(text ? tower_text(ctx, p, &options, g) : tower_image(ctx, p, &options, g));
    }
    return CLOOB_OK;
}

void towers_release(towers *t)
{
    for (int i = 0; i < t->count; i++) graph_release(&t->g[i]);
    t->count = 0;
}

int towers_choose(const model_config *c, const int64_t *rows, int count, const int32_t *tokens, int64_t batch,
                  int64_t T)
{
    int64_t need = 0;
    int i = 0;
    for (int64_t n = 0; n < batch; n++) need += tower_text_length(c, tokens + n * T, T);
    while (i + 1 < count && rows[i] < need) i++;
    return i;
}
