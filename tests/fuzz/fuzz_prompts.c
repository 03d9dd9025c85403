/* Prompt files as JSON and as people publish them; what is accepted must survive being saved and read. */
#include <stdlib.h>

#include "data/text/prompts.h"
#include "fuzz.h"

static void check_saved(cloob_ctx *ctx, const prompts *p)
{
    sbuf saved = { 0 };
    prompts again;
    prompts_put(p, &saved);
    if (!saved.failed && prompts_parse(ctx, saved.data, saved.len, "saved", &again) != CLOOB_OK) abort();
    if (again.count != p->count) abort();
    prompts_release(&again);
    sbuf_release(&saved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    prompts p = { 0 };
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (prompts_parse(ctx, (const char *)data, size, "fuzz", &p) == CLOOB_OK) check_saved(ctx, &p);
    prompts_release(&p);
    if (prompts_import_text(ctx, (const char *)data, size, "fuzz", &p) == CLOOB_OK) check_saved(ctx, &p);
    prompts_release(&p);
    return 0;
}
