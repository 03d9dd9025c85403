/* bf16 by bf16: packing, and the plain kernel. A view is read row by row, 32 (K along the row) or 16 elements (K down
 * the rows) at a time; the four combinations differ in what happens to these pieces:
 *
 *     K along rows    A: copied                      B: copied, then transposed by pairs
 *     K down rows     A: interleaved, transposed     B: two rows interleaved */
#include "tensor/cpu/gemm_kernels.h"

#include <string.h>

#include "core/arith.h"
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/clones.h"

/* Two elements at once. */
typedef uint32_t pair __attribute__((may_alias));

static const uint16_t zeros[BF16_STEP];

/* ---- rows of a view ------------------------------------------------------------------------------ */

/* A row found once, then read at many columns. at NULL: beyond the last row. */
typedef struct row {
    const uint16_t *at;
    int64_t h, w; /* patches: what kernel element (0, 0) reads, before the division */
} row;

static void find_rows(const gemm_view *v, int64_t first, int64_t count, row *out)
{
    const gemm_patches *p = v->patches;
    int64_t j = p ? first % p->Gw : 0, i = p ? first / p->Gw % p->Gh : 0, n = p ? first / p->Gw / p->Gh : 0;
    for (int64_t t = 0; t < count; t++) {
        int64_t r = first + t;
        out[t] = (row){ 0 };
        if (r >= v->rows) continue;
        if (!p) {
            out[t].at =
                (const uint16_t *)v->data + (v->inner ? r % v->inner * v->ld + r / v->inner * v->outer : r * v->ld);
            continue;
        }
        out[t] =
            (row){ (const uint16_t *)v->data + n * p->H * p->W * p->pixel, i * p->mul + p->off, j * p->mul + p->off };
        if (++j == p->Gw) j = 0, i++;
        if (i == p->Gh) i = 0, n++;
    }
}

/* The pixel that kernel element (u, v) reads, or NULL. */
CPU_INLINE const uint16_t *pixel(const gemm_patches *p, const row *r, int64_t u, int64_t v)
{
    int64_t h = r->h + p->sign * u, w = r->w + p->sign * v;
    if (h < 0 || w < 0) return NULL;
    if (p->div > 1) {
        if (h % p->div || w % p->div) return NULL;
        h /= p->div, w /= p->div;
    }
    return h < p->H && w < p->W ? r->at + (h * p->W + w) * p->pixel : NULL;
}

/* Columns col .. col + len of patches, piece by piece. */
static void gather(const gemm_view *v, const row *r, int64_t col, int64_t len, uint16_t *to)
{
    const gemm_patches *p = v->patches;
    for (int64_t done = 0, n; done < len; done += n, col += n) {
        n = min64(len - done, col < v->cols ? p->C - col % p->C : len);
        const uint16_t *from = col < v->cols ? pixel(p, r, col / p->C / p->k, col / p->C % p->k) : NULL;
        if (from) memcpy(to + done, from + col % p->C, (size_t)n * sizeof *to);
        else memset(to + done, 0, (size_t)n * sizeof *to);
    }
}

/* A piece of `len` columns, in what is common to all rows. */
typedef struct piece {
    int64_t col, len, u, v, c;
    bool whole; /* inside the view, and for patches inside one kernel element */
} piece;

static piece piece_of(const gemm_view *v, int64_t col, int64_t len)
{
    const gemm_patches *p = v->patches;
    piece s = { .col = col, .len = len, .whole = col + len <= v->cols };
    if (!p) return s;
    s.c = col % p->C;
    s.u = col / p->C / p->k;
    s.v = col / p->C % p->k;
    s.whole = s.whole && s.c + len <= p->C;
    return s;
}

/* The piece of row r: in place where it is contiguous in memory, else gathered in `room` (len elements). */
CPU_INLINE const uint16_t *read_row(const gemm_view *v, const row *r, const piece *s, uint16_t *room)
{
    if (!r->at) return zeros;
    if (s->whole && !v->patches) return r->at + s->col;
    if (s->whole) {
        const uint16_t *from = pixel(v->patches, r, s->u, s->v);
        return from ? from + s->c : zeros;
    }
    if (v->patches) {
        gather(v, r, s->col, s->len, room);
        return room;
    }
    int64_t n = s->col < v->cols ? min64(s->len, v->cols - s->col) : 0;
    memcpy(room, r->at + (n ? s->col : 0), (size_t)n * sizeof *room);
    memset(room + n, 0, (size_t)(s->len - n) * sizeof *room);
    return room;
}

/* ---- tiles --------------------------------------------------------------------------------------- */

/* K along the rows: [16 rows][32 k]. */
CPU_INLINE void tile_of_rows(const gemm_view *v, const row *r, const piece *s, uint16_t *restrict out)
{
    uint16_t room[BF16_STEP];
    for (int t = 0; t < BF16_EDGE; t++)
        memcpy(out + t * BF16_STEP, read_row(v, &r[t], s, room), BF16_STEP * sizeof *out);
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
    uint16_t tile[BF16_TILE];
    for (int64_t t = 0; t < tiles_of(part, edges); t++) {
        find_rows(v, part->edge0 + t * BF16_EDGE, BF16_EDGE, r);
        for (int64_t k = 0; k < part->ks; k += BF16_STEP) {
            piece s = piece_of(v, part->k0 + k, BF16_STEP);
            uint16_t *to = tile_at(out, next, edges, t, k / BF16_STEP);
            tile_of_rows(v, r, &s, transpose ? tile : to);
            if (transpose) kernel->transpose_pairs((pair *)(void *)to, (const pair *)(const void *)tile);
        }
    }
}

CPU_CLONES static void pack_down_rows(const gemm_kernel *kernel, const gemm_view *v, bool transpose, int edges,
                                      const gemm_part *part, int64_t next, void *out)
{
    row r[BF16_STEP];
    pair tile[BF16_TILE / 2];
    for (int64_t k = 0; k < part->ks; k += BF16_STEP) {
        find_rows(v, part->k0 + k, BF16_STEP, r);
        for (int64_t t = 0; t < tiles_of(part, edges); t++) {
            piece s = piece_of(v, part->edge0 + t * BF16_EDGE, BF16_EDGE);
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
