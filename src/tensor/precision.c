#include "tensor/precision.h"

#include <string.h>

static const precision table[] = {
    { "fp32", CLOOB_F32, false, false },      { "bf16", CLOOB_BF16, false, false },
    { "amp_bf16", CLOOB_BF16, false, false }, { "amp_fp8", CLOOB_BF16, true, false },
    { "int8", CLOOB_F32, false, true },
};

cloob_status precision_find(cloob_ctx *ctx, const char *name, bool training, precision *out)
{
    if (!name) name = "fp32";
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(name, table[i].name) == 0 && !(training ? table[i].int8 : table[i].fp8)) {
            *out = table[i];
            return CLOOB_OK;
        }
    if (strcmp(name, "fp16") == 0 && training)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "`precision` fp16: use amp_bf16, which needs no loss scaling");
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "precision %s: choose fp32, bf16 or, on a %s", name,
                    training ? "GPU, amp_fp8" : "CPU, int8");
}
