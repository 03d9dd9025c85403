/* Files of an evaluation suite's results. */
#include <stdlib.h>

#include "cloob/cloob.h"
#include "fuzz.h"
#include "memory_file.h"
#include "lab/suite/benchmark.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    char path[64];
    benchmark_result result;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (!memory_file(data, size, path)) return 0;
    if (benchmark_read(ctx, path, &result) != CLOOB_OK) return 0;
    char *csv = benchmark_csv(&result, 1), *table = benchmark_table(&result, 1, true);
    free(csv), free(table);
    benchmark_release(&result);
    return 0;
}
