#include "eval/metrics/calibration.h"

#include <math.h>

static int bin_of(double p, int bins)
{
    int b = (int)ceil(p * bins) - 1;
    return b < 0 ? 0 : b >= bins ? bins - 1 : b;
}

cloob_status calibration_measure(cloob_ctx *ctx, const double *p, const unsigned char *right, int64_t n, int bins,
                                 cloob_calibration *out)
{
    *out = (cloob_calibration){ .n = n, .bins = bins };
    if (bins < 1 || bins > CLOOB_CALIBRATION_BINS)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%d bins: 1 to %d are possible", bins, CLOOB_CALIBRATION_BINS);
    for (int64_t i = 0; i < n; i++) {
        if (!(p[i] >= 0 && p[i] <= 1))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "row %lld: %g is no probability", (long long)i, p[i]);
        cloob_calibration_bin *b = &out->bin[bin_of(p[i], bins)];
        b->n++, b->confidence += p[i], b->accuracy += right[i] != 0;
        out->confidence += p[i] / (double)n, out->accuracy += (right[i] != 0) / (double)n;
        double miss = p[i] - (right[i] != 0);
        out->brier += miss * miss / (double)n;
    }
    for (int k = 0; k < bins; k++) {
        cloob_calibration_bin *b = &out->bin[k];
        if (!b->n) continue;
        b->confidence /= (double)b->n, b->accuracy /= (double)b->n;
        double gap = fabs(b->confidence - b->accuracy);
        out->ece += gap * (double)b->n / (double)n;
        if (gap > out->mce) out->mce = gap;
    }
    return CLOOB_OK;
}
