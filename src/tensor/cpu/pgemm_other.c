/* A machine that is not x86-64: packed GEMMs are not used, and the plain loop is here for the tests. */
#include "tensor/cpu/pgemm.h"

bool pgemm_usable(void) { return false; }

void pgemm_multiply(const pgemm_block *b)
{
    for (int r = 0; r < b->rows; r++)
        for (int n = 0; n < b->columns; n++) {
            float sum = 0;
            for (int64_t k = 0; k < b->K; k++) sum += b->x[k * b->rows + r] * b->panel[k * PGEMM_COLUMNS + n];
            b->y[r * b->ldy + n] = sum + (b->bias ? b->bias[n] : 0.0f) + (b->res ? b->res[r * b->ldy + n] : 0.0f);
        }
}

void pgemm_turn(const float *from, int64_t K, int rows, float *to)
{
    for (int r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++) to[k * rows + r] = from[r * K + k];
}
