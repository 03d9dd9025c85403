/* How long a query of an index of random rows takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/file.h"
#include "core/limits.h"
#include "core/needs.h"
#include "core/rng.h"
#include "infer/search_index.h"
#include "lab/bench/bench.h"

static void random_unit(float *row, int64_t D, uint64_t key)
{
    double square = 0;
    for (int64_t k = 0; k < D; k++) {
        row[k] = (float)rng_uniform(key, (uint64_t)k) - 0.5f; /* a direction; its law does not matter here */
        square += (double)row[k] * row[k];
    }
    for (int64_t k = 0; k < D; k++) row[k] = (float)((double)row[k] / sqrt(square));
}

static cloob_status write_random(cloob_ctx *ctx, const char *path, int64_t n, int64_t D)
{
    float *row = malloc((size_t)((n + 1) * D) * sizeof *row);
    const char **name = malloc((size_t)n * sizeof *name);
    int64_t *zero = calloc((size_t)n, sizeof *zero);
    cloob_status status = row && name && zero ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(n * D) * 4, "random rows");
    for (int64_t i = 0; i <= n && status == CLOOB_OK; i++) random_unit(row + i * D, D, rng_subkey(1, (uint64_t)i));
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) name[i] = "image.jpg";
    if (status == CLOOB_OK)
        status = search_index_write(ctx, path, &(search_origin){ "", "", "", "" }, row, row + n * D, D,
                                    &(search_names){ n, name, zero, zero }, NULL);
    free(row), free(name), free(zero);
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static cloob_status time_queries(cloob_ctx *ctx, const cloob_search *s, int repeats, double *ms)
{
    float *query = malloc((size_t)s->D * sizeof *query);
    double *took = malloc((size_t)repeats * sizeof *took);
    cloob_status status = query && took ? CLOOB_OK : ctx_no_memory(ctx, (size_t)s->D * 4, "a row");
    for (int r = 0; r < repeats && status == CLOOB_OK; r++) {
        cloob_search_hit hit[10];
        int64_t found;
        random_unit(query, s->D, rng_subkey(2, (uint64_t)r));
        double from = clock_seconds();
        status = cloob_search_query(ctx, s, query, cloob_search_width(s), 10, hit, &found);
        took[r] = 1e3 * (clock_seconds() - from);
        cloob_search_hits_release(hit, found);
    }
    if (status == CLOOB_OK) {
        qsort(took, (size_t)repeats, sizeof *took, by_value);
        *ms = took[repeats / 2];
    }
    free(query), free(took);
    return status;
}

cloob_status search_bench(cloob_ctx *ctx, const char *path, int64_t n, int64_t dim, int repeats, double *ms)
{
    API_NEEDS(ctx, path && ms && n >= 0);
    cloob_search *s;
    if (n < 1 || dim < 1 || repeats < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "n, dim and repeats must be above 0");
    if (file_exists(path)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: is there already", path);
    CLOOB_TRY(write_random(ctx, path, n, dim));
    cloob_status status = cloob_search_open(ctx, path, &s);
    if (status == CLOOB_OK) status = time_queries(ctx, s, repeats, ms);
    cloob_search_close(s);
    remove(path);
    return status;
}
