/* bf16 activations in 8 bits by 8-bit weights, for processors that multiply and add four pairs of bytes in one
 * instruction (VNNI's vpdpbusd): packing, and the plain kernel.
 *
 * B is int8 with a scale for every column: its largest element becomes 127. In A every row has a scale for each group
 * of 64 elements, so that an outlier coarsens its neighbours alone. vpdpbusd takes unsigned by signed bytes, so a group
 * with a negative element is stored with 128 added; a packed B has, for each group and column, the sum of 128 times the
 * weights, negated, with which such a row's sum begins. A group without negative elements, as behind relu, has all 8
 * bits for its magnitudes. Sums of a group are exact; they are multiplied by their scale and added in order of k, in
 * float. All kernels give the same bytes. */
#include <assert.h>
#include <math.h>

#include "tensor/cpu/bf16.h"
#include "tensor/cpu/gemm_kernels.h"
#include "tensor/cpu/gemm_rows.h"

/* ---- weights --------------------------------------------------------------------------------------- */

static void pack_group(const uint16_t *w, int64_t n, float scale, u8_panel *to, int64_t column)
{
    int32_t sum = 0;
    for (int64_t k = 0; k < n; k++) {
        int32_t whole = scale > 0 ? (int32_t)rintf(bf16_up(w[k]) / scale) : 0;
        to->w[k / 4][column][k % 4] = (int8_t)whole;
        sum += whole;
    }
    to->shift[column] = -U8_ZERO * sum;
}

void gemm_u8_pack_b(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    assert(x->tb && part->k0 == 0 && part->ks == x->K);
    memset(out, 0, (size_t)((part->edges + U8_COLS - 1) / U8_COLS * next));
    for (int64_t e = 0; e < part->edges; e++) {
        const uint16_t *w = (const uint16_t *)x->b.data + (part->edge0 + e) * x->b.ld;
        char *panel = (char *)out + e / U8_COLS * next;
        u8_panel *groups = (u8_panel *)(void *)(panel + k->b_head);
        float top = 0, *scale = (float *)(void *)panel + e % U8_COLS;
        for (int64_t i = 0; i < x->K; i++) top = fmaxf(top, fabsf(bf16_up(w[i])));
        *scale = top / 127.0f;
        for (int64_t at = 0; at < x->K; at += U8_GROUP)
            pack_group(w + at, min64(U8_GROUP, x->K - at), *scale, groups++, e % U8_COLS);
    }
}

/* ---- activations ----------------------------------------------------------------------------------- */

static void round_row(const uint16_t *x, int r, u8_block *to)
{
    uint32_t top = 0, sign = 0;
    float inverse;
    for (int k = 0; k < U8_GROUP; k++) {
        uint32_t bits = (uint32_t)x[k] << 16, size = bits & 0x7FFFFFFFu;
        top = size > top ? size : top;
        sign |= size ? bits : 0;
    }
    to->scale[r] = gemm_u8_scale(top, sign >> 31, &inverse);
    to->zero[r] = sign >> 31 ? U8_ZERO : 0;
    for (int k = 0; k < U8_GROUP; k++)
        to->x[r][k] = (uint8_t)(to->zero[r] + (inverse > 0 ? (int32_t)rintf(bf16_up(x[k]) * inverse) : 0));
}

static void round_plain(const uint16_t *const *x, int rows, u8_block *to)
{
    for (int r = 0; r < rows; r++) round_row(x[r], r, to);
}

void gemm_u8_pack_a(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    uint16_t room[U8_ROWS][U8_GROUP];
    const uint16_t *group[U8_ROWS];
    row r[U8_ROWS];
    assert(!x->ta);
    for (int64_t e = 0; e < part->edges; e += U8_ROWS) {
        u8_block *to = (u8_block *)(void *)((char *)out + e / U8_ROWS * next);
        int rows = (int)min64(U8_ROWS, part->edges - e);
        find_rows(&x->a, part->edge0 + e, rows, r);
        for (int64_t at = 0; at < part->ks; at += U8_GROUP, to++) {
            piece s = piece_of(&x->a, part->k0 + at, U8_GROUP);
            for (int i = 0; i < rows; i++) group[i] = read_row(&x->a, &r[i], &s, room[i]);
            k->round_u8(group, rows, to);
        }
    }
}

/* ---- plain C --------------------------------------------------------------------------------------- */

static void multiply(const gemm_block *b)
{
    const u8_block *a = b->a;
    const u8_panel *panel = b->b;
    for (int64_t g = 0; g < b->steps; g++, a++, panel++)
        for (int r = 0; r < b->rows; r++)
            for (int n = 0; n < U8_COLS; n++) {
                float *to = (float *)b->sum + r * b->ld + n, before = b->first && g == 0 ? 0 : *to;
                int32_t sum = a->zero[r] ? panel->shift[n] : 0;
                for (int k = 0; k < U8_GROUP; k++) sum += a->x[r][k] * panel->w[k / 4][n][k % 4];
                *to = fmaf((float)sum, a->scale[r], before);
            }
}

const gemm_kernel gemm_u8_plain = { GEMM_U8_KERNEL("u8_plain", round_plain), .multiply = multiply };
