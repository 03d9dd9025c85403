/* Rows of a view, read in pieces: how matrices and the patches of images are packed. The includer defines GEMM_ELEMENT,
 * the type of an element: float, or uint16_t for bf16. */
#ifndef TENSOR_CPU_GEMM_ROWS_H
#define TENSOR_CPU_GEMM_ROWS_H

#include <string.h>

#include "core/arith.h"
#include "tensor/cpu/clones.h"
#include "tensor/cpu/gemm_packed.h"

enum {
    GEMM_PIECE = 64,  /* elements of a piece at most, */
    GEMM_ZEROS = 2048 /* and of what is read outside a view: a pixel's channels, often */
};

static const GEMM_ELEMENT gemm_zeros[GEMM_ZEROS];

/* A row found once, then read at many columns. at NULL: beyond the last row. */
typedef struct row {
    const GEMM_ELEMENT *at;
    int64_t h, w; /* patches: what kernel element (0, 0) reads, before the division */
} row;

/* The next row to be found, and for patches its image and place on the grid. Rows are found one after the other, so
 * that the divisions are made once. */
typedef struct row_cursor {
    int64_t r, n, i, j;
} row_cursor;

static inline row_cursor rows_from(const gemm_view *v, int64_t first)
{
    const gemm_patches *p = v->patches;
    if (!p) return (row_cursor){ .r = first };
    return (row_cursor){ first, first / p->Gw / p->Gh, first / p->Gw % p->Gh, first % p->Gw };
}

CPU_INLINE void find_rows(const gemm_view *v, row_cursor *at, int64_t count, row *out)
{
    const gemm_patches *p = v->patches;
    for (int64_t t = 0; t < count; t++, at->r++) {
        if (at->r >= v->rows) {
            out[t] = (row){ 0 };
            continue;
        }
        if (!p) {
            int64_t r = at->r, from = v->inner ? r % v->inner * v->ld + r / v->inner * v->outer : r * v->ld;
            out[t] = (row){ .at = (const GEMM_ELEMENT *)v->data + from };
            continue;
        }
        out[t] = (row){ (const GEMM_ELEMENT *)v->data + at->n * p->H * p->W * p->pixel, at->i * p->mul + p->off,
                        at->j * p->mul + p->off };
        if (++at->j == p->Gw) at->j = 0, at->i++;
        if (at->i == p->Gh) at->i = 0, at->n++;
    }
}

/* The pixel that kernel element (u, v) reads, or NULL. */
CPU_INLINE const GEMM_ELEMENT *pixel(const gemm_patches *p, const row *r, int64_t u, int64_t v)
{
    int64_t h = r->h + p->sign * u, w = r->w + p->sign * v;
    if (h < 0 || w < 0) return NULL;
    if (p->div > 1) {
        if (h % p->div || w % p->div) return NULL;
        h /= p->div, w /= p->div;
    }
    return h < p->H && w < p->W ? r->at + (h * p->W + w) * p->pixel : NULL;
}

/* Kernel elements from (u, v) on whose pixels are next to each other in memory: the rest of a row of the kernel where
 * it is inside the image, else one. */
CPU_INLINE int64_t neighbours(const gemm_patches *p, const row *r, int64_t v)
{
    bool next = p->sign == 1 && p->div == 1 && p->pixel == p->C;
    return next && r->w + v >= 0 && r->w + p->k <= p->W ? p->k - v : 1;
}

/* Columns col .. col + len of patches, run by run. */
static inline void gather(const gemm_view *view, const row *r, int64_t col, int64_t len, GEMM_ELEMENT *to)
{
    const gemm_patches *p = view->patches;
    for (int64_t done = 0, n; done < len; done += n, col += n) {
        int64_t u = col / p->C / p->k, v = col / p->C % p->k;
        n = min64(len - done, col < view->cols ? neighbours(p, r, v) * p->C - col % p->C : len);
        const GEMM_ELEMENT *from = col < view->cols ? pixel(p, r, u, v) : NULL;
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

/* For the rows of a block of patches with a div of 1: address and position of the pixel at kernel element (0, 0), which
 * may be outside the image. The pixels of the other elements follow from it without branches. */
enum { MOST_CORNERS = 32 };
typedef struct corners {
    uintptr_t at[MOST_CORNERS];
    int64_t h[MOST_CORNERS], w[MOST_CORNERS];
} corners;

/* How a view is stored: every `unit` elements take `size` bytes, beginning at data. zeros: read outside an image. */
typedef struct stored {
    const void *data, *zeros;
    int64_t unit, size;
} stored;

CPU_INLINE uintptr_t stored_bytes(const stored *to, int64_t elements)
{
    return (uintptr_t)(elements / to->unit * to->size);
}

CPU_INLINE void find_corners(const gemm_view *v, const row *r, int rows, const stored *to, corners *out)
{
    const gemm_patches *p = v->patches;
    for (int t = 0; t < rows; t++) {
        int64_t elements = r[t].at - (const GEMM_ELEMENT *)v->data + (r[t].h * p->W + r[t].w) * p->pixel;
        out->at[t] = (uintptr_t)to->data + stored_bytes(to, elements);
        out->h[t] = r[t].h, out->w[t] = r[t].w;
    }
}

/* Sets at[t] to the address of piece s in row t; the piece is inside one kernel element. */
CPU_INLINE void corners_piece(const gemm_patches *p, const corners *from, int rows, const piece *s, const stored *to,
                              const void **at)
{
    int64_t down = p->sign * s->u, right = p->sign * s->v;
    uintptr_t further = stored_bytes(to, (down * p->W + right) * p->pixel + s->c), zeros = (uintptr_t)to->zeros;
    uint64_t H = (uint64_t)p->H, W = (uint64_t)p->W;
    for (int t = 0; t < rows; t++) {
        bool inside = ((uint64_t)(from->h[t] + down) < H) & ((uint64_t)(from->w[t] + right) < W);
        at[t] = (const void *)(inside ? from->at[t] + further : zeros);
    }
}

/* The piece behind s, of the same length. */
CPU_INLINE void piece_next(const gemm_view *v, piece *s)
{
    const gemm_patches *p = v->patches;
    s->col += s->len;
    s->whole = s->col + s->len <= v->cols;
    if (!p) return;
    for (s->c += s->len; s->c >= p->C; s->c -= p->C)
        if (++s->v == p->k) s->v = 0, s->u++;
    s->whole = s->whole && s->c + s->len <= p->C;
}

/* The piece of row r: in place where it is contiguous in memory, else gathered in `room` (len elements). */
CPU_INLINE const GEMM_ELEMENT *read_row(const gemm_view *v, const row *r, const piece *s, GEMM_ELEMENT *room)
{
    if (!r->at) return gemm_zeros;
    if (s->whole && !v->patches) return r->at + s->col;
    if (s->whole) {
        const GEMM_ELEMENT *from = pixel(v->patches, r, s->u, s->v);
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
