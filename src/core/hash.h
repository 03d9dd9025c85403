/* XXH64 for checksums, SHA-1 and SHA-256 for the names that Git and Hugging Face give files, and a hash table. */
#ifndef CORE_HASH_H
#define CORE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* XXH64 (its public specification): about 10 GB/s on one core, far faster than a disk; not cryptographic. */
uint64_t hash64(uint64_t seed, const void *data, size_t size);

/* A hash of two numbers, different for every pair. */
static inline uint64_t hash_pair(int32_t a, int32_t b)
{
    return ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0x9E3779B97F4A7C15u;
}

/* FNV-1a of some bytes, continued from h: for tables and short texts. */
#define FNV_START UINT64_C(0xCBF29CE484222325)
static inline uint64_t fnv_add(uint64_t h, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001B3u;
    return h;
}

/* A table from 64-bit hashes to numbers from 0 on. Zero-initialised is empty.
 *
 *     int64_t *at = hash_map_put(&m, key);      NULL: out of memory
 *     if (*at < 0) *at = count++;          the key is new */
typedef struct hash_map {
    struct hash_map_entry {
        uint64_t key;
        int64_t value; /* below 0: no entry */
    } * entry;
    uint64_t mask, used;
} hash_map;

bool hash_map_reserve(hash_map *m, uint64_t keys); /* reserves space for this many; false: out of memory */
/* The key's value, valid until the next call; -1 for a new key, to be set by the caller. */
int64_t *hash_map_put(hash_map *m, uint64_t key);
void hash_map_release(hash_map *m);

static inline struct hash_map_entry *hash_map_entry_of(const hash_map *m, uint64_t key)
{
    uint64_t i = (key ^ key >> 29) & m->mask;
    for (; m->entry[i].value >= 0 && m->entry[i].key != key;) i = (i + 1) & m->mask;
    return &m->entry[i];
}

/* -1: the key is not in it. */
static inline int64_t hash_map_get(const hash_map *m, uint64_t key)
{
    return m->entry ? hash_map_entry_of(m, key)->value : -1;
}

/* SHA-1 names Git's blobs, SHA-256 the large files of Hugging Face.
 *
 *     sha s;
 *     char hex[SHA_HEX];
 *     sha_begin(&s, SHA_256);
 *     sha_add(&s, data, size);        as often as needed
 *     sha_end(&s, hex);               40 or 64 hexadecimal digits */
typedef enum sha_kind { SHA_1, SHA_256 } sha_kind;

enum { SHA_HEX = 65 };

typedef struct sha {
    sha_kind kind;
    uint32_t h[8];
    void (*block)(uint32_t h[8], const unsigned char *data); /* hashes 64 bytes */
    uint64_t bytes;
    unsigned char rest[64]; /* of a block that is not full */
} sha;

void sha_begin(sha *s, sha_kind kind);
void sha_add(sha *s, const void *data, size_t size);
void sha_end(sha *s, char hex[SHA_HEX]);

#endif
