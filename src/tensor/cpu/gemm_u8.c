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

#include "core/pool.h"
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/gemm_kernels.h"
#define GEMM_ELEMENT uint16_t
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

static void round_group(const uint16_t *x, u8_group *to)
{
    uint32_t top = 0, sign = 0;
    float inverse;
    for (int k = 0; k < U8_GROUP; k++) {
        uint32_t bits = (uint32_t)x[k] << 16, size = bits & 0x7FFFFFFFu;
        top = size > top ? size : top;
        sign |= size ? bits : 0;
    }
    to->scale = gemm_u8_scale(top, sign >> 31, &inverse);
    to->zero = sign >> 31 ? U8_ZERO : 0;
    for (int k = 0; k < U8_GROUP; k++)
        to->x[k] = (uint8_t)(to->zero + (inverse > 0 ? (int32_t)rintf(bf16_up(x[k]) * inverse) : 0));
}

static void round_plain(const uint16_t *x, int64_t groups, u8_group *to)
{
    for (int64_t g = 0; g < groups; g++) round_group(x + g * U8_GROUP, to + g);
}

static int64_t groups_of(int64_t elements) { return (elements + U8_GROUP - 1) / U8_GROUP; }

/* Rows of a matrix, or the pixels of images, each a number of groups. */
static gemm_view source_of(const gemm_view *a)
{
    const gemm_patches *p = a->patches;
    return p ? gemm_matrix(a->data, a->rows / (p->Gh * p->Gw) * p->H * p->W, p->C, p->pixel) : *a;
}

size_t gemm_u8_rounded_bytes(const gemm_view *a)
{
    gemm_view v = source_of(a);
    if (a->patches && (v.cols % U8_GROUP || v.ld != v.cols)) return 0;
    return (size_t)(v.rows * groups_of(v.cols)) * sizeof(u8_group);
}

typedef struct round_job {
    const gemm_kernel *kernel;
    gemm_view v;
    u8_group *to;
} round_job;

static void round_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const round_job *j = arg;
    int64_t whole = j->v.cols / U8_GROUP, all = groups_of(j->v.cols);
    uint16_t room[U8_GROUP];
    row_cursor at = rows_from(&j->v, begin);
    piece s = piece_of(&j->v, whole * U8_GROUP, U8_GROUP);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        row r;
        find_rows(&j->v, &at, 1, &r);
        j->kernel->round_u8(r.at, whole, j->to + i * all);
        if (whole < all) j->kernel->round_u8(read_row(&j->v, &r, &s, room), 1, j->to + i * all + whole);
    }
}

void gemm_u8_round(cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_view *a, void *out)
{
    round_job j = { kernel, source_of(a), out };
    pool_share(ctx, j.v.rows, 1 + (1 << 15) / j.v.cols, round_range, &j);
}

void gemm_u8_round_groups(const uint16_t *x, int64_t groups, void *out, int64_t first)
{
    gemm_best(GEMM_U8)->round_u8(x, groups, (u8_group *)out + first);
}

/* Read outside an image: at most the channels of a pixel. */
enum { ZEROS = 32 };
static const u8_group zeros[ZEROS];

/* The rows of a block, and in an A in 8 bits the pixels that they read. */
typedef struct block_rows {
    const gemm_call *x;
    int64_t index;
    int count;
    row r[U8_TALL];
    stored rounded;
    corners c;
} block_rows;

CPU_INLINE void find_block(const gemm_call *x, row_cursor *edge, int64_t count, block_rows *b)
{
    b->x = x, b->index = edge->r, b->count = (int)count;
    b->rounded = (stored){ x->rounded, zeros, U8_GROUP, sizeof(u8_group) };
    find_rows(&x->a, edge, count, b->r);
    assert(!x->a.patches || x->a.patches->div == 1);
    if (x->rounded && x->a.patches) find_corners(&x->a, b->r, b->count, &b->rounded, &b->c);
}

/* Sets `at` to the addresses of group s in the rows: in an A in 8 bits, or rounded to `room`. before: the addresses of
 * the previous group, or NULL. Groups of a row, or of a pixel, are adjacent. */
CPU_INLINE void find_groups(const gemm_kernel *k, const block_rows *b, const piece *s, const void *const *before,
                            const void **at, u8_group *room)
{
    const gemm_view *v = &b->x->a;
    uint16_t gathered[U8_GROUP];
    if (!b->x->rounded)
        for (int i = 0; i < b->count; i++) {
            k->round_u8(read_row(v, &b->r[i], s, gathered), 1, room + i);
            at[i] = room + i;
        }
    else if (before && (!v->patches || (s->c > 0 && v->patches->C <= ZEROS * U8_GROUP)))
        for (int i = 0; i < b->count; i++) at[i] = (const u8_group *)before[i] + 1;
    else if (v->patches) corners_piece(v->patches, &b->c, b->count, s, &b->rounded, at);
    else
        for (int i = 0; i < b->count; i++)
            at[i] = (const u8_group *)b->x->rounded + (b->index + i) * groups_of(v->cols) + s->col / U8_GROUP;
}

/* A block of pointers to groups. */
CPU_CLONES void gemm_u8_pack_a(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    block_rows b;
    row_cursor edge = rows_from(&x->a, part->edge0);
    int64_t steps = groups_of(part->ks);
    assert(!x->ta);
    for (int64_t e = 0; e < part->edges; e += part->each, out = (char *)out + next) {
        const void **at = gemm_points(k, out, 0);
        u8_group *room = (u8_group *)(void *)(at + steps * U8_ROWS);
        piece s = piece_of(&x->a, part->k0, U8_GROUP);
        find_block(x, &edge, min64(part->each, part->edges - e), &b);
        for (int64_t g = 0; g < steps; g++, at += U8_ROWS, room += U8_ROWS, piece_next(&x->a, &s))
            find_groups(k, &b, &s, g ? at - U8_ROWS : NULL, at, room);
    }
}

/* A block of copies. */
CPU_CLONES void gemm_u8_pack_rows(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next,
                                  void *out)
{
    block_rows b;
    const void *at[U8_TALL];
    u8_group room[U8_TALL];
    row_cursor edge = rows_from(&x->a, part->edge0);
    assert(!x->ta);
    for (int64_t e = 0; e < part->edges; e += U8_TALL) {
        u8_rows *to = (u8_rows *)(void *)((char *)out + e / U8_TALL * next);
        piece s = piece_of(&x->a, part->k0, U8_GROUP);
        find_block(x, &edge, min64(U8_TALL, part->edges - e), &b);
        for (int64_t g = 0; g < groups_of(part->ks); g++, to++, piece_next(&x->a, &s)) {
            find_groups(k, &b, &s, g ? at : NULL, at, room);
            for (int i = 0; i < b.count; i++) {
                const u8_group *from = at[i];
                memcpy(to->x[i], from->x, U8_GROUP);
                to->scale[i] = from->scale, to->zero[i] = from->zero;
            }
        }
    }
}

/* ---- plain C --------------------------------------------------------------------------------------- */

static void multiply(const gemm_block *b)
{
    const u8_group *const *a = b->a;
    const u8_panel *panel = b->b;
    for (int64_t g = 0; g < b->steps; g++, a += U8_ROWS, panel++)
        for (int r = 0; r < b->rows; r++)
            for (int n = 0; n < U8_COLS; n++) {
                float *to = (float *)b->sum + r * b->ld + n, before = b->first && g == 0 ? 0 : *to;
                int32_t sum = a[r]->zero ? panel->shift[n] : 0;
                for (int k = 0; k < U8_GROUP; k++) sum += a[r]->x[k] * panel->w[k / 4][n][k % 4];
                *to = fmaf((float)sum, a[r]->scale, before);
            }
}

const gemm_kernel gemm_u8_plain = { GEMM_U8_KERNEL("u8_plain", round_plain), .multiply = multiply };
