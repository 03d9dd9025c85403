/* A list of data derived from weights. A tower has about fifty weights, so a hash table is not needed. */
#include <stdlib.h>

#include "nn/op.h"

typedef struct entry {
    const void *weight;
    void *data;
    struct entry *next;
} entry;

struct weight_cache {
    entry *first;
    void (*packed)(void *user, const void *weight, size_t bytes);
    void *user;
};

weight_cache *weight_cache_create(void) { return calloc(1, sizeof(weight_cache)); }

void weight_cache_destroy(weight_cache *k)
{
    while (k && k->first) {
        entry *e = k->first;
        k->first = e->next;
        free(e->data);
        free(e);
    }
    free(k);
}

void *weight_cache_find(const weight_cache *k, const void *weight)
{
    for (const entry *e = k ? k->first : NULL; e; e = e->next)
        if (e->weight == weight) return e->data;
    return NULL;
}

void *weight_cache_get(weight_cache *k, const void *weight, size_t bytes, bool *fresh)
{
    void *there = weight_cache_find(k, weight);
    *fresh = !there;
    if (there || !k) return there;
    entry *e = malloc(sizeof *e);
    void *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!e || !data) {
        free(e), free(data);
        return NULL;
    }
    *e = (entry){ weight, data, k->first };
    k->first = e;
    return data;
}

void weight_cache_on_packed(weight_cache *k, void (*fn)(void *user, const void *weight, size_t bytes), void *user)
{
    k->packed = fn, k->user = user;
}

void weight_cache_packed(const weight_cache *k, const void *weight, size_t bytes)
{
    if (k && k->packed) k->packed(k->user, weight, bytes);
}
