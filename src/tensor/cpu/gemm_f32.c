/* Float by float: packing, the plain kernel, and GEMM of few rows. Packed A is (K, rows) per block, packed B (K, cols)
 * per panel. The elements of a block's rows are side by side because rows as they are in memory may be a power of two
 * apart and would push each other out of the first cache. */
#include <assert.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/clones.h"
#include "tensor/cpu/gemm_kernels.h"

void gemm_f32_pack_a(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    assert(!x->ta);
    for (int64_t e = 0; e < part->edges; e += k->rows, out = (char *)out + next)
        k->transpose_f32((const float *)x->a.data + (part->edge0 + e) * x->a.ld + part->k0, x->a.ld,
                         (int)min64(k->rows, part->edges - e), part->ks, out, k->rows);
}

/* n columns from row `from` on, K rows. */
static void pack_panel(const float *from, int64_t ld, int64_t n, int64_t K, float *to, int64_t P)
{
    for (int64_t i = 0; i < K; i++, from += ld, to += P) {
        memcpy(to, from, (size_t)n * sizeof *to);
        if (n < P) memset(to + n, 0, (size_t)(P - n) * sizeof *to);
    }
}

/* The same from n rows that become columns, half a panel at a time. */
static void pack_rows(const gemm_kernel *k, const float *from, int64_t ld, int64_t n, int64_t K, float *to)
{
    int64_t P = k->cols, half = P / 2;
    for (int64_t first = 0; first < P; first += half) {
        if (n > first) k->transpose_f32(from + first * ld, ld, (int)min64(half, n - first), K, to + first, P);
        else
            for (int64_t i = 0; i < K; i++) memset(to + i * P + first, 0, (size_t)half * sizeof *to);
    }
}

void gemm_f32_pack_b(const gemm_kernel *k, const gemm_call *x, const gemm_part *part, int64_t next, void *out)
{
    const float *b = x->b.data;
    int64_t ld = x->b.ld;
    for (int64_t e = 0; e < part->edges; e += k->cols, out = (char *)out + next) {
        int64_t edge = part->edge0 + e, n = min64(k->cols, part->edges - e);
        if (x->tb) pack_rows(k, b + edge * ld + part->k0, ld, n, part->ks, out);
        else pack_panel(b + part->k0 * ld + edge, ld, n, part->ks, out, k->cols);
    }
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

const gemm_kernel gemm_f32_plain = { GEMM_F32_KERNEL("f32_plain", ROWS, COLS, 64, 0, transpose), .multiply = multiply };

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
