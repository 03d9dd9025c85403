#include "eval/metrics/by_group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double accuracy_by_group(const unsigned char *right, const int64_t *group, int64_t n, int64_t groups, double *accuracy,
                         int64_t *count)
{
    double worst = NAN;
    for (int64_t g = 0; g < groups; g++) accuracy[g] = 0, count[g] = 0;
    for (int64_t i = 0; i < n; i++) accuracy[group[i]] += right[i] != 0, count[group[i]]++;
    for (int64_t g = 0; g < groups; g++) {
        accuracy[g] = count[g] ? accuracy[g] / (double)count[g] : NAN;
        if (count[g] && !(accuracy[g] >= worst)) worst = accuracy[g];
    }
    return worst;
}

cloob_status means_over_classes(cloob_ctx *ctx, const int64_t *label, const int64_t *predicted, int64_t n, int64_t C,
                                class_means *out)
{
    int64_t *rows = calloc((size_t)C * 3, sizeof *rows), *said = rows + C, *both = rows + 2 * C, seen = 0;
    if (!rows) return ctx_no_memory(ctx, (size_t)C * 3 * sizeof *rows, "counts per class");
    *out = (class_means){ 0 };
    for (int64_t i = 0; i < n; i++) {
        rows[label[i]]++, said[predicted[i]]++;
        both[label[i]] += label[i] == predicted[i];
    }
    for (int64_t c = 0; c < C; c++) {
        if (!rows[c]) continue;
        out->recall += (double)both[c] / (double)rows[c];
        out->f1 += 2.0 * (double)both[c] / (double)(rows[c] + said[c]);
        seen++;
    }
    if (seen) out->recall /= (double)seen, out->f1 /= (double)seen;
    free(rows);
    return CLOOB_OK;
}
