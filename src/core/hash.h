/* Hashes: a fast one that detects damage and edits, and the two by which others name their files. */
#ifndef CORE_HASH_H
#define CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 (its public specification): about 10 GB/s on one core, far faster than a disk; not cryptographic. */
uint64_t hash64(uint64_t seed, const void *data, size_t size);

/* FNV-1a of some bytes, continued from h: for tables and short texts. */
#define FNV_START UINT64_C(0xCBF29CE484222325)
static inline uint64_t fnv_add(uint64_t h, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001B3u;
    return h;
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
