/* One head of inference by the micro-kernel of GEMM_F32: blocks of a few queries meet keys and values in panels, which
 * are packed once per head. Under a causal mask a block meets the keys up to its last query alone. Every element is one
 * sum along k in ascending order. */
#include "core/arith.h"
#include "nn/cpu/attention.h"
#include "tensor/cpu/gemm_kernels.h"

static int64_t up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/* Where the parts of a head's room begin, in floats, all in cache lines of their own. rows: a block of scaled queries;
 * packed: these, or a block's probabilities, packed; scores: of a block. */
typedef struct layout {
    int64_t keys, values, rows, packed, scores, end;
} layout;

static layout layout_of(const gemm_kernel *kernel, int64_t T, int64_t e)
{
    int64_t P = kernel->cols, R = kernel->rows;
    layout l = { .values = up(up(T, P) * e, 16) };
    l.rows = l.values + up(up(e, P) * T, 16);
    l.packed = l.rows + up(R * e, 16);
    l.scores = l.packed + up(R * (T > e ? T : e), 16);
    l.end = l.scores + up(R * T, 16);
    return l;
}

int64_t attention_head_room(int64_t T, int64_t e) { return layout_of(gemm_best(GEMM_F32), T, e).end; }

/* Keys as panels (e, P), values as panels (T, P). */
static void pack_keys_and_values(const gemm_kernel *kernel, const attention_head *h, const layout *l)
{
    gemm_call keys = { .N = h->T, .K = h->e, .b = gemm_matrix(h->k.at, h->T, h->e, h->k.ld), .tb = true };
    gemm_call values = { .N = h->e, .K = h->T, .b = gemm_matrix(h->v.at, h->T, h->e, h->v.ld) };
    gemm_part all_keys = { 0, h->T, 0, h->e, kernel->cols }, all_values = { 0, h->e, 0, h->T, kernel->cols };
    kernel->pack_b(kernel, &keys, &all_keys, kernel->b_step * h->e, h->room + l->keys);
    kernel->pack_b(kernel, &values, &all_values, kernel->b_step * h->T, h->room + l->values);
}

CPU_CLONES static void scale_rows(floats from, int64_t first, int64_t n, int64_t e, float scale, float *rows)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < e; i++) rows[r * e + i] = scale * from.at[(first + r) * from.ld + i];
}

/* y (rows, N) = x (rows, K) by panels (K, P), `size` floats each; x: packed. */
static void by_panels(const gemm_kernel *kernel, const float *x, int64_t rows, const float *panels, int64_t size,
                      int64_t K, int64_t N, float *y, int64_t ldy)
{
    int64_t P = kernel->cols;
    for (int64_t column = 0; column < N; column += P, panels += size)
        kernel->multiply(&(gemm_block){ .a = x,
                                        .b = panels,
                                        .steps = K,
                                        .rows = (int)rows,
                                        .cols = (int)min64(P, N - column),
                                        .first = true,
                                        .sum = y + column,
                                        .ld = ldy });
}

/* Queries first .. last: scores, probabilities, and what they make of the values. */
static void block(const gemm_kernel *kernel, const attention_head *h, const layout *l, int64_t first, int64_t last)
{
    int64_t P = kernel->cols, rows = last - first, keys = h->causal ? last : h->T;
    float *queries = h->room + l->rows, *packed = h->room + l->packed, *s = h->room + l->scores;
    scale_rows(h->q, first, rows, h->e, h->scale, queries);
    kernel->transpose_f32(queries, h->e, (int)rows, h->e, packed, kernel->rows);
    by_panels(kernel, packed, rows, h->room + l->keys, P * h->e, h->e, keys, s, keys);
    for (int64_t r = 0; r < rows; r++) {
        float lse = softmax_row(s + r * keys, h->causal ? first + r + 1 : keys, keys);
        if (h->lse) h->lse[first + r] = lse;
    }
    kernel->transpose_f32(s, keys, (int)rows, keys, packed, kernel->rows);
    by_panels(kernel, packed, rows, h->room + l->values, P * h->T, keys, h->e, h->y.at + first * h->y.ld, h->y.ld);
}

void attention_head_run(const attention_head *h)
{
    const gemm_kernel *kernel = gemm_best(GEMM_F32);
    layout l = layout_of(kernel, h->T, h->e);
    int64_t blocks = (h->T + kernel->rows - 1) / kernel->rows;
    pack_keys_and_values(kernel, h, &l);
    for (int64_t i = 0; i < blocks; i++) block(kernel, h, &l, h->T * i / blocks, h->T * (i + 1) / blocks);
}
