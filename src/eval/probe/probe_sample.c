/* The rows that a preconditioner is made of. */
#include <math.h>
#include <string.h>

#include "eval/probe/probe_objective.h"
#include "tensor/cpu/gemm.h"

enum { PANELS = 4 }; /* of columns: a symmetric product is made of those on and right of the diagonal */

/* Rows by their weight u: those above the step are taken as they are, lighter ones whenever together they
 * have come to one step, with its weight. So at most `wanted` rows stand for all of them, and the sum of
 * weights is kept. With equal weights that is every so-many-th row; once most rows are certain it is the
 * others. */
void objective_sample(objective *o, int64_t wanted)
{
    double total = 0, step = 0, carried = 0;
    if (o->N > wanted) {
        for (int64_t i = 0; i < o->N; i++) total += o->uncertain[i];
        step = total / (double)wanted;
    }
    o->sampled = 0;
    for (int64_t i = 0; i < o->N && o->sampled <= wanted; i++) {
        double u = o->uncertain[i], weight = u;
        if (u < step) {
            carried += u;
            if (carried < step) continue;
            carried -= step, weight = step;
        }
        o->row[o->sampled] = i, o->root[o->sampled++] = (float)sqrt(weight);
    }
}

/* Sampled rows from `first` on, times the root of their weight, a 1 behind each. */
static int64_t gather(objective *o, int64_t first)
{
    int64_t K = o->D + 1, n = 0;
    for (; n < SAMPLE_BLOCK && first + n < o->sampled; n++) {
        int64_t at = o->row[first + n];
        const probe_data *part = o->part;
        for (; at >= part->x.N; part++) at -= part->x.N;
        float *row = o->sample + n * K, root = o->root[first + n];
        const float *x = rows_read(&part->x, at, 1, o->x);
        for (int64_t i = 0; i < o->D; i++) row[i] = root * x[i];
        row[o->D] = root;
    }
    return n;
}

void objective_sample_square(objective *o)
{
    int64_t K = o->D + 1, width = (K + PANELS - 1) / PANELS;
    memset(o->Minv, 0, (size_t)(K * K) * sizeof *o->Minv);
    for (int64_t first = 0, n; (n = gather(o, first)) > 0; first += n)
        for (int64_t at = 0; at < K; at += width) {
            int64_t m = at + width < K ? width : K - at;
            cpu_sgemm(o->ctx, true, false, m, K - at, n, 1, o->sample + at, K, o->sample + at, K, 1,
                      o->Minv + at * K + at, K);
        }
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j < i; j++) o->Minv[i * K + j] = o->Minv[j * K + i];
}
