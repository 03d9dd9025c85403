/* Checkpoints from arbitrary bytes, as a resumed run reads them: version, checksums, configuration, shapes. */
#include "fuzz.h"
#include "memory_file.h"
#include "model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    char path[64];
    weights w;
    bool stored;
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!memory_file(data, size, path)) return 0;
    if (weights_read_native(ctx, path, &w) != CLOOB_OK) return 0;
    (void)weights_verify(ctx, path, &w, &stored);
    weights_release(&w);
    return 0;
}
