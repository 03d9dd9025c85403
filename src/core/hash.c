/* XXH64: four lanes of 8 bytes, a tail, an avalanche. Little-endian reads. */
#include "core/hash.h"

#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static inline uint64_t rotl(uint64_t v, int n) { return v << n | v >> (64 - n); }
static inline uint64_t mix(uint64_t acc, uint64_t word) { return rotl(acc + word * P2, 31) * P1; }
static inline uint64_t join(uint64_t h, uint64_t lane) { return (h ^ mix(0, lane)) * P1 + P4; }

static inline uint64_t load64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint64_t load32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* All whole blocks of 32 bytes; *p and *n are moved behind them. */
static uint64_t blocks(uint64_t seed, const unsigned char **p, size_t *n)
{
    const unsigned char *q = *p;
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
    for (; *n >= 32; q += 32, *n -= 32) {
        a = mix(a, load64(q));
        b = mix(b, load64(q + 8));
        c = mix(c, load64(q + 16));
        d = mix(d, load64(q + 24));
    }
    *p = q;
    uint64_t h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
    return join(join(join(join(h, a), b), c), d);
}

uint64_t hash64(uint64_t seed, const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t n = size;
    uint64_t h = (n >= 32 ? blocks(seed, &p, &n) : seed + P5) + (uint64_t)size;
    for (; n >= 8; p += 8, n -= 8) h = rotl(h ^ mix(0, load64(p)), 27) * P1 + P4;
    for (; n >= 4; p += 4, n -= 4) h = rotl(h ^ load32(p) * P1, 23) * P2 + P3;
    for (; n > 0; p++, n--) h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
