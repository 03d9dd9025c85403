/* Seeing a run that learns nothing while there is still time to stop it.
 *
 * At the start every similarity is alike and the loss is near 2 ln(N - 1) / inv_tau (InfoNCE: ln N). A run
 * whose loss stays there while all rows of a modality have moved to one point (mean similarity near 1) has
 * collapsed. */
#ifndef TRAIN_COLLAPSE_H
#define TRAIN_COLLAPSE_H

#include "loss/loss.h"

/* Mean of x_i . x_j over i != j of n unit rows: (|sum x|^2 - n) / (n (n - 1)); O(n d). 0 for fewer than two
 * rows. */
double collapse_similarity(const float *x, int64_t n, int64_t d);

/* Where the loss of N pairs starts. */
double collapse_start(cloob_method method, int64_t N, double inv_tau);

/* Steps after which it is looked for: 50, 100, 200, 400, ... */
bool collapse_is_due(int64_t updates);

typedef struct collapse_signs {
    double image, text; /* mean similarity within each modality */
    double loss, start;
} collapse_signs;

/* True when the loss has hardly moved from where it starts, whatever the embeddings do. */
bool collapse_is_plateau(const collapse_signs *s);

/* True when a modality is at one point and the loss within a twentieth of its start. */
bool collapse_seen(const collapse_signs *s);

#endif
