/* Files of predictions and of a benchmark's results: CSV, JSON lines, JSON. */
#include <stdlib.h>

#include "cloob/cloob.h"
#include "fuzz.h"
#include "memory_file.h"
#include "lab/suite/benchmark.h"
#include "infer/predictions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    char path[64];
    predictions *p = NULL;
    calibration c;
    paired_result r;
    benchmark_result result;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (!memory_file(data, size, path)) return 0;
    if (predictions_open(ctx, path, &p) == CLOOB_OK) {
        predictions_calibrate(ctx, p, 15, &c);
        predictions_compare(ctx, p, p, &(paired_options){ .resamples = 3, .level = 0.9 }, &r);
        predictions_close(p);
    }
    if (benchmark_read(ctx, path, &result) != CLOOB_OK) return 0;
    char *csv = benchmark_csv(&result, 1), *table = benchmark_table(&result, 1, true);
    free(csv), free(table);
    benchmark_release(&result);
    return 0;
}
