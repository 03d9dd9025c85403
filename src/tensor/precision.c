#include "tensor/precision.h"

#include <string.h>

#include "tensor/cpu/gemm_kernels.h"

static const precision table[] = {
    { .name = "fp32", .compute = CLOOB_F32 },
    { .name = "bf16", .compute = CLOOB_BF16 },
    { .name = "amp_bf16", .compute = CLOOB_BF16 },
    { .name = "f16", .compute = CLOOB_F32, .half = true },
    { .name = "fp16", .compute = CLOOB_F32, .half = true },
    { .name = "int8", .compute = CLOOB_F32, .int8 = true },
    { .name = "fp8", .compute = CLOOB_BF16, .fp8 = true },
    { .name = "auto", .compute = CLOOB_F32, .automatic = true },
};

static bool serves(const precision *p, bool training)
{
    return !training || !(p->int8 || p->fp8 || p->half || p->automatic);
}

cloob_status precision_find(cloob_ctx *ctx, const char *name, bool training, precision *out)
{
    if (!name) name = "fp32";
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(name, table[i].name) == 0 && serves(&table[i], training)) {
            *out = table[i];
            if (out->int8 && gemm_is_fast(GEMM_U8)) out->compute = CLOOB_BF16;
            return CLOOB_OK;
        }
    if ((strcmp(name, "f16") == 0 || strcmp(name, "fp16") == 0) && training)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "`precision` %s: use amp_bf16, which needs no loss scaling", name);
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "precision %s: choose %s", name,
                    training ? "fp32 or bf16" : "fp32, bf16, f16, auto, int8 (on a CPU) or fp8 (on a GPU)");
}

static bool uses(gemm_kind kind, const char *instructions) { return strstr(gemm_best(kind)->name, instructions); }

/* AVX512-BF16 does twice the work of fp32, VNNI four times; all processors with the first have the second. */
precision_choice precision_of_device(const device *dev)
{
    if (dev->backend == BACKEND_CUDA) return (precision_choice){ "bf16", "tensor cores" };
    if (dev->backend == BACKEND_REF) return (precision_choice){ "fp32", "the plain C definition" };
    if (uses(GEMM_BF16, "amx")) return (precision_choice){ "bf16", "AMX multiplies bf16" };
    if (gemm_is_fast(GEMM_U8)) return (precision_choice){ "int8", "VNNI multiplies 8 bits" };
    if (uses(GEMM_F32, "avx512")) return (precision_choice){ "fp32", "AVX-512 without VNNI" };
    if (gemm_is_fast(GEMM_I8)) return (precision_choice){ "int8", "AVX2 multiplies 8 bits" };
    return (precision_choice){ "fp32", "no instructions for less" };
}

cloob_status precision_settle(cloob_ctx *ctx, const device *dev, const char *stated, precision *p)
{
    if (!p->automatic) return CLOOB_OK;
    precision_choice is = stated ? (precision_choice){ stated, "stated by the weights" } : precision_of_device(dev);
    CLOOB_TRY(precision_find(ctx, is.name, false, p));
    ctx_log(ctx, CLOOB_LOG_INFO, "precision %s: %s%s", is.name, is.why,
            stated                         ? ""
            : strcmp(is.name, "fp32") == 0 ? "; cosine with fp32 1"
                                           : "; cosine with fp32 0.999 or more on average");
    return CLOOB_OK;
}
