/* The pieces of the f32 objective on the CPU: row loops, tiles of scores, retrieval and contrast. Private to
 * src/loss. Matrices are row-major, d columns; every GEMM is cpu_sgemm. */
#ifndef LOSS_CPU_H
#define LOSS_CPU_H

#include <stdint.h>

#include "loss/impl.h"

/* Scores are computed TILE x TILE at a time. Larger tiles are not faster (cpu_sgemm packs its operands anyway) and need
 * more memory. */
enum { TILE = 192 };

/* Embeddings: f32, or bf16 that is widened a tile at a time. */
typedef struct rows {
    const void *data;
    cloob_dtype dtype;
    int64_t n, d;
} rows;

/* Memory that a tile needs; the same for every pass. */
typedef struct tiles {
    float *e;                /* (TILE, TILE): scores or their exponentials */
    float *t;                /* (TILE, TILE): the gradient of scores */
    float *a, *b;            /* (TILE, d): widened rows; unused for f32 */
    float *panel;            /* (TILE, d): gradient of the anchors or states of one row of tiles */
    double *sums;            /* (d) */
    double *wide;            /* (TILE, TILE): scores in double; NULL: they are computed in f32 */
    double *wide_a, *wide_b; /* (TILE, d): their factors */
    double *wide_r;          /* (TILE, d) */
} tiles;

static inline void *carve(carver *c, size_t bytes) { return carve_aligned(c, bytes, 64); }

tiles tiles_carve(carver *c, const loss_plan *p);

/* wide = a b^T in double, a (m, d), b (n, d). For small batches, where the rounding of a single score is visible in the
 * loss and the time does not matter. */
void wide_scores(cloob_ctx *ctx, const tiles *t, const float *a, const float *b, int64_t m, int64_t n, int64_t d);

/* r (m, d) += e b, or with transpose r (n, d) += e^T a, e (m, n), a and b those of wide_scores, which must be
 * the last call; wide is lost. */
void wide_sums(cloob_ctx *ctx, const tiles *t, bool transpose, float *r, int64_t m, int64_t n, int64_t d);

/* ---- loops over one row of scores, compiled for several instruction sets (cpu_rows.c) ---- */

/* x[i] = factor exp(x[i] - shift) */
void vec_exp(float *x, int64_t n, float shift, float factor);
/* e[i] = exp(factor s[i] - shift), the argument in double */
void vec_exp_wide(float *e, const double *s, int64_t n, double factor, double shift);
/* e[i] = factor s[i] + bias[i] - shift, in double until it is rounded */
void vec_narrow(float *e, const double *s, const double *bias, int64_t n, double factor, double shift);
void vec_add(float *e, const double *bias, int64_t n); /* e[i] += bias[i] */
/* t[i] *= factor e[i] */
void vec_scale_by(float *t, const float *e, int64_t n, float factor);
float vec_max(const float *x, int64_t n);                   /* -infinity for n = 0 */
double vec_sum_exp(const float *x, int64_t n, float shift); /* sum exp(x[i] - shift) */
double vec_dot(const float *a, const float *b, int64_t n);  /* products and sums in double */
void vec_widen(float *to, const uint16_t *from, int64_t n); /* bf16 to f32 */

/* Rows [first, first + n) as f32: in place, or widened into buffer. */
const float *rows_f32(const rows *r, int64_t first, int64_t n, float *buffer);

/* ---- retrieval: E = exp(beta a b^T - shift) (docs/explanation/objective.md 3) ---- */

typedef struct retrieval {
    rows a, b; /* states, stored patterns */
    bool same; /* b is a: only tiles on and above the diagonal are computed */
    double beta;
    float *shift;   /* (n): the running maximum; NULL: beta, enough for unit rows up to SHARED_LARGEST_BETA */
    float *ra, *rb; /* E b, and E^T a where b retrieves from a with the same scores (shift NULL); backward reads their
                     * gradients here */
    float *da, *db; /* backward adds; db NULL: not computed */
    double *sum;    /* (n): the softmax denominators; NULL: not written; shift must not be NULL */
} retrieval;

/* Largest beta for which exp(-2 beta), and its square, are far from underflow. */
#define SHARED_LARGEST_BETA 20.0

/* Overwrites ra, rb, shift and sum. */
void retrieve_forward(cloob_ctx *ctx, const retrieval *p, const tiles *t);
/* Without shared scores, returns beta times this retrieval's part of d loss / d beta. */
double retrieve_backward(cloob_ctx *ctx, const retrieval *p, const tiles *t);

/* ---- unit length ---- */

/* r /= |r| per row, the lengths into length. Returns the first row of length 0 (or not finite), or -1. */
int64_t unit_forward(cloob_ctx *ctx, float *r, float *length, int64_t n, int64_t d);
/* With u = unit + mean (NULL: none), unit = (g - u (u.g)) / length, or g where length is NULL: the gradient replaces
 * the rows. dots[i] = u.g. */
void unit_backward(cloob_ctx *ctx, float *unit, const float *mean, const float *g, const float *length, double *dots,
                   int64_t n, int64_t d);

/* ---- contrast ---- */

typedef struct contrast {
    float *a, *b; /* anchors (n, d), samples (N, d), unit rows; forward subtracts their means, backward replaces a by
                      * its gradient */
    int64_t n, N, d;
    int64_t first; /* anchor i's positive is sample first + i */
    double inv_tau;
    bool leave_one_out;
    float *mean_a, *mean_b; /* (d): forward to backward */
    double *bias;           /* (N): forward to backward */
    double *lse;            /* (n), over the samples that are not the positive */
    double *weight;         /* (n), see loss_row_value; forward uses it for the positives */
    double *column;         /* (N), scratch of backward */
    const float *length;    /* backward: of the sums whose gradient a becomes; NULL: a's own */
    float *db;              /* backward: added to; (N, d) */
} contrast;

/* Sum over the anchors (not the mean). */
double contrast_forward(cloob_ctx *ctx, const contrast *c, const tiles *t);
/* Gradient of the mean over all N, divided by inv_tau. Returns this rank's part of d mean / d inv_tau. */
double contrast_backward(cloob_ctx *ctx, const contrast *c, const tiles *t);

/* ---- the implementations (cpu_batch.c, cpu_sigmoid.c) and their scratch bytes ---- */

size_t sigmoid_bytes(const loss_plan *p);
cloob_status sigmoid_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, loss_result *r);
size_t batch_bytes(const loss_plan *p);
cloob_status batch_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, loss_result *r);

#endif
