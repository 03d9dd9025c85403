/* Float activations by 8-bit weights, for inference with a fourth of the weights' memory: packing, and the plain
 * kernel.
 *
 * B is int8 with a scale for every column of op(B), which is a row of the weight (output channel): its largest element
 * becomes 127. A is rounded row by row: every row has a scale, and its elements are whole numbers of up to
 * gemm_i8_top(K), 13 bits for K up to 4128, so that a sum of K products fits 32 bits. Activations have more bits than
 * weights because they have outliers and because it costs little: pmaddwd and vpdpwssd take 16 bits (gemm_i8_groups.c
 * is faster with fewer bits). Sums are exact, so all kernels give the same bytes. */
#include "tensor/cpu/gemm_kernels.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "tensor/cpu/clones.h"

enum { P = I8_COLS };

int32_t gemm_i8_top(int64_t K)
{
    int64_t top = INT32_MAX / 127 / (K > 0 ? K : 1);
    return (int32_t)(top < 4095 ? top : 4095);
}

CPU_CLONES float gemm_i8_row_top(const float *x, int64_t K)
{
    float top = 0;
#pragma omp simd reduction(max : top)
    for (int64_t k = 0; k < K; k++) {
        float a = x[k] < 0 ? -x[k] : x[k];
        top = a > top ? a : top;
    }
    return top;
}

CPU_CLONES void gemm_i8_round_row(const float *x, int64_t n, float scale, int8_t *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (int8_t)(int32_t)rintf(x[i] / scale);
}

/* A row of B^T into its column of a panel, which is zero. */
static void pack_column(const float *row, int64_t K, float *scale, int8_t *panel)
{
    enum { SOME = 256 };
    int8_t whole[SOME];
    *scale = gemm_i8_row_top(row, K) / 127.0f;
    for (int64_t k = 0; *scale > 0 && k < K; k += SOME) {
        int64_t some = min64(SOME, K - k);
        gemm_i8_round_row(row + k, some, *scale, whole);
        for (int64_t i = 0; i < some; i++) panel[(k + i) / 2 * P * 2 + i % 2] = whole[i];
    }
}

void gemm_i8_pack_b(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    assert(x->tb && part->k0 == 0 && part->ks == x->K);
    memset(out, 0, (size_t)((part->edges + P - 1) / P * next));
    for (int64_t e = 0; e < part->edges; e++) {
        float *scale = (float *)(void *)((char *)out + e / P * next);
        pack_column((const float *)x->b.data + (part->edge0 + e) * x->b.ld, x->K, scale + e % P,
                    (int8_t *)scale + k->b_head + e % P * 2);
    }
}

/* to[2 rows pair + half]: the elements of a block's rows side by side, in pairs. */
CPU_CLONES static void round_pairs(const float *x, int64_t K, float scale, int rows, int16_t *to)
{
    for (int64_t k = 0; k + 1 < K; k += 2) {
        to[k * rows] = (int16_t)(int32_t)rintf(x[k] * scale);
        to[k * rows + 1] = (int16_t)(int32_t)rintf(x[k + 1] * scale);
    }
    if (K % 2) to[(K - 1) * rows] = (int16_t)(int32_t)rintf(x[K - 1] * scale), to[(K - 1) * rows + 1] = 0;
}

void gemm_i8_pack_a(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    float max = (float)gemm_i8_top(x->K);
    assert(!x->ta && part->k0 == 0 && part->ks == x->K);
    for (int64_t e = 0; e < part->edges; e++) {
        const float *row = (const float *)x->a.data + (part->edge0 + e) * x->a.ld;
        char *block = (char *)out + e / k->rows * next;
        float top = gemm_i8_row_top(row, x->K);
        ((float *)(void *)block)[e % k->rows] = top / max;
        round_pairs(row, x->K, top > 0 ? max / top : 0, k->rows,
                    (int16_t *)(void *)(block + k->a_head) + e % k->rows * 2);
    }
}

/* ---- plain C --------------------------------------------------------------------------------------- */

enum { ROWS = 6 };

static void multiply(const gemm_block *b)
{
    const int16_t *a = b->a;
    const int8_t *w = b->b;
    for (int r = 0; r < b->rows; r++)
        for (int n = 0; n < P; n++) {
            int32_t *to = (int32_t *)b->sum + r * b->ld + n, sum = b->first ? 0 : *to;
            for (int64_t k = 0; k < b->steps; k++)
                sum += a[(k * ROWS + r) * 2] * w[(k * P + n) * 2] + a[(k * ROWS + r) * 2 + 1] * w[(k * P + n) * 2 + 1];
            *to = sum;
        }
}

const gemm_kernel gemm_i8_plain = { GEMM_I8_KERNEL("i8_plain", ROWS), .multiply = multiply };
