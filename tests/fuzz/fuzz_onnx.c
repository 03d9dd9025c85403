/* The ONNX writer over any configuration that is accepted: both towers of a model of zeros. What it cannot write it
 * refuses. */
#include <stdlib.h>

#include "core/arena.h"
#include "core/json.h"
#include "fuzz.h"
#include "model/interchange.h"
#include "model/params.h"
#include "scratch_folder.h"

enum { MOST = 1 << 18 }; /* elements of a tensor, and of all together 16 times as many: seconds are not the question */

static cloob_status fill(cloob_ctx *ctx, const model_config *c, weights *w)
{
    static float zeros[MOST];
    st_entry *row;
    int64_t count, sum = 0;
    w->config = *c;
    CLOOB_TRY(model_shapes(ctx, &w->a, c, &row, &count));
    for (int64_t i = 0; i < count; i++) {
        tensor t = row[i].t;
        int64_t n = tensor_count(&t);
        if (n > MOST || (sum += n) > 16 * (int64_t)MOST) return CLOOB_ERR_UNSUPPORTED;
        t.data = zeros;
        CLOOB_TRY(weights_add(ctx, w, row[i].name, &t));
    }
    return CLOOB_OK;
}

static bool is_small(const model_config *c)
{
    int64_t layers = c->layers[0] + c->layers[1] + c->layers[2] + c->layers[3];
    return layers <= 24 && c->text_layers <= 24 && c->image_size <= 64 && c->context <= 128 && c->width <= 256 &&
           c->text_width <= 256 && c->embed <= 256 && c->vocab <= 1024;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    arena a = { 0 };
    json *root;
    model_config c;
    weights w;
    char path[128];
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!scratch_folder()) return 0;
    snprintf(path, sizeof path, "%s/tower.onnx", scratch_path);
    weights_init(&w);
    if (json_parse(ctx, &a, (const char *)data, size, "fuzz", &root) == CLOOB_OK &&
        model_config_from_json(ctx, root, "fuzz", &c) == CLOOB_OK && model_config_check(ctx, &c) == CLOOB_OK &&
        is_small(&c) && fill(ctx, &c, &w) == CLOOB_OK) {
        if (onnx_write(ctx, path, &w, false) == CLOOB_ERR_MEMORY) abort();
        if (onnx_write(ctx, path, &w, true) == CLOOB_ERR_MEMORY) abort();
    }
    weights_release(&w);
    arena_release(&a);
    return 0;
}
