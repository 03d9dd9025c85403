/* Configurations of open_clip and Hugging Face from arbitrary JSON; one that is accepted is written and read again. */
#include <stdlib.h>

#include "core/arena.h"
#include "core/json.h"
#include "fuzz.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    arena a = { 0 };
    json *root;
    model_config c, again;
    sbuf text = { 0 };
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (json_parse(ctx, &a, (const char *)data, size, "fuzz", &root) == CLOOB_OK &&
        model_config_from_json(ctx, root, "fuzz", &c) == CLOOB_OK && model_config_check(ctx, &c) == CLOOB_OK) {
        model_config_to_json(&c, &text);
        if (json_parse(ctx, &a, text.data, text.len, "again", &root) != CLOOB_OK ||
            model_config_from_json(ctx, root, "again", &again) != CLOOB_OK)
            abort();
    }
    sbuf_release(&text);
    arena_release(&a);
    return 0;
}
