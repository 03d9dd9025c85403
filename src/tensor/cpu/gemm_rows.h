/* Rows of a view in bf16, read in pieces: how gemm_bf16.c and gemm_u8.c pack matrices and the patches of images. */
#ifndef TENSOR_CPU_GEMM_ROWS_H
#define TENSOR_CPU_GEMM_ROWS_H

#include <string.h>

#include "core/arith.h"
#include "tensor/cpu/clones.h"
#include "tensor/cpu/gemm_packed.h"

enum { GEMM_PIECE = 64 }; /* elements of a piece at most */

static const uint16_t gemm_zeros[GEMM_PIECE];

/* A row found once, then read at many columns. at NULL: beyond the last row. */
typedef struct row {
    const uint16_t *at;
    int64_t h, w; /* patches: what kernel element (0, 0) reads, before the division */
} row;

static inline void find_rows(const gemm_view *v, int64_t first, int64_t count, row *out)
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
static inline void gather(const gemm_view *v, const row *r, int64_t col, int64_t len, uint16_t *to)
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

static inline piece piece_of(const gemm_view *v, int64_t col, int64_t len)
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
    if (!r->at) return gemm_zeros;
    if (s->whole && !v->patches) return r->at + s->col;
    if (s->whole) {
        const uint16_t *from = pixel(v->patches, r, s->u, s->v);
        return from ? from + s->c : gemm_zeros;
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

#endif
