/* Float by float: packing, the plain kernel, and GEMM of few rows. Packed A is (K, rows) per block, packed B (K, cols)
 * per panel. The elements of a block's rows are side by side because rows as they are in memory may be a power of two
 * apart and would push each other out of the first cache. */
#include <assert.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/clones.h"
#include "tensor/cpu/gemm_kernels.h"
#define GEMM_ELEMENT float
#include "tensor/cpu/gemm_rows.h"

/* K along the rows of a view: `n` rows from `first` on become columns of `to`, whose rows are P apart. */
static void transpose_rows(const gemm_kernel *k, const gemm_view *v, int64_t first, int64_t n, int64_t k0, int64_t ks,
                           float *to, int64_t P)
{
    float some[GEMM_F32_MOST * GEMM_PIECE];
    row r[GEMM_F32_MOST];
    row_cursor at = rows_from(v, first);
    if (!v->patches && !v->inner) {
        k->transpose_f32((const float *)v->data + first * v->ld + k0, v->ld, (int)n, ks, to, P);
        return;
    }
    find_rows(v, &at, n, r);
    piece s = piece_of(v, k0, GEMM_PIECE);
    for (int64_t done = 0; done < ks; done += GEMM_PIECE, piece_next(v, &s)) {
        float room[GEMM_PIECE];
        for (int64_t i = 0; i < n; i++) memcpy(some + i * GEMM_PIECE, read_row(v, &r[i], &s, room), sizeof room);
        k->transpose_f32(some, GEMM_PIECE, (int)n, min64(GEMM_PIECE, ks - done), to + done * P, P);
    }
}

/* Blocks of P edges, half of one at a time. */
static void pack_along_rows(const gemm_kernel *k, const gemm_view *v, const gemm_part *part, int64_t P, int64_t half,
                            int64_t next, char *out)
{
    for (int64_t e = 0; e < part->edges; e += P, out += next)
        for (int64_t first = 0; first < P; first += half) {
            float *to = (float *)(void *)out + first;
            int64_t n = min64(half, part->edges - e - first);
            if (n > 0) transpose_rows(k, v, part->edge0 + e + first, n, part->k0, part->ks, to, P);
            else
                for (int64_t i = 0; i < part->ks; i++) memset(to + i * P, 0, (size_t)half * sizeof *to);
        }
}

/* K down the rows: pieces of P elements of each row. */
static void pack_down_rows(const gemm_view *v, const gemm_part *part, int64_t P, int64_t next, char *out)
{
    row_cursor at = rows_from(v, part->k0);
    for (int64_t i = 0; i < part->ks; i++) {
        row r;
        float room[GEMM_PIECE];
        find_rows(v, &at, 1, &r);
        piece s = piece_of(v, part->edge0, P);
        for (int64_t e = 0; e < part->edges; e += P, piece_next(v, &s))
            memcpy((float *)(void *)(out + e / P * next) + i * P, read_row(v, &r, &s, room), (size_t)P * sizeof *room);
    }
}

void gemm_f32_pack_a(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    if (x->ta) pack_down_rows(&x->a, part, k->rows, next, out);
    else pack_along_rows(k, &x->a, part, k->rows, k->rows, next, out);
}

void gemm_f32_pack_b(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    if (x->tb) pack_along_rows(k, &x->b, part, k->cols, k->cols / 2, next, out);
    else pack_down_rows(&x->b, part, k->cols, next, out);
}

/* ---- plain C ----------------------------------------------------------------------------------------- */

enum { ROWS = 4, COLS = 16 };

static void multiply(const gemm_block *b)
{
    const float *x = b->a, *panel = b->b;
    for (int r = 0; r < b->rows; r++)
        for (int n = 0; n < b->cols; n++) {
            float *to = (float *)b->sum + r * b->ld + n, sum = b->first ? 0 : *to;
            for (int64_t k = 0; k < b->steps; k++) sum += x[k * ROWS + r] * panel[k * COLS + n];
            *to = sum;
        }
}

static void transpose(const float *from, int64_t ld, int rows, int64_t K, float *to, int64_t ld_to)
{
    int64_t filled = min64(COLS / 2, ld_to);
    for (int64_t k = 0; k < K; k++)
        for (int64_t r = 0; r < filled; r++) to[k * ld_to + r] = r < rows ? from[r * ld + k] : 0;
}

const gemm_kernel gemm_f32_plain = { GEMM_F32_KERNEL("f32_plain", ROWS, COLS, transpose), .multiply = multiply };

/* ---- few rows ------------------------------------------------------------------------------------ */

static float start_of(const gemm_call *x, int64_t m, int64_t n)
{
    return (x->bias ? x->bias[n] : 0.0f) + (x->res ? ((const float *)x->res)[m * x->ldc + n] : 0.0f);
}

CPU_CLONES static void few_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const gemm_call *x = arg;
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        for (int64_t m = 0; m < x->M; m++) {
            const float *b = (const float *)x->b.data + n * x->b.ld, *a = (const float *)x->a.data + m * x->a.ld;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < x->K; k++) sum += b[k] * a[k];
            ((float *)x->c)[m * x->ldc + n] = sum + start_of(x, m, n);
        }
}

/* Columns of a B that is (K, N): its rows are added up. */
CPU_CLONES static void few_columns_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const gemm_call *x = arg;
    (void)thread;
    for (int64_t m = 0; m < x->M; m++) {
        float *c = (float *)x->c + m * x->ldc;
        for (int64_t n = begin; n < end; n++) c[n] = start_of(x, m, n);
        for (int64_t k = 0; k < x->K; k++) {
            float a = ((const float *)x->a.data)[m * x->a.ld + k];
            const float *b = (const float *)x->b.data + k * x->b.ld;
            for (int64_t n = begin; n < end; n++) c[n] += a * b[n];
        }
    }
}

void gemm_f32_few(cloob_ctx *ctx, const gemm_call *x)
{
    pool_for(ctx, x->N, x->tb ? 1 + 16384 / x->K : 64, x->tb ? few_range : few_columns_range, (void *)(uintptr_t)x);
}
