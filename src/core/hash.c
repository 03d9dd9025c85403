/* XXH64: four lanes of 8 bytes, a tail, an avalanche; little-endian reads. SHA-1 and SHA-256 (FIPS 180-4): blocks of 64
 * bytes, words big-endian, the length in bits at the end. */
#include "core/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- XXH64 ---------------------------------------------------------------------------------------- */

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static inline uint64_t rotl64(uint64_t v, int n) { return v << n | v >> (64 - n); }
static inline uint64_t mix(uint64_t acc, uint64_t word) { return rotl64(acc + word * P2, 31) * P1; }
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

/* Hashes all whole blocks of 32 bytes and advances *p and *n past them. */
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
    uint64_t h = rotl64(a, 1) + rotl64(b, 7) + rotl64(c, 12) + rotl64(d, 18);
    return join(join(join(join(h, a), b), c), d);
}

uint64_t hash64(uint64_t seed, const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t n = size;
    uint64_t h = (n >= 32 ? blocks(seed, &p, &n) : seed + P5) + (uint64_t)size;
    for (; n >= 8; p += 8, n -= 8) h = rotl64(h ^ mix(0, load64(p)), 27) * P1 + P4;
    for (; n >= 4; p += 4, n -= 4) h = rotl64(h ^ load32(p) * P1, 23) * P2 + P3;
    for (; n > 0; p++, n--) h = rotl64(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

/* ---- the table: open addressing, half full at most -------------------------------------------------- */

bool hash_map_reserve(hash_map *m, uint64_t keys)
{
    hash_map bigger = { .mask = 63 };
    while (bigger.mask < 2 * keys) bigger.mask = 2 * bigger.mask + 1;
    if (m->entry && bigger.mask <= m->mask) return true;
    bigger.entry = malloc((bigger.mask + 1) * sizeof *bigger.entry);
    if (!bigger.entry) return false;
    memset(bigger.entry, 0xFF, (bigger.mask + 1) * sizeof *bigger.entry);
    for (uint64_t i = 0; m->entry && i <= m->mask; i++)
        if (m->entry[i].value >= 0) *hash_map_entry_of(&bigger, m->entry[i].key) = m->entry[i];
    bigger.used = m->used;
    free(m->entry);
    *m = bigger;
    return true;
}

int64_t *hash_map_put(hash_map *m, uint64_t key)
{
    if ((!m->entry || 2 * m->used >= m->mask) && !hash_map_reserve(m, m->used + 1)) return NULL;
    struct hash_map_entry *e = hash_map_entry_of(m, key);
    if (e->value < 0) e->key = key, m->used++;
    return &e->value;
}

void hash_map_release(hash_map *m)
{
    free(m->entry);
    *m = (hash_map){ 0 };
}

/* ---- SHA ---------------------------------------------------------------------------------------- */

static inline uint32_t rotl(uint32_t v, int n) { return v << n | v >> (32 - n); }
static inline uint32_t rotr(uint32_t v, int n) { return v >> n | v << (32 - n); }

static inline uint32_t load_be(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void sha1_block(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++) w[i] = load_be(p + 4 * i);
    for (int i = 16; i < 80; i++) w[i] = rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999u
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu
                              : (b ^ c ^ d) + 0xca62c1d6u;
        uint32_t t = rotl(a, 5) + f + e + w[i];
        e = d, d = c, c = rotl(b, 30), b = a, a = t;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* Round k of eight: word a of the standard is v[-k & 7], b the next, and so on. */
static inline void sha256_round(uint32_t v[8], int k, uint32_t kw)
{
#define V(n) v[((n)-k) & 7]
    uint32_t a = V(0), e = V(4);
    uint32_t s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25), ch = (e & V(5)) ^ (~e & V(6));
    uint32_t s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22), maj = (a & V(1)) ^ (a & V(2)) ^ (V(1) & V(2));
    uint32_t t = V(7) + s1 + ch + kw;
    V(3) += t;
    V(7) = t + s0 + maj;
#undef V
}

static void sha256_block(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) w[i] = load_be(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i += 8) /* the words rotate by index instead of by assignment */
        for (int k = 0; k < 8; k++) sha256_round(v, k, K[i + k] + w[i + k]);
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

/* ---- any number of bytes ------------------------------------------------------------------------- */

static const uint32_t first_sha1[8] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
static const uint32_t first_sha256[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

void sha_begin(sha *s, sha_kind kind)
{
    *s = (sha){ .kind = kind, .block = kind == SHA_1 ? sha1_block : sha256_block };
    memcpy(s->h, kind == SHA_1 ? first_sha1 : first_sha256, sizeof s->h);
}

void sha_add(sha *s, const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t have = (size_t)(s->bytes % sizeof s->rest);
    s->bytes += size;
    if (have) {
        size_t n = sizeof s->rest - have < size ? sizeof s->rest - have : size;
        memcpy(s->rest + have, p, n);
        p += n, size -= n;
        if (have + n < sizeof s->rest) return;
        s->block(s->h, s->rest);
    }
    for (; size >= sizeof s->rest; p += sizeof s->rest, size -= sizeof s->rest) s->block(s->h, p);
    if (size) memcpy(s->rest, p, size);
}

void sha_end(sha *s, char hex[SHA_HEX])
{
    uint64_t bits = s->bytes * 8;
    unsigned char end[8], pad = 0x80;
    for (int i = 0; i < 8; i++) end[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha_add(s, &pad, 1);
    for (pad = 0; s->bytes % 64 != 56;) sha_add(s, &pad, 1);
    sha_add(s, end, sizeof end);
    for (int i = 0; i < (s->kind == SHA_1 ? 5 : 8); i++) snprintf(hex + 8 * i, 9, "%08x", s->h[i]);
}
