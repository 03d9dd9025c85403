/* One head of inference by the inner part of pgemm.h: blocks of a few queries meet keys and values in panels, which are
 * packed once per head. Under a causal mask a block meets the keys up to its last query alone. Every element is one sum
 * along k in ascending order. */
#include <string.h>

#include "core/arith.h"
#include "nn/cpu/attention.h"
#include "tensor/cpu/pgemm.h"

static int64_t up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/* Where the parts of a head's room begin, in floats, all in cache lines of their own. rows: of queries or keys side by
 * side, to be turned; turned: what came of them, or of a block's probabilities; scores: of a block. */
typedef struct layout {
    int64_t keys, values, rows, turned, scores, end;
} layout;

static layout layout_of(const pgemm_kernel *kernel, int64_t T, int64_t e)
{
    int64_t P = kernel->columns, R = kernel->rows > P / 2 ? kernel->rows : P / 2;
    layout l = { .values = up(up(T, P) * e, 16) };
    l.rows = l.values + up(up(e, P) * T, 16);
    l.turned = l.rows + up(R * e, 16);
    l.scores = l.turned + up(R * (T > e ? T : e), 16);
    l.end = l.scores + up(R * T, 16);
    return l;
}

int64_t attention_head_room(int64_t T, int64_t e) { return layout_of(pgemm_best(), T, e).end; }

/* n rows of e elements from row `first` on, times scale, side by side; then to (e, n). */
CPU_CLONES static void turn_rows(const pgemm_kernel *kernel, floats from, int64_t first, int64_t n, int64_t e,
                                 float scale, float *rows, float *to)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < e; i++) rows[r * e + i] = scale * from.at[(first + r) * from.ld + i];
    kernel->turn(rows, e, (int)n, to);
}

/* Keys as panels (e, P): half a panel is turned at a time. */
static void pack_keys(const pgemm_kernel *kernel, const attention_head *h, const layout *l)
{
    int64_t P = kernel->columns, half = P / 2, e = h->e;
    float *turned = h->room + l->turned;
    for (int64_t first = 0; first < up(h->T, P); first += half) {
        int64_t n = min64(half, h->T - first);
        float *to = h->room + l->keys + first / P * P * e + first % P;
        if (n > 0) turn_rows(kernel, h->k, first, n, e, 1.0f, h->room + l->rows, turned);
        for (int64_t i = 0; i < e; i++) {
            if (n < half) memset(to + i * P, 0, (size_t)half * sizeof *to);
            if (n > 0) memcpy(to + i * P, turned + i * n, (size_t)n * sizeof *to);
        }
    }
}

/* Values as panels (T, P). */
static void pack_values(const pgemm_kernel *kernel, const attention_head *h, const layout *l)
{
    int64_t P = kernel->columns;
    for (int64_t column = 0; column < h->e; column += P) {
        int64_t n = min64(P, h->e - column);
        float *to = h->room + l->values + column * h->T;
        for (int64_t t = 0; t < h->T; t++, to += P) {
            if (n < P) memset(to, 0, (size_t)P * sizeof *to);
            memcpy(to, h->v.at + t * h->v.ld + column, (size_t)n * sizeof *to);
        }
    }
}

/* y (rows, N) = x (rows, K) by panels (K, P); x: turned. */
static void by_panels(const pgemm_kernel *kernel, const float *x, int64_t rows, const float *panels, int64_t size,
                      int64_t K, int64_t N, float *y, int64_t ldy)
{
    int64_t P = kernel->columns;
    for (int64_t column = 0; column < N; column += P, panels += size)
        kernel->multiply(&(pgemm_block){ .x = x,
                                         .panel = panels,
                                         .y = y + column,
                                         .K = K,
                                         .ldy = ldy,
                                         .rows = (int)rows,
                                         .columns = (int)min64(P, N - column),
                                         .first = true });
}

/* Queries first .. last: scores, probabilities, and what they make of the values. */
static void block(const pgemm_kernel *kernel, const attention_head *h, const layout *l, int64_t first, int64_t last)
{
    int64_t P = kernel->columns, rows = last - first, keys = h->causal ? last : h->T;
    float *turned = h->room + l->turned, *s = h->room + l->scores;
    turn_rows(kernel, h->q, first, rows, h->e, h->scale, h->room + l->rows, turned);
    by_panels(kernel, turned, rows, h->room + l->keys, P * h->e, h->e, keys, s, keys);
    for (int64_t r = 0; r < rows; r++) {
        float lse = softmax_row(s + r * keys, h->causal ? first + r + 1 : keys, keys);
        if (h->lse) h->lse[first + r] = lse;
    }
    kernel->turn(s, keys, (int)rows, turned);
    by_panels(kernel, turned, rows, h->room + l->values, P * h->T, keys, h->e, h->y.at + first * h->y.ld, h->y.ld);
}

void attention_head_run(const attention_head *h)
{
    const pgemm_kernel *kernel = pgemm_best();
    layout l = layout_of(kernel, h->T, h->e);
    int64_t blocks = (h->T + kernel->rows - 1) / kernel->rows;
    pack_keys(kernel, h, &l);
    pack_values(kernel, h, &l);
    for (int64_t i = 0; i < blocks; i++) block(kernel, h, &l, h->T * i / blocks, h->T * (i + 1) / blocks);
}
