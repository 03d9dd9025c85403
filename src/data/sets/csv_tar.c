/* Images of a CSV that lie in one tar: found by name, read with one pread. */
#include <stdlib.h>
#include <string.h>

#include "data/sets/dataset_csv.h"

static int by_name(const void *a, const void *b, void *index)
{
    const tar_index *t = index;
    return strcmp(tar_name(t, *(const int64_t *)a), tar_name(t, *(const int64_t *)b));
}

cloob_status csv_open_tar(cloob_ctx *ctx, csv_set *c, const char *path, const char *cache)
{
    CLOOB_TRY(open_single(ctx, path, cache, &c->tar_files));
    CLOOB_TRY(tar_open(ctx, c->tar_files, 0, &c->tar));
    size_t n = (size_t)c->tar.count;
    c->by_name = malloc((n + 1) * sizeof *c->by_name);
    if (!c->by_name) return ctx_no_memory(ctx, n * sizeof *c->by_name, "the names in a tar");
    for (size_t i = 0; i < n; i++) c->by_name[i] = (int64_t)i;
    qsort_r(c->by_name, n, sizeof *c->by_name, by_name, &c->tar);
    return CLOOB_OK;
}

void csv_close_tar(csv_set *c)
{
    fileset_destroy(c->tar_files);
    tar_release(&c->tar);
    free(c->by_name);
}

static int64_t find(const csv_set *c, const char *name)
{
    for (int64_t low = 0, high = c->tar.count; low < high;) {
        int64_t middle = (low + high) / 2;
        int order = strcmp(tar_name(&c->tar, c->by_name[middle]), name);
        if (order == 0) return c->by_name[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

cloob_status csv_read_tar(cloob_ctx *ctx, const csv_set *c, const char *path, stored_sample *s)
{
    while (path[0] == '.' && path[1] == '/') path += 2;
    int64_t at = find(c, path);
    if (at < 0) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: not in %s", path, fileset_name(c->tar_files, 0));
    return stored_read(ctx, c->tar_files, 0, c->tar.member[at].offset, c->tar.member[at].size, s);
}
