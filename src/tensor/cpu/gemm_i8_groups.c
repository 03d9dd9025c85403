/* Float activations in 7 bits by 8-bit weights, for processors whose fastest multiplication is pmaddubsw (AVX2):
 * packing, and the plain kernel.
 *
 * B is int8 with a scale for every column, as in gemm_i8.c. In A every row has a scale for each group of 32 elements,
 * so that an outlier coarsens its neighbours alone. The largest and the smallest element of a group, or 0, are at most
 * 127 steps apart, so that all become unsigned 7-bit numbers when a zero point is added. The products of a group are
 * summed in 16 bits, in two halves (k % 4 below 2, and the others) of 16 products each. That they fit is shown by
 * Cauchy and Schwarz: |sum| <= |x half| |w half|. A packed B holds a limit per group from its longest half, and where
 * 127 steps would be too many, the scale of a group of A is chosen so that the bound holds. So the sums of a group are
 * exact; they are multiplied by their scale and added in order of k, in float. All kernels give the same bytes. */
#include "tensor/cpu/gemm_kernels.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "tensor/cpu/clones.h"

enum {
    QUADS = GROUP_SIZE / 4,
    LARGEST = 32700 /* that a sum of a half may reach; the rest is for rounding of the bounds */
};

/* 32 elements of x from k on, zeros after the last. room: for those. */
static const float *group_of(const float *x, int64_t K, int64_t k, float room[GROUP_SIZE])
{
    if (k + GROUP_SIZE <= K) return x + k;
    memset(room, 0, GROUP_SIZE * sizeof *room);
    memcpy(room, x + k, (size_t)(K - k) * sizeof *room);
    return room;
}

/* ---- weights ------------------------------------------------------------------------------------- */

static void pack_group(const float *x, float scale, group_panel *to, int64_t column)
{
    int8_t whole[GROUP_SIZE] = { 0 };
    int32_t half[2] = { 0 };
    if (scale > 0) gemm_i8_round_row(x, GROUP_SIZE, scale, whole);
    for (int k = 0; k < GROUP_SIZE; k++) {
        to->w[k / 4][column][k % 4] = whole[k];
        half[k % 4 / 2] += whole[k];
    }
    for (int h = 0; h < 2; h++) to->sum[column][h] = (int16_t)-half[h];
}

void gemm_i8_groups_pack_b(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    float room[GROUP_SIZE];
    assert(x->tb && part->k0 == 0 && part->ks == x->K);
    memset(out, 0, (size_t)((part->edges + GROUP_COLS - 1) / GROUP_COLS * next));
    for (int64_t e = 0; e < part->edges; e++) {
        const float *row = (const float *)x->b.data + (part->edge0 + e) * x->b.ld;
        char *panel = (char *)out + e / GROUP_COLS * next;
        group_panel *groups = (group_panel *)(void *)(panel + k->b_head);
        float *scale = (float *)(void *)panel + e % GROUP_COLS;
        *scale = gemm_i8_row_top(row, x->K) / 127.0f;
        for (int64_t at = 0; at < x->K; at += GROUP_SIZE)
            pack_group(group_of(row, x->K, at, room), *scale, groups++, e % GROUP_COLS);
    }
}

/* The square of the longest half of a group in one panel. */
CPU_CLONES static int32_t longest_half(const int8_t *weights)
{
    enum { HALVES = GROUP_COLS * 2 };
    int32_t square[HALVES] = { 0 }, longest = 0;
    for (int q = 0; q < QUADS; q++)
        for (int i = 0; i < HALVES; i++) {
            int32_t a = weights[(q * HALVES + i) * 2], b = weights[(q * HALVES + i) * 2 + 1];
            square[i] += a * a + b * b;
        }
    for (int i = 0; i < HALVES; i++) longest = square[i] > longest ? square[i] : longest;
    return longest;
}

/* How long a half of group `step` of A may be. Rounding lengthens a half of 16 elements by at most 2. */
void gemm_i8_groups_pack_shared(const gemm_kernel *k, const gemm_call *x, int64_t step, void *packed)
{
    int32_t longest = 1;
    for (int64_t p = 0; p * GROUP_COLS < x->N; p++) {
        const char *panel = gemm_packed_panel(k, packed, x->K, p);
        const group_panel *group = (const group_panel *)(const void *)(panel + k->b_head) + step;
        int32_t here = longest_half(group->w[0][0]);
        longest = here > longest ? here : longest;
    }
    ((float *)packed)[step] = LARGEST / sqrtf((float)longest) - 2;
}

/* ---- activations --------------------------------------------------------------------------------- */

float gemm_group_scale(float range, float left, float right, float limit)
{
    float by_range = range / (float)GROUP_RANGE, by_length = sqrtf(left > right ? left : right) / limit;
    if (!(left + right < INFINITY)) return left + right;
    return by_range > by_length ? by_range : by_length;
}

/* A scale this small is that of zeros; its inverse would not be a number. */
float gemm_group_inverse(float scale) { return scale > 1e-30f ? 1 / scale : 0; }

/* Without an inverse x may be anything. */
static int32_t whole(float x, float inverse) { return inverse > 0 ? (int32_t)rintf(x * inverse) : 0; }

/* The scale of a group. Not finite where an element is not. */
static float scale_of(const float x[GROUP_SIZE], float limit)
{
    float high = 0, low = 0, square[8] = { 0 };
    for (int i = 0; i < GROUP_SIZE; i++) {
        high = fmaxf(high, x[i]), low = fminf(low, x[i]);
        square[i % 8] += x[i] * x[i];
    }
    for (int i = 0; i < 4; i++) square[i] += square[i + 4];
    return gemm_group_scale(high - low, square[0] + square[1], square[2] + square[3], limit);
}

static void round_plain(const float *x, int64_t groups, const float *limit, int r, group_block *to)
{
    for (int64_t g = 0; g < groups; g++, x += GROUP_SIZE, to++) {
        float scale = scale_of(x, limit[g]), inverse = gemm_group_inverse(scale);
        int32_t least = 0;
        for (int k = 0; k < GROUP_SIZE; k++) least = whole(x[k], inverse) < least ? whole(x[k], inverse) : least;
        for (int k = 0; k < GROUP_SIZE; k++) to->x[k / 4][r][k % 4] = (uint8_t)(whole(x[k], inverse) - least);
        to->row[r] = (group_row){ scale, { (int16_t)-least, (int16_t)-least } };
    }
}

void gemm_i8_groups_pack_a(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    const float *limit = x->packed;
    int64_t groups = x->K / GROUP_SIZE;
    float room[GROUP_SIZE];
    assert(!x->ta && limit && part->k0 == 0 && part->ks == x->K);
    for (int64_t e = 0; e < part->edges + part->edges % GROUP_ROWS % 2; e++) {
        const float *row = (const float *)x->a.data + (part->edge0 + min64(e, part->edges - 1)) * x->a.ld;
        group_block *to = (group_block *)(void *)((char *)out + e / GROUP_ROWS * next);
        int r = (int)(e % GROUP_ROWS);
        k->round_groups(row, groups, limit, r, to);
        if (x->K % GROUP_SIZE)
            k->round_groups(group_of(row, x->K, groups * GROUP_SIZE, room), 1, limit + groups, r, to + groups);
    }
}

/* ---- plain C --------------------------------------------------------------------------------------- */

static void multiply(const gemm_block *b)
{
    const group_block *a = b->a;
    const group_panel *panel = b->b;
    for (int64_t g = 0; g < b->steps; g++, a++, panel++)
        for (int r = 0; r < b->rows; r++)
            for (int n = 0; n < GROUP_COLS; n++) {
                float *to = (float *)b->sum + r * b->ld + n, before = b->first && g == 0 ? 0 : *to;
                int32_t sum = 0;
                for (int k = 0; k < GROUP_SIZE; k++)
                    sum += (a->x[k / 4][r][k % 4] - a->row[r].zero[0]) * panel->w[k / 4][n][k % 4];
                *to = fmaf((float)sum, a->row[r].scale, before);
            }
}

const gemm_kernel gemm_i8_groups_plain = { GEMM_I8_GROUPS_KERNEL("i8_groups_plain", round_plain),
                                           .multiply = multiply };
