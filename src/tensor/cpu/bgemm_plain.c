/* The inner part in plain C: any machine. Tiles are turned into floats, a row of C is kept while it runs along K. */
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/bgemm_kernel.h"
#include "tensor/cpu/clones.h"

/* c[16][16] += a[16][32] b[16][16][2] */
CPU_INLINE void add_tile(float *restrict c, const uint16_t *restrict a, const float *restrict even,
                         const float *restrict odd)
{
    for (int i = 0; i < BGEMM_EDGE; i++) {
        float row[BGEMM_EDGE];
        for (int j = 0; j < BGEMM_EDGE; j++) row[j] = c[i * BGEMM_EDGE + j];
        for (int p = 0; p < BGEMM_EDGE; p++) {
            float a0 = bf16_up(a[i * BGEMM_STEP + 2 * p]), a1 = bf16_up(a[i * BGEMM_STEP + 2 * p + 1]);
            for (int j = 0; j < BGEMM_EDGE; j++) row[j] += a0 * even[p * BGEMM_EDGE + j] + a1 * odd[p * BGEMM_EDGE + j];
        }
        for (int j = 0; j < BGEMM_EDGE; j++) c[i * BGEMM_EDGE + j] = row[j];
    }
}

CPU_CLONES static void multiply(const bgemm_block *x)
{
    for (int64_t i = 0; x->fresh && i < x->rows * x->cols * BGEMM_TILE_C; i++) x->c[i] = 0;
    for (int64_t j = 0; j < x->cols; j++)
        for (int64_t s = 0; s < x->steps; s++) {
            const uint16_t *b = x->b + j * x->b_next + s * BGEMM_TILE;
            float even[BGEMM_TILE_C], odd[BGEMM_TILE_C];
            for (int e = 0; e < BGEMM_TILE_C; e++) even[e] = bf16_up(b[2 * e]), odd[e] = bf16_up(b[2 * e + 1]);
            for (int64_t i = 0; i < x->rows; i++)
                add_tile(x->c + (i * x->cols + j) * BGEMM_TILE_C, x->a + (i * x->steps + s) * BGEMM_TILE, even, odd);
        }
}

static void transpose(bgemm_pair *to, const bgemm_pair *from)
{
    for (int i = 0; i < BGEMM_EDGE; i++)
        for (int j = 0; j < BGEMM_EDGE; j++) to[j * BGEMM_EDGE + i] = from[i * BGEMM_EDGE + j];
}

const bgemm_kernel bgemm_plain = { "plain", 8, NULL, NULL, multiply, transpose, NULL };
