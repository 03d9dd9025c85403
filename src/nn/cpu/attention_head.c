/* One head of inference by the micro-kernels of GEMM_F32 or GEMM_BF16: blocks of a few queries meet keys and values in
 * panels, which are packed once per head. Under a causal mask a block meets the keys up to its last query alone. Every
 * element is one sum along k in ascending order. In bf16, probabilities are rounded to bf16; scores and sums are
 * float. */
#include "core/arith.h"
#include "nn/cpu/attention.h"
#include "tensor/cpu/gemm_kernels.h"

static int64_t up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
static const gemm_kernel *kernel_for(bool bf16) { return gemm_best(bf16 ? GEMM_BF16 : GEMM_F32); }
static int64_t steps_of(const gemm_kernel *k, int64_t n) { return (n + k->step - 1) / k->step; }

/* Bytes of the panels of a factor (K, N). */
static int64_t panel_bytes(const gemm_kernel *k, int64_t K) { return steps_of(k, K) * k->b_step; }
static int64_t factor_bytes(const gemm_kernel *k, int64_t K, int64_t N)
{
    return up(up(N, k->cols) / k->cols * panel_bytes(k, K), 64);
}

/* Where the parts of a head's room begin, in bytes. packed: a block of queries or of probabilities, packed; scores: of
 * a block; rounded: probabilities in bf16; sums: of a block. */
typedef struct layout {
    int64_t values, packed, scores, rounded, sums, end;
} layout;

static layout layout_of(const gemm_kernel *k, int64_t T, int64_t e)
{
    layout l = { .values = factor_bytes(k, e, T) };
    l.packed = l.values + factor_bytes(k, T, e);
    l.scores = l.packed + up(steps_of(k, T > e ? T : e) * k->a_step, 64);
    l.rounded = l.scores + k->rows * up(T, k->cols) * (int64_t)sizeof(float);
    l.sums = l.rounded + up(k->rows * T * (int64_t)sizeof(uint16_t), 64);
    l.end = l.sums + k->rows * up(e, k->cols) * (int64_t)sizeof(float);
    return l;
}

int64_t attention_head_room(int64_t T, int64_t e, bool bf16)
{
    return up(layout_of(kernel_for(bf16), T, e).end, 64) / (int64_t)sizeof(float);
}

static char *part_of(const attention_head *h, int64_t bytes) { return (char *)h->room + bytes; }

/* Packs keys as panels of (e, T) and values as panels of (T, e). */
static void pack_keys_and_values(const gemm_kernel *k, const attention_head *h, const layout *l)
{
    gemm_call keys = { .N = h->T, .K = h->e, .b = gemm_matrix(h->k, h->T, h->e, h->ld), .tb = true };
    gemm_call values = { .N = h->e, .K = h->T, .b = gemm_matrix(h->v, h->T, h->e, h->ld) };
    gemm_part all_keys = { 0, h->T, 0, h->e, k->cols }, all_values = { 0, h->e, 0, h->T, k->cols };
    k->pack_b(k, &keys, &all_keys, panel_bytes(k, h->e), part_of(h, 0));
    k->pack_b(k, &values, &all_values, panel_bytes(k, h->T), part_of(h, l->values));
}

/* y (rows, N), ld apart = rows first .. of a by panels `next` bytes apart; packed: space for the rows. */
static void by_panels(const gemm_kernel *k, const gemm_view *a, int64_t first, int64_t rows, void *packed,
                      const char *panels, int64_t next, int64_t N, float *y, int64_t ld)
{
    gemm_call x = { .K = a->cols, .a = *a };
    gemm_part part = { first, rows, 0, a->cols, rows };
    int64_t steps = steps_of(k, a->cols);
    k->pack_a(k, &x, &part, steps * k->a_step, packed);
    for (int64_t column = 0; column < N; column += k->cols, panels += next)
        k->multiply(&(gemm_block){ .a = packed,
                                   .b = panels,
                                   .steps = steps,
                                   .rows = (int)rows,
                                   .cols = (int)min64(k->cols, N - column),
                                   .first = true,
                                   .sum = y + column,
                                   .ld = ld });
}

CPU_CLONES static void scale_row(float *s, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++) s[i] *= scale;
}

/* Queries first .. last: scores, probabilities, and what they make of the values. */
static void block(const gemm_kernel *k, const attention_head *h, const layout *l, int64_t first, int64_t last)
{
    int64_t rows = last - first, keys = h->causal ? last : h->T, ld = up(h->T, k->cols), ldy = up(h->e, k->cols);
    float *s = (float *)(void *)part_of(h, l->scores), *sums = (float *)(void *)part_of(h, l->sums);
    uint16_t *rounded = (uint16_t *)(void *)part_of(h, l->rounded);
    void *packed = part_of(h, l->packed);
    gemm_view queries = gemm_matrix(h->q, h->T, h->e, h->ld);
    by_panels(k, &queries, first, rows, packed, part_of(h, 0), panel_bytes(k, h->e), keys, s, ld);
    for (int64_t r = 0; r < rows; r++) {
        scale_row(s + r * ld, keys, h->scale);
        float lse = softmax_row(s + r * ld, h->causal ? first + r + 1 : keys, keys);
        if (h->lse) h->lse[first + r] = lse;
        if (h->bf16) bf16_round(rounded + r * keys, s + r * ld, keys);
    }
    gemm_view p = h->bf16 ? gemm_matrix(rounded, rows, keys, keys) : gemm_matrix(s, rows, keys, ld);
    by_panels(k, &p, 0, rows, packed, part_of(h, l->values), panel_bytes(k, h->T), h->e, sums, ldy);
    for (int64_t r = 0; r < rows; r++)
        memcpy(h->y.at + (first + r) * h->y.ld, sums + r * ldy, (size_t)h->e * sizeof *sums);
}

void attention_head_run(const attention_head *h)
{
    const gemm_kernel *k = kernel_for(h->bf16);
    layout l = layout_of(k, h->T, h->e);
    int64_t most = k->even ? k->even : k->rows, blocks = (h->T + most - 1) / most;
    if (k->begin) k->begin();
    pack_keys_and_values(k, h, &l);
    for (int64_t i = 0; i < blocks; i++) block(k, h, &l, h->T * i / blocks, h->T * (i + 1) / blocks);
    if (k->end) k->end();
}
