/* Search indexes from arbitrary bytes; one that opens is asked. */
#include <stdlib.h>

#include "cloob/search.h"
#include "fuzz.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    char path[64];
    cloob_search *s;
    cloob_search_hit hit[4];
    int64_t found = 0;
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!memory_file(data, size, path) || cloob_search_open(ctx, path, &s) != CLOOB_OK) return 0;
    float *query = calloc((size_t)cloob_search_width(s) + 1, sizeof *query);
    if (query) query[0] = 1;
    if (query && cloob_search_query(ctx, s, query, cloob_search_width(s), 4, hit, &found) == CLOOB_OK)
        cloob_search_hits_release(hit, found);
    free(query);
    cloob_search_close(s);
    return 0;
}
