/* A chain of blocks; the newest is carved from. */
#include "core/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, BLOCK_BYTES = 1 << 16 };

struct arena_block {
    arena_block *next;
    size_t used, size;
};

static arena_block *block_create(size_t bytes)
{
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    arena_block *b = aligned_alloc(ALIGN, ALIGN + size);
    if (!b) return NULL;
    memset((char *)b + ALIGN, 0, size);
    *b = (arena_block){ .next = NULL, .used = 0, .size = size };
    return b;
}

void *arena_push(arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * ALIGN) return NULL;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!a->head || a->head->size - a->head->used < bytes) {
        arena_block *b = block_create(bytes);
        if (!b) return NULL;
        b->next = a->head;
        a->head = b;
    }
    void *p = (char *)a->head + ALIGN + a->head->used;
    a->head->used += bytes;
    a->total_bytes += bytes;
    return p;
}

void *arena_grow(arena *a, void *array, int64_t count, int64_t *room, int64_t first, size_t size)
{
    if (count < *room) return array;
    int64_t wider = *room ? 2 * *room : first;
    void *more = arena_push(a, (size_t)wider * size);
    if (!more) return NULL;
    if (count) memcpy(more, array, (size_t)count * size);
    *room = wider;
    return more;
}

bool heap_grow(void *array, int64_t count, int64_t *room, size_t size)
{
    void *now;
    if (count < *room) return true;
    int64_t wider = *room ? 2 * *room : 64;
    memcpy(&now, array, sizeof now); /* any pointer to an object */
    now = (uint64_t)wider > SIZE_MAX / size ? NULL : realloc(now, (size_t)wider * size);
    if (!now) return false;
    memcpy(array, &now, sizeof now);
    *room = wider;
    return true;
}

char *arena_string_n(arena *a, const char *text, size_t bytes)
{
    char *copy = arena_push(a, bytes + 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

char *arena_string(arena *a, const char *text) { return arena_string_n(a, text, strlen(text)); }

void arena_release(arena *a)
{
    for (arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (arena){ 0 };
}
