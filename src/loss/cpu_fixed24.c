/* Packs f32 matrices to 24 bits per element. A matrix may share memory with its high halves: elements move through a
 * small block, packing goes up through the rows and unpacking down, so nothing is overwritten before it is read. */
#include "loss/cpu.h"

#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "tensor/cpu/clones.h"

enum { BLOCK = 256 };

static const double steps = (1 << 23) - 1;

typedef struct block {
    float value[BLOCK];
    int16_t high[BLOCK];
    uint8_t low[BLOCK];
} block;

/* The largest |m|; not finite when any element is not. Magnitudes are compared as the integers they are in
 * memory, where NaN is the largest. */
CPU_CLONES static double largest(const float *m, int64_t d)
{
    uint32_t top = 0;
    float value;
    for (int64_t i = 0; i < d; i++) {
        uint32_t bits;
        memcpy(&bits, m + i, sizeof bits);
        bits &= 0x7fffffffu;
        top = bits > top ? bits : top;
    }
    memcpy(&value, &top, sizeof value);
    return (double)value;
}

CPU_CLONES static void to_fixed(block *b, int64_t n, double scale)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t q = scale > 0 ? (int32_t)rint((double)b->value[i] * scale) : 0;
        b->high[i] = (int16_t)(q >> 8);
        b->low[i] = (uint8_t)(q & 255);
    }
}

CPU_CLONES static void to_float(block *b, int64_t n, double step)
{
    for (int64_t i = 0; i < n; i++) b->value[i] = (float)((double)(b->high[i] * 256 + b->low[i]) * step);
}

/* Elements [k, k + n), n at most BLOCK. */
static void pack_block(const fixed24 *r, const float *m, int64_t k, int64_t n, double scale)
{
    block b;
    memcpy(b.value, m + k, (size_t)n * sizeof *b.value);
    to_fixed(&b, n, scale);
    memcpy(r->high + k, b.high, (size_t)n * sizeof *b.high);
    memcpy(r->low + k, b.low, (size_t)n);
}

static void unpack_block(const fixed24 *r, float *m, int64_t k, int64_t n, double step)
{
    block b;
    memcpy(b.high, r->high + k, (size_t)n * sizeof *b.high);
    memcpy(b.low, r->low + k, (size_t)n);
    to_float(&b, n, step);
    memcpy(m + k, b.value, (size_t)n * sizeof *b.value);
}

void fixed24_pack(const fixed24 *r, const float *m)
{
    for (int64_t i = 0; i < r->n; i++) {
        double top = largest(m + i * r->d, r->d), scale = top > 0 ? steps / top : 0;
        r->step[i] = isfinite(top) ? top / steps : (double)NAN;
        for (int64_t k = 0; k < r->d; k += BLOCK)
            pack_block(r, m, i * r->d + k, min64(BLOCK, r->d - k), isfinite(top) ? scale : 0);
    }
}

void fixed24_unpack(const fixed24 *r, float *m)
{
    for (int64_t i = r->n - 1; i >= 0; i--)
        for (int64_t k = (r->d - 1) / BLOCK * BLOCK; k >= 0; k -= BLOCK)
            unpack_block(r, m, i * r->d + k, min64(BLOCK, r->d - k), r->step[i]);
}
