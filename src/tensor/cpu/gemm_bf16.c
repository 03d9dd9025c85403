/* bf16 by bf16: packing, and the plain kernel. A view is read row by row, 32 (K along the row) or 16 elements (K down
 * the rows) at a time; the four combinations differ in what happens to these pieces:
 *
 *     K along rows    A: copied                      B: copied, then transposed by pairs
 *     K down rows     A: interleaved, transposed     B: two rows interleaved */
#include "tensor/cpu/gemm_kernels.h"

#include <string.h>

#include "tensor/cpu/bf16.h"
#include "tensor/cpu/clones.h"
#define GEMM_ELEMENT uint16_t
#include "tensor/cpu/gemm_rows.h"

/* Two elements at once. */
typedef uint32_t pair __attribute__((may_alias));

/* ---- tiles --------------------------------------------------------------------------------------- */

/* Whether piece s directly follows the previous piece in every row. Rows and pixels outside read zeros, which must be
 * long enough. */
CPU_INLINE bool follows(const gemm_view *v, const row *r, int rows, const piece *s)
{
    int64_t zeros = v->patches ? v->patches->C : r[rows - 1].at ? 0 : v->cols;
    return s->whole && zeros <= GEMM_ZEROS && (!v->patches || s->c >= BF16_STEP);
}

/* Sets `at` to the addresses of piece s in `rows` rows: in place, or copied to `room`. before: the addresses of the
 * previous piece if s follows it, otherwise NULL. */
CPU_INLINE void find_pieces(const gemm_view *v, const row *r, int rows, const piece *s, const void *const *before,
                            const void **at, uint16_t *room)
{
    if (before)
        for (int t = 0; t < rows; t++) at[t] = (const uint16_t *)before[t] + BF16_STEP;
    else
        for (int t = 0; t < rows; t++) at[t] = read_row(v, &r[t], s, room + t * BF16_STEP);
}

/* K down the rows: [16 pairs of rows][16 columns][2]. */
CPU_INLINE void tile_of_pairs(const gemm_view *v, const row *r, const piece *s, pair *restrict out)
{
    uint16_t room[2][BF16_STEP];
    for (int p = 0; p < BF16_EDGE; p++) {
        const uint16_t *low = read_row(v, &r[2 * p], s, room[0]), *high = read_row(v, &r[2 * p + 1], s, room[1]);
        for (int j = 0; j < BF16_EDGE; j++) out[p * BF16_EDGE + j] = (uint32_t)low[j] | (uint32_t)high[j] << 16;
    }
}

/* Tile (t, step) of a part, of blocks or panels of `edges` edges that are `next` bytes apart. */
CPU_INLINE uint16_t *tile_at(void *out, int64_t next, int edges, int64_t t, int64_t step)
{
    int64_t per = edges / BF16_EDGE;
    return (uint16_t *)(void *)((char *)out + t / per * next) + (step * per + t % per) * BF16_TILE;
}

/* Tiles of a part: its edges in blocks of `edges`, beyond the last edge zeros. */
static int64_t tiles_of(const gemm_part *part, int edges)
{
    return (part->edges + edges - 1) / edges * (edges / BF16_EDGE);
}

CPU_CLONES static void pack_along_rows(const gemm_kernel *kernel, const gemm_view *v, bool transpose, int edges,
                                       const gemm_part *part, int64_t next, void *out)
{
    row r[BF16_EDGE];
    const void *at[BF16_EDGE];
    row_cursor edge = rows_from(v, part->edge0);
    uint16_t tile[BF16_TILE], room[BF16_TILE];
    for (int64_t t = 0; t < tiles_of(part, edges); t++) {
        piece s = piece_of(v, part->k0, BF16_STEP);
        find_rows(v, &edge, BF16_EDGE, r);
        for (int64_t k = 0; k < part->ks; k += BF16_STEP, piece_next(v, &s)) {
            uint16_t *to = tile_at(out, next, edges, t, k / BF16_STEP), *rows = transpose ? tile : to;
            find_pieces(v, r, BF16_EDGE, &s, k && follows(v, r, BF16_EDGE, &s) ? at : NULL, at, room);
            for (int i = 0; i < BF16_EDGE; i++) memcpy(rows + i * BF16_STEP, at[i], BF16_STEP * sizeof *rows);
            if (transpose) kernel->transpose_pairs((pair *)(void *)to, (const pair *)(const void *)tile);
        }
    }
}

CPU_CLONES static void pack_down_rows(const gemm_kernel *kernel, const gemm_view *v, bool transpose, int edges,
                                      const gemm_part *part, int64_t next, void *out)
{
    row r[BF16_STEP];
    row_cursor at = rows_from(v, part->k0);
    pair tile[BF16_TILE / 2];
    for (int64_t k = 0; k < part->ks; k += BF16_STEP) {
        piece s = piece_of(v, part->edge0, BF16_EDGE);
        find_rows(v, &at, BF16_STEP, r);
        for (int64_t t = 0; t < tiles_of(part, edges); t++, piece_next(v, &s)) {
            pair *to = (pair *)(void *)tile_at(out, next, edges, t, k / BF16_STEP);
            tile_of_pairs(v, r, &s, transpose ? tile : to);
            if (transpose) kernel->transpose_pairs(to, tile);
        }
    }
}

void gemm_bf16_pack_a(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    if (x->ta) pack_down_rows(k, &x->a, true, k->rows, part, next, out);
    else pack_along_rows(k, &x->a, false, k->rows, part, next, out);
}

void gemm_bf16_pack_b(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    if (x->tb) pack_along_rows(k, &x->b, true, k->cols, part, next, out);
    else pack_down_rows(k, &x->b, false, k->cols, part, next, out);
}

/* Row (t, step) where it is, or copied. */
CPU_INLINE void point_block(const gemm_kernel *k, const gemm_view *v, const row *r, int rows, const gemm_part *part,
                            void *block)
{
    int64_t steps = (part->ks + BF16_STEP - 1) / BF16_STEP;
    uint16_t *room = (uint16_t *)(void *)gemm_points(k, block, steps);
    const void **at = gemm_points(k, block, 0);
    piece s = piece_of(v, part->k0, BF16_STEP);
    const bool cornered = v->patches && v->patches->div == 1;
    const stored in_place = { v->data, gemm_zeros, 1, sizeof(uint16_t) };
    corners c;
    if (cornered) find_corners(v, r, rows, &in_place, &c);
    for (int64_t i = 0; i < steps; i++, at += k->rows, room += k->rows * BF16_STEP, piece_next(v, &s)) {
        const void *const *before = i && follows(v, r, rows, &s) ? at - k->rows : NULL;
        if (!before && cornered && s.whole) corners_piece(v->patches, &c, rows, &s, &in_place, at);
        else find_pieces(v, r, rows, &s, before, at, room);
    }
}

CPU_CLONES static void point_along_rows(const gemm_kernel *k, const gemm_view *v, const gemm_part *part, int64_t next,
                                        char *out)
{
    row r[BF16_EDGE];
    row_cursor at = rows_from(v, part->edge0);
    for (int64_t e = 0; e < part->edges; e += part->each, out += next) {
        int rows = (int)min64(part->each, part->edges - e);
        find_rows(v, &at, rows, r);
        point_block(k, v, r, rows, part, out);
    }
}

void gemm_bf16_point_a(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    int64_t steps = (part->ks + BF16_STEP - 1) / BF16_STEP;
    if (!x->ta) {
        point_along_rows(k, &x->a, part, next, out);
        return;
    }
    pack_down_rows(k, &x->a, true, k->rows, part, next, gemm_points(k, out, steps));
    for (int64_t e = 0; e < part->edges; e += k->rows) {
        char *block = (char *)out + e / k->rows * next;
        const uint16_t *room = (const uint16_t *)(const void *)gemm_points(k, block, steps);
        for (int64_t i = 0; i < steps * k->rows; i++) gemm_points(k, block, 0)[i] = room + i * BF16_STEP;
    }
}

/* ---- plain C --------------------------------------------------------------------------------------- */

/* c[16][16], rows ld apart, += a[16][32] b[16][16][2] */
CPU_INLINE void add_tile(float *restrict c, int64_t ld, const uint16_t *restrict a, const float *restrict even,
                         const float *restrict odd)
{
    for (int i = 0; i < BF16_EDGE; i++) {
        float sum[BF16_EDGE];
        for (int j = 0; j < BF16_EDGE; j++) sum[j] = c[i * ld + j];
        for (int p = 0; p < BF16_EDGE; p++) {
            float a0 = bf16_up(a[i * BF16_STEP + 2 * p]), a1 = bf16_up(a[i * BF16_STEP + 2 * p + 1]);
            for (int j = 0; j < BF16_EDGE; j++) sum[j] += a0 * even[p * BF16_EDGE + j] + a1 * odd[p * BF16_EDGE + j];
        }
        for (int j = 0; j < BF16_EDGE; j++) c[i * ld + j] = sum[j];
    }
}

CPU_CLONES static void multiply(const gemm_block *x)
{
    enum { HALF = BF16_TILE / 2 };
    const uint16_t *a = x->a, *b = x->b;
    float *c = x->sum;
    for (int64_t i = 0; x->first && i < BF16_EDGE * x->ld; i++) c[i] = 0;
    for (int64_t s = 0; s < x->steps; s++, a += BF16_TILE)
        for (int t = 0; t < BF16_COLS / BF16_EDGE; t++, b += BF16_TILE) {
            if (t * BF16_EDGE >= x->cols) continue;
            float even[HALF], odd[HALF];
            for (int e = 0; e < HALF; e++) even[e] = bf16_up(b[2 * e]), odd[e] = bf16_up(b[2 * e + 1]);
            add_tile(c + t * BF16_EDGE, x->ld, a, even, odd);
        }
}

void gemm_bf16_transpose_plain(uint32_t *to, const uint32_t *from)
{
    for (int i = 0; i < BF16_EDGE; i++)
        for (int j = 0; j < BF16_EDGE; j++) ((pair *)to)[j * BF16_EDGE + i] = ((const pair *)from)[i * BF16_EDGE + j];
}

const gemm_kernel gemm_bf16_plain = { GEMM_BF16_KERNEL("bf16_plain", BF16_EDGE, 8, gemm_bf16_transpose_plain),
                                      .multiply = multiply };
