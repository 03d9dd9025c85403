#include "tensor/precision.h"

#include <string.h>

static const precision table[] = {
    { .name = "fp32", .compute = CLOOB_F32 },
    { .name = "bf16", .compute = CLOOB_BF16 },
    { .name = "amp_bf16", .compute = CLOOB_BF16 },
    { .name = "amp_fp8", .compute = CLOOB_BF16, .fp8 = true },
    { .name = "int8", .compute = CLOOB_F32, .int8 = true },
    { .name = "fp8", .compute = CLOOB_BF16, .fp8_rows = true },
};

static bool serves(const precision *p, bool training) { return training ? !(p->int8 || p->fp8_rows) : !p->fp8; }

cloob_status precision_find(cloob_ctx *ctx, const char *name, bool training, precision *out)
{
    if (!name) name = "fp32";
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(name, table[i].name) == 0 && serves(&table[i], training)) {
            *out = table[i];
            return CLOOB_OK;
        }
    if (strcmp(name, "fp16") == 0 && training)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "`precision` fp16: use amp_bf16, which needs no loss scaling");
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "precision %s: choose fp32 or bf16; %s", name,
                    training ? "on a GPU also amp_fp8" : "on a CPU also int8, on a GPU also fp8");
}
