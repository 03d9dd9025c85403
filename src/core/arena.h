/* An arena: one block per lifetime, allocated from the front and freed at once.
 *
 *     arena a = { 0 };
 *     char *name = arena_push(&a, n);       NULL when out of memory
 *     arena_release(&a);
 *
 * Memory is zeroed and aligned to 64 bytes. The arena grows by whole blocks, so pointers stay valid. */
#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena_block arena_block;

typedef struct arena {
    arena_block *head;
    size_t total_bytes; /* allocated so far */
} arena;

void *arena_push(arena *a, size_t bytes);
char *arena_string(arena *a, const char *text);                 /* a copy */
char *arena_string_n(arena *a, const char *text, size_t bytes); /* a copy, zero-terminated */
/* Makes space for one more element of `size` bytes in an array of `count` elements with capacity *room: a full array is
 * replaced by a copy of twice the size (`first` elements at the beginning). Returns the array; NULL: out of memory. */
void *arena_grow(arena *a, void *array, int64_t count, int64_t *room, int64_t first, size_t size);
/* The same on the heap, which the caller frees: array is the address of the pointer. False: out of memory, and nothing
 * changed. */
bool heap_grow(void *array, int64_t count, int64_t *room, size_t size);
void arena_release(arena *a); /* frees all; the arena may be used again */

#endif
