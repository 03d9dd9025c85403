/* Whole blocks of bf16. */
#include "tensor/cpu/bf16.h"

#include "tensor/cpu/clones.h"

CPU_CLONES void bf16_round(uint16_t *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = bf16_down(from[i]);
}
