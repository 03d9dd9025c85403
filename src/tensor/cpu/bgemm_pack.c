/* Packing. A view is read row by row, a stretch of 32 (K along the row) or 16 elements (K down the rows) at a time; the
 * four combinations differ in what happens to the stretches:
 *
 *     K along rows    A: copied                      B: copied, then transposed by pairs
 *     K down rows     A: interleaved, transposed     B: two rows interleaved */
#include "tensor/cpu/bgemm_pack.h"

#include <string.h>

#include "core/arith.h"
#include "tensor/cpu/clones.h"

static const uint16_t zeros[BGEMM_STEP];

/* ---- rows of a view ------------------------------------------------------------------------------ */

/* A row found once, then read at many columns. at NULL: beyond the last row. */
typedef struct row {
    const uint16_t *at;
    int64_t h, w; /* patches: where kernel element (0, 0) looks, before the division */
} row;

static void find_rows(const bgemm_view *v, int64_t first, int64_t count, row *out)
{
    const bgemm_patches *p = v->patches;
    int64_t j = p ? first % p->Gw : 0, i = p ? first / p->Gw % p->Gh : 0, n = p ? first / p->Gw / p->Gh : 0;
    for (int64_t t = 0; t < count; t++) {
        int64_t r = first + t;
        out[t] = (row){ 0 };
        if (r >= v->rows) continue;
        if (!p) {
            out[t].at = v->data + (v->inner ? r % v->inner * v->ld + r / v->inner * v->outer : r * v->ld);
            continue;
        }
        out[t] = (row){ v->data + n * p->H * p->W * p->pixel, i * p->mul + p->off, j * p->mul + p->off };
        if (++j == p->Gw) j = 0, i++;
        if (i == p->Gh) i = 0, n++;
    }
}

/* The pixel that kernel element (u, v) sees, or NULL. */
CPU_INLINE const uint16_t *pixel(const bgemm_patches *p, const row *r, int64_t u, int64_t v)
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
static void gather(const bgemm_view *v, const row *r, int64_t col, int64_t len, uint16_t *to)
{
    const bgemm_patches *p = v->patches;
    for (int64_t done = 0, n; done < len; done += n, col += n) {
        n = min64(len - done, col < v->cols ? p->C - col % p->C : len);
        const uint16_t *from = col < v->cols ? pixel(p, r, col / p->C / p->k, col / p->C % p->k) : NULL;
        if (from) memcpy(to + done, from + col % p->C, (size_t)n * sizeof *to);
        else memset(to + done, 0, (size_t)n * sizeof *to);
    }
}

/* What a stretch of columns has in common for all rows. */
typedef struct stretch {
    int64_t col, len, u, v, c;
    bool whole; /* inside the view, and for patches inside one kernel element */
} stretch;

static stretch stretch_of(const bgemm_view *v, int64_t col, int64_t len)
{
    const bgemm_patches *p = v->patches;
    stretch s = { .col = col, .len = len, .whole = col + len <= v->cols };
    if (!p) return s;
    s.c = col % p->C;
    s.u = col / p->C / p->k;
    s.v = col / p->C % p->k;
    s.whole = s.whole && s.c + len <= p->C;
    return s;
}

/* The stretch in row r: in place where it lies in one piece, else put together in `room` (len elements). */
CPU_INLINE const uint16_t *read_row(const bgemm_view *v, const row *r, const stretch *s, uint16_t *room)
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
CPU_INLINE void tile_of_rows(const bgemm_view *v, const row *r, const stretch *s, uint16_t *restrict out)
{
    uint16_t room[BGEMM_STEP];
    for (int t = 0; t < BGEMM_EDGE; t++)
        memcpy(out + t * BGEMM_STEP, read_row(v, &r[t], s, room), BGEMM_STEP * sizeof *out);
}

/* K down the rows: [16 pairs of rows][16 columns][2]. */
CPU_INLINE void tile_of_pairs(const bgemm_view *v, const row *r, const stretch *s, bgemm_pair *restrict out)
{
    uint16_t room[2][BGEMM_STEP];
    for (int p = 0; p < BGEMM_EDGE; p++) {
        const uint16_t *low = read_row(v, &r[2 * p], s, room[0]), *high = read_row(v, &r[2 * p + 1], s, room[1]);
        for (int j = 0; j < BGEMM_EDGE; j++) out[p * BGEMM_EDGE + j] = (uint32_t)low[j] | (uint32_t)high[j] << 16;
    }
}

CPU_CLONES static void pack_along_rows(const bgemm_kernel *kernel, const bgemm_view *v, bool transpose,
                                       const bgemm_part *part, int64_t next, uint16_t *out)
{
    row r[BGEMM_EDGE];
    uint16_t tile[BGEMM_TILE];
    for (int64_t e = 0; e < part->edges; e += BGEMM_EDGE, out += next) {
        find_rows(v, part->edge0 + e, BGEMM_EDGE, r);
        for (int64_t k = 0; k < part->ks; k += BGEMM_STEP) {
            stretch s = stretch_of(v, part->k0 + k, BGEMM_STEP);
            uint16_t *to = out + k / BGEMM_STEP * BGEMM_TILE;
            tile_of_rows(v, r, &s, transpose ? tile : to);
            if (transpose) kernel->transpose((bgemm_pair *)(void *)to, (const bgemm_pair *)(const void *)tile);
        }
    }
}

CPU_CLONES static void pack_down_rows(const bgemm_kernel *kernel, const bgemm_view *v, bool transpose,
                                      const bgemm_part *part, int64_t next, uint16_t *out)
{
    row r[BGEMM_STEP];
    bgemm_pair tile[BGEMM_TILE / 2];
    for (int64_t k = 0; k < part->ks; k += BGEMM_STEP, out += BGEMM_TILE) {
        find_rows(v, part->k0 + k, BGEMM_STEP, r);
        for (int64_t e = 0; e < part->edges; e += BGEMM_EDGE) {
            stretch s = stretch_of(v, part->edge0 + e, BGEMM_EDGE);
            bgemm_pair *to = (bgemm_pair *)(void *)(out + e / BGEMM_EDGE * next);
            tile_of_pairs(v, r, &s, transpose ? tile : to);
            if (transpose) kernel->transpose(to, tile);
        }
    }
}

void bgemm_pack_a(const bgemm_kernel *kernel, const bgemm_view *v, bool transposed, const bgemm_part *part,
                  int64_t next, uint16_t *out)
{
    if (transposed) pack_down_rows(kernel, v, true, part, next, out);
    else pack_along_rows(kernel, v, false, part, next, out);
}

void bgemm_pack_part_b(const bgemm_kernel *kernel, const bgemm_view *v, bool transposed, const bgemm_part *part,
                       int64_t next, uint16_t *out)
{
    if (transposed) pack_along_rows(kernel, v, true, part, next, out);
    else pack_down_rows(kernel, v, false, part, next, out);
}
