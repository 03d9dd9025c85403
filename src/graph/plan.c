/* Largest first, each at the lowest offset that is free for its whole life. */
#include "graph/graph.h"

#include <stdlib.h>

enum { ALIGN = 256 };

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static bool overlap_in_time(const plan_item *a, const plan_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static int larger_first(const void *pa, const void *pb)
{
    const plan_item *a = *(const plan_item *const *)pa, *b = *(const plan_item *const *)pb;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int lower_first(const void *pa, const void *pb)
{
    const plan_item *a = *(const plan_item *const *)pa, *b = *(const plan_item *const *)pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* placed: sorted by offset. The first gap between neighbours in time that is wide enough. */
static size_t lowest_gap(const plan_item *it, plan_item *const *placed, int count)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        if (!overlap_in_time(it, placed[i])) continue;
        if (placed[i]->offset >= at + round_up(it->bytes)) break;
        size_t end = placed[i]->offset + round_up(placed[i]->bytes);
        if (end > at) at = end;
    }
    return at;
}

static void insert_by_offset(plan_item **placed, int count, plan_item *it)
{
    int i = count;
    while (i > 0 && lower_first(&it, &placed[i - 1]) < 0) placed[i] = placed[i - 1], i--;
    placed[i] = it;
}

cloob_status plan_offsets(cloob_ctx *ctx, plan_item *item, int count, size_t *arena_bytes)
{
    size_t room = (size_t)(count + 1) * sizeof(plan_item *);
    plan_item **order = malloc(room), **placed = malloc(room);
    int wanted = 0;
    *arena_bytes = 0;
    if (!order || !placed) {
        free(order);
        free(placed);
        return ctx_no_memory(ctx, 2 * room, "a memory plan");
    }
    for (int i = 0; i < count; i++)
        if (item[i].bytes) order[wanted++] = &item[i];
    qsort(order, (size_t)wanted, sizeof *order, larger_first);
    for (int i = 0; i < wanted; i++) {
        order[i]->offset = lowest_gap(order[i], placed, i);
        insert_by_offset(placed, i, order[i]);
        size_t end = order[i]->offset + round_up(order[i]->bytes);
        if (end > *arena_bytes) *arena_bytes = end;
    }
    free(order);
    free(placed);
    return CLOOB_OK;
}

size_t plan_lower_bound(const plan_item *item, int count, int nodes)
{
    size_t max = 0;
    for (int n = 0; n < nodes; n++) {
        size_t alive = 0;
        for (int i = 0; i < count; i++)
            if (item[i].bytes && item[i].first <= n && n <= item[i].last) alive += round_up(item[i].bytes);
        if (alive > max) max = alive;
    }
    return max;
}
