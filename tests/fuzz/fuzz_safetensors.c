#include "fuzz.h"
#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    st_file f;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (st_open_bytes(ctx, data, size, "fuzz", &f) == CLOOB_OK) {
        unsigned char sum = 0;
        for (int64_t i = 0; i < f.count; i++) /* every byte a tensor claims must be readable */
            for (size_t b = 0; b < tensor_bytes(&f.entry[i].t); b++) sum ^= ((unsigned char *)f.entry[i].t.data)[b];
        volatile unsigned char keep = sum;
        (void)keep;
        st_close(&f);
    }
    return 0;
}
