/* Detects a run that learns nothing, early enough to stop it.
 *
 * At the start all similarities are equal and the loss is near 2 ln(N - 1) / inv_tau (InfoNCE: ln N). A run
 * whose loss stays there while all rows of a modality have moved to one point (mean similarity near 1) has
 * collapsed. */
#ifndef TRAIN_COLLAPSE_H
#define TRAIN_COLLAPSE_H

#include "train/run_setup.h"

/* Mean of x_i . x_j over i != j of n unit rows: (|sum x|^2 - n) / (n (n - 1)); O(n d). 0 for fewer than two
 * rows. */
double collapse_similarity(const float *x, int64_t n, int64_t d);

/* Where the loss of N pairs starts. */
double collapse_start(cloob_method method, int64_t N, double inv_tau);

/* The steps at which a run is checked: 50, 100, 200, 400, ... */
bool collapse_is_due(int64_t updates);

typedef struct collapse_signs {
    double image, text; /* mean similarity within each modality */
    double loss, start;
} collapse_signs;

/* True when the loss is within a twentieth of its start. */
bool collapse_is_plateau(const collapse_signs *s);

/* True when a modality has collapsed to one point and the loss is on its plateau. */
bool collapse_seen(const collapse_signs *s);

/* At the steps of collapse_is_due: logs a collapse, or a plateau, of the embeddings of the last step. Rank 0 only. */
cloob_status run_check_collapse(cloob_ctx *ctx, run *r, const step_result *s);

#endif
