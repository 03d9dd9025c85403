/* Results as a table: a row per data set and task, a column per model, the main metric in the cells. */
#ifndef BENCHMARK_TABLE_H
#define BENCHMARK_TABLE_H

#include "lab/suite/benchmark.h"
#include "core/arena.h"

typedef struct bench_row {
    const char *name, *metric; /* metric "": the set has no main metric, or is not there */
    const double *value;       /* (models) NaN: not evaluated */
    bool there;                /* some model was evaluated */
} bench_row;

typedef struct bench_table {
    const char **model; /* (models) names that tell them apart */
    int64_t models;
    bench_row *row;
    int64_t rows;
    int64_t missing; /* of DataComp's sets that count */
} bench_table;

/* datacomp: its sets first, in its order, all of them; then means over groups of them; then whatever else was
 * evaluated. Everything is in the arena; false: memory is out. */
bool bench_table_make(arena *a, const benchmark_result *r, int64_t n, bool datacomp, bench_table *out);

#endif
