#include "fuzz.h"
#include "io/torch/torchfile.h"

/* Bytes that are no torch file go to the pickle reader alone, which a zip around them would only hide. */
static void pickle_only(cloob_ctx *ctx, const uint8_t *data, size_t size)
{
    arena a = { 0 };
    pk_result r;
    (void)!pickle_read(ctx, &a, data, size, "fuzz", false, &r);
    arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    torch_file f;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (!torch_looks_like(data, size)) pickle_only(ctx, data, size);
    else if (torch_open_bytes(ctx, data, size, "fuzz", &f) == CLOOB_OK) {
        volatile unsigned char sum = 0;
        for (int64_t i = 0; i < f.count; i++) /* every byte a tensor claims must be readable */
            for (size_t b = 0; b < tensor_bytes(&f.entry[i].t); b++) sum ^= ((unsigned char *)f.entry[i].t.data)[b];
        torch_close(&f);
    }
    return 0;
}
