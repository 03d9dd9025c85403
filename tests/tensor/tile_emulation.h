/* AMX's tile unit in C, as far as GEMMs of bf16 and bytes use it: eight tiles of up to 16 rows of 64 bytes per thread.
 * The kernel's own code (tensor/cpu/gemm_amx_body.h) runs on it as gemm_emulated and gemm_u8_emulated. Using a tile
 * that is not configured, or leaving one configured, ends the test. */
#ifndef TESTS_TILE_EMULATION_H
#define TESTS_TILE_EMULATION_H

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu/bf16.h"
#include "tensor/cpu/gemm_kernels.h"

typedef struct tile_unit {
    int rows[8], row_bytes[8];
    unsigned char tile[8][16][64];
} tile_unit;

static _Thread_local tile_unit unit;

static void emulate_configure(const void *config)
{
    const unsigned char *c = config;
    if (c[0] != 1 || unit.rows[0]) puts("tiles: palette 1, and not configured twice"), abort();
    memset(&unit, 0, sizeof unit);
    for (int t = 0; t < 8; t++) unit.rows[t] = c[48 + t], unit.row_bytes[t] = c[16 + 2 * t] + 256 * c[17 + 2 * t];
}

static void need(int t)
{
    if (!unit.rows[t] || !unit.row_bytes[t]) puts("tiles: used without being configured"), abort();
}

static void emulate_zero(int t)
{
    need(t);
    memset(unit.tile[t], 0, sizeof unit.tile[t]);
}

static void emulate_load(int t, const void *from, size_t row_bytes)
{
    need(t);
    for (int r = 0; r < unit.rows[t]; r++)
        memcpy(unit.tile[t][r], (const char *)from + (size_t)r * row_bytes, (size_t)unit.row_bytes[t]);
}

static void emulate_store(int t, void *to, size_t row_bytes)
{
    need(t);
    for (int r = 0; r < unit.rows[t]; r++)
        memcpy((char *)to + (size_t)r * row_bytes, unit.tile[t][r], (size_t)unit.row_bytes[t]);
}

static float element(int t, int row, int i)
{
    uint16_t h;
    memcpy(&h, unit.tile[t][row] + 2 * i, sizeof h);
    return bf16_up(h);
}

/* c[m][n] += sum over pairs k of a[m][2k] b[k][2n] + a[m][2k + 1] b[k][2n + 1] */
static void emulate_dot(int c, int a, int b)
{
    need(a), need(b), need(c);
    for (int m = 0; m < unit.rows[c]; m++)
        for (int n = 0; n < unit.row_bytes[c] / 4; n++) {
            float sum;
            memcpy(&sum, unit.tile[c][m] + 4 * n, sizeof sum);
            for (int k = 0; k < unit.row_bytes[a] / 4; k++)
                sum +=
                    element(a, m, 2 * k) * element(b, k, 2 * n) + element(a, m, 2 * k + 1) * element(b, k, 2 * n + 1);
            memcpy(unit.tile[c][m] + 4 * n, &sum, sizeof sum);
        }
}

/* c[m][n] += sum over quads k and i < 4 of a[m][4k + i] b[k][4n + i]: unsigned by signed bytes */
static void emulate_dot_u8(int c, int a, int b)
{
    need(a), need(b), need(c);
    for (int m = 0; m < unit.rows[c]; m++)
        for (int n = 0; n < unit.row_bytes[c] / 4; n++) {
            int32_t sum;
            memcpy(&sum, unit.tile[c][m] + 4 * n, sizeof sum);
            for (int k = 0; k < unit.row_bytes[a]; k++)
                sum += unit.tile[a][m][k] * (int8_t)unit.tile[b][k / 4][4 * n + k % 4];
            memcpy(unit.tile[c][m] + 4 * n, &sum, sizeof sum);
        }
}

#define TILE_TARGET
#define TILE_CONFIGURE(config)        emulate_configure(config)
#define TILE_RELEASE()                memset(&unit, 0, sizeof unit)
#define TILE_ZERO(t)                  emulate_zero(t)
#define TILE_LOAD(t, from, row_bytes) emulate_load(t, from, row_bytes)
#define TILE_STORE(t, to, row_bytes)  emulate_store(t, to, row_bytes)
#define TILE_DOT(c, a, b)             emulate_dot(c, a, b)
#define TILE_DOT_U8(c, a, b)          emulate_dot_u8(c, a, b)
#include "tensor/cpu/gemm_amx_body.h"

static void round_emulated(const uint16_t *x, int64_t groups, u8_group *to) { gemm_u8_plain.round_u8(x, groups, to); }

static const gemm_kernel gemm_emulated = { AMX_KERNEL("bf16_amx, emulated", gemm_bf16_transpose_plain) };
static const gemm_kernel gemm_u8_emulated = { AMX_U8_KERNEL("u8_amx, emulated", round_emulated) };

#endif
