#include "core/json.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    arena a = { 0 };
    json *root;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    json_parse(ctx, &a, (const char *)data, size, "fuzz", &root);
    arena_release(&a);
    return 0;
}
