/* The objective: Hopfield retrieval and InfoLOOB (or InfoNCE) of a batch of pairs, or SigLIP's sigmoid loss, with
 * gradients.
 *
 *     x, y     unit rows (N, d), N over all ranks; each rank passes its own rows
 *     U, V     stored patterns: the batch (U = x, V = y), or given sets (M, d) and (K, d), the same on every rank
 *     Ux       unit(softmax(beta x U^T) U): x retrieved from U; Uy, Vx, Vy alike
 *     image    mean_i [ lse_j(inv_tau Ux_i.Uy_j) - inv_tau Ux_i.Uy_i ], over j != i for InfoLOOB, all j for InfoNCE
 *     text     likewise with anchors Vy and samples Vx
 *     loss     (image + text) / inv_tau
 *
 * The methods without retrieval (clip, infoloob) use x for Ux and Vx, and y for Uy and Vy.
 *
 * cloob-uv uses Vy for Uy and Ux for Vx, which the paper rejects for its variance. Only the definition (ref) supports
 * it.
 *
 * siglip is the mean over i of sum_j softplus(-z_ij (inv_tau x_i.y_j + bias)), z_ij being 1 for i = j and -1 elsewhere.
 * It is not divided by inv_tau; image and text are half of it each.
 *
 * Nothing of size N x N is stored: tiles of scores are computed, used and dropped, in both directions. The loss and all
 * gradients equal those of one process with the whole batch, whatever the number of ranks, up to rounding.
 * Derivation: docs/explanation/objective.md.
 *
 *     loss_plan *p;
 *     CLOOB_TRY(loss_plan_create(ctx, &options, &shape, comm, &p));       once; collective
 *     CLOOB_TRY(loss_run(ctx, p, &in, &out, stream, &result));            every step; collective, allocates nothing
 *     loss_plan_destroy(p); */
#ifndef LOSS_LOSS_H
#define LOSS_LOSS_H

#include "core/ctx.h"
#include "cloob/objective.h"
#include "dist/comm.h"

/* ref: the definition in plain loops and doubles; it allocates. cpu: tiles in f32. cuda: device pointers. */
typedef enum loss_backend { LOSS_REF, LOSS_CPU, LOSS_CUDA } loss_backend;

typedef struct loss_options {
    cloob_method method;
    loss_backend backend;
    double inv_tau; /* above 0 */
    double beta;    /* the Hopfield scale, 0 or above */
    double bias;    /* siglip */
    bool gradients; /* dx, dy, and dsum_*; without it only the loss */
    int64_t tile;   /* cuda: edge of the tiles of scores, a multiple of 8; 0: chosen */
    bool plain;     /* cuda: products by the library and a pass over them, even where a fused kernel exists */
    bool unchecked; /* skip the check of every row (unit length, no NaN): the caller has just normalised them */
} loss_options;

/* method cloob, inv_tau 30, beta 8, bias -10, gradients, backend cpu. */
void loss_options_init(loss_options *o);

typedef struct loss_shape {
    int64_t rows;               /* pairs on this rank; may differ between ranks, may be 0 */
    int64_t dim;                /* d */
    int64_t stored_u, stored_v; /* M, K; 0: the batch */
    cloob_dtype dtype;          /* of x, y, U, V: F32 or BF16; ref: also F64 */
} loss_shape;

typedef struct loss_inputs {
    const void *x, *y; /* (rows, d) */
    const void *u, *v; /* (M, d), (K, d); NULL where the batch is stored */
} loss_inputs;

/* All overwritten, all f32; with F64 rows doubles (void pointers in between). dx, dy double as scratch while
 * the run lasts, so they must not be the inputs. du, dv may be NULL; across ranks each rank gets the whole
 * sum. */
typedef struct loss_outputs {
    float *dx, *dy, *du, *dv;
} loss_outputs;

typedef struct loss_result {
    double loss, image_term, text_term;
    double dsum_dinv_tau, dsum_dbeta, dsum_dbias; /* of image_term + text_term */
} loss_result;

typedef struct loss_plan loss_plan;

/* Checks options and shapes, agrees with the other ranks, allocates the workspace. c may be NULL (alone); it
 * must outlive the plan, and with LOSS_CUDA and several ranks it is an NCCL one. Inverse temperature and
 * scale can be changed later with loss_plan_scales. *out is NULL on failure. */
cloob_status loss_plan_create(cloob_ctx *ctx, const loss_options *o, const loss_shape *s, comm *c, loss_plan **out);
void loss_plan_destroy(loss_plan *p);

/* Bytes that loss_plan_create would allocate on each of `ranks` equal ranks. */
cloob_status loss_measure(cloob_ctx *ctx, const loss_options *o, const loss_shape *s, int ranks, size_t *bytes);

/* Bytes of host (ref, cpu) or device memory that the plan allocated, without inputs and outputs. */
size_t loss_plan_bytes(const loss_plan *p);

cloob_status loss_plan_scales(cloob_ctx *ctx, loss_plan *p, double inv_tau, double beta);
cloob_status loss_plan_bias(cloob_ctx *ctx, loss_plan *p, double bias);

/* Changes the numbers of stored rows from the next run on, while a queue fills; 0: the batch. Up to those of the plan's
 * creation nothing is allocated. The same on every rank. */
cloob_status loss_plan_stored(cloob_ctx *ctx, loss_plan *p, int64_t stored_u, int64_t stored_v);

/* One evaluation. A row that is not unit length, holds NaN, or whose retrieval is zero is refused by name.
 * stream (LOSS_CUDA): where the work goes, a cudaStream_t; NULL for the default. The result is on the host
 * when the call returns. */
cloob_status loss_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream,
                      loss_result *r);

/* The same in two parts, for a caller that captures a step: queue neither waits nor checks the rows, collect waits for
 * the stream and returns the result. Only where loss_can_queue is true: LOSS_CUDA on one rank. */
bool loss_can_queue(const loss_plan *p);
cloob_status loss_queue(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream);
cloob_status loss_collect(cloob_ctx *ctx, loss_plan *p, loss_result *r);

/* "cloob", "clip", "infoloob", "infonce-hopfield", "siglip", "cloob-uv". */
const char *loss_method_name(cloob_method m);
bool loss_method_from_name(const char *name, cloob_method *out);
bool loss_method_has_hopfield(cloob_method m);
bool loss_method_leaves_one_out(cloob_method m);
bool loss_method_is_sigmoid(cloob_method m);

/* Learnable scales are stored as logarithms and kept in [0, ln 100] after every update, as CLIP does. */
double loss_scale_clamp(double logit);
double loss_scale_value(double logit); /* exp, at most 100 */
/* The quantity that training minimises. For InfoLOOB it is `loss` (the paper scales only L_InfoLOOB by tau), for
 * siglip, too. For InfoNCE it is CLIP's (image + text) / 2, not divided by inv_tau: dx, dy and all gradients derived
 * from them are multiplied by loss_train_factor, inv_tau / 2. (The derivative of InfoNCE / inv_tau in inv_tau is never
 * positive, so the temperature could only fall.) */
double loss_train_factor(cloob_method m, double inv_tau);
/* Its derivatives in the logit of the inverse temperature and in the logit of the Hopfield scale. */
double loss_dlogit_inv_tau(cloob_method m, const loss_result *r, double inv_tau);
double loss_dlogit_beta(cloob_method m, const loss_result *r, double inv_tau, double beta);

#endif
