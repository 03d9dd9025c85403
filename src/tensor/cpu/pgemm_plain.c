/* The inner part in plain C: any machine. */
#include "tensor/cpu/pgemm.h"

enum { COLUMNS = 16, ROWS = 4 };

static void multiply(const pgemm_block *b)
{
    for (int r = 0; r < b->rows; r++)
        for (int n = 0; n < b->columns; n++) {
            float sum = 0;
            for (int64_t k = 0; k < b->K; k++) sum += b->x[k * b->rows + r] * b->panel[k * COLUMNS + n];
            b->y[r * b->ldy + n] = sum + (b->bias ? b->bias[n] : 0.0f) + (b->res ? b->res[r * b->ldy + n] : 0.0f);
        }
}

static void turn(const float *from, int64_t K, int rows, float *to)
{
    for (int r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++) to[k * rows + r] = from[r * K + k];
}

const pgemm_kernel pgemm_plain = { COLUMNS, ROWS, 64, 0, 1, multiply, turn };
