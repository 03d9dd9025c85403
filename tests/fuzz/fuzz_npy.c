/* Arrays of NumPy out of arbitrary bytes: labels and metadata next to the images of a data set. */
#include <stdlib.h>

#include "fuzz.h"
#include "io/rows_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    double out[64];
    int64_t n;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (npy_numbers(ctx, data, size, "fuzz", out, 64, &n) == CLOOB_OK && (n < 0 || n > 64)) abort();
    return 0;
}
