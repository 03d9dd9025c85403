/* The time of a query over an index of random unit rows.
 *
 *     bench_search [N] [DIM] [REPEATS]      100,000 rows of width 512, median of 20 queries; writes, maps and removes
 *                                           bench_search.tmp.safetensors
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/limits.h"
#include "core/rng.h"
#include "infer/search_index.h"
#include "lab/bench/bench.h"
#include "lab/memory.h"

static cloob_status write_random(cloob_ctx *ctx, const char *path, int64_t n, int64_t D)
{
    float *row = must(malloc((size_t)((n + 1) * D) * sizeof *row));
    search_entry *e = must(calloc((size_t)n + 1, sizeof *e));
    for (int64_t i = 0; i <= n; i++) random_unit(row + i * D, D, rng_subkey(1, (uint64_t)i));
    for (int64_t i = 0; i < n; i++) e[i] = (search_entry){ .name = "image.jpg", .row = row + i * D };
    cloob_status status = search_index_write(ctx, path, &(search_origin){ "", "", "", "" }, row + n * D, D, e, n);
    free(row), free(e);
    return status;
}

static cloob_status time_queries(cloob_ctx *ctx, const cloob_search *s, int repeats)
{
    float *query = must(malloc((size_t)s->D * sizeof *query));
    double *took = must(malloc((size_t)repeats * sizeof *took));
    cloob_status status = CLOOB_OK;
    for (int r = 0; r < repeats && status == CLOOB_OK; r++) {
        cloob_search_hit hit[10];
        int64_t found;
        random_unit(query, s->D, rng_subkey(2, (uint64_t)r));
        double from = clock_seconds();
        status = cloob_search_query(ctx, s, query, cloob_search_width(s), 10, hit, &found);
        took[r] = 1e3 * (clock_seconds() - from);
        cloob_search_hits_release(hit, found);
    }
    if (status == CLOOB_OK) printf("%.3f ms\n", median(took, repeats));
    free(query), free(took);
    return status;
}

int main(int argc, char **argv)
{
    static const char path[] = "bench_search.tmp.safetensors";
    int64_t n = argc > 1 ? atoll(argv[1]) : 100000, D = argc > 2 ? atoll(argv[2]) : 512;
    int repeats = argc > 3 ? atoi(argv[3]) : 20;
    cloob_ctx *ctx = must(cloob_ctx_create(NULL));
    cloob_search *s = NULL;
    if (n < 1 || D < 1 || repeats < 1) return 2;
    cloob_status status = write_random(ctx, path, n, D);
    if (status == CLOOB_OK) status = cloob_search_open(ctx, path, &s);
    if (status == CLOOB_OK) status = time_queries(ctx, s, repeats);
    if (status != CLOOB_OK) fprintf(stderr, "bench_search: %s\n", cloob_error(ctx));
    cloob_search_close(s);
    remove(path);
    cloob_ctx_destroy(ctx);
    return status != CLOOB_OK;
}
