#include "train/collapse.h"

#include <math.h>

enum { FIRST_LOOK = 50, CHUNK = 64 };

double collapse_similarity(const float *x, int64_t n, int64_t d)
{
    double square = 0;
    if (n < 2) return 0;
    for (int64_t first = 0; first < d; first += CHUNK) { /* a few columns at a time: no memory of size d */
        double sum[CHUNK] = { 0 };
        int64_t width = d - first < CHUNK ? d - first : CHUNK;
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < width; k++) sum[k] += (double)x[i * d + first + k];
        for (int64_t k = 0; k < width; k++) square += sum[k] * sum[k];
    }
    return (square - (double)n) / ((double)n * (double)(n - 1));
}

double collapse_start(cloob_method method, int64_t N, double inv_tau)
{
    if (loss_method_is_sigmoid(method)) return 0; /* it starts where its bias is */
    double others = (double)(loss_method_leaves_one_out(method) ? N - 1 : N);
    return others > 0 ? 2 * log(others) / inv_tau : 0;
}

bool collapse_is_due(int64_t updates)
{
    int64_t look = FIRST_LOOK;
    while (look < updates) look *= 2;
    return look == updates;
}

bool collapse_is_plateau(const collapse_signs *s) { return s->start > 0 && fabs(s->loss - s->start) < 0.05 * s->start; }

bool collapse_seen(const collapse_signs *s)
{
    bool point = s->image > 0.99 || s->text > 0.99;
    return point && collapse_is_plateau(s);
}
