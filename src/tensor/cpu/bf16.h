/* bf16 in vector loops: the two conversions without branches, equal to tensor.h's for every value. */
#ifndef TENSOR_CPU_BF16_H
#define TENSOR_CPU_BF16_H

#include <stdint.h>

static inline float bf16_up(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = { (uint32_t)h << 16 };
    return v.f;
}

/* To nearest, ties to even; a NaN stays one (its quiet bit is set, so that cutting it off cannot make it infinite). */
static inline uint16_t bf16_down(float x)
{
    union {
        float f;
        uint32_t u;
    } v = { x };
    uint32_t rounded = (v.u + 0x7FFFu + ((v.u >> 16) & 1u)) >> 16, nan = (v.u >> 16) | 0x40u;
    return (uint16_t)((v.u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

/* n floats at once, on the calling thread. */
void bf16_round(uint16_t *to, const float *from, int64_t n);

#endif
