/* The CLOOB objective of a batch of embeddings, with gradients: Hopfield retrieval with InfoLOOB, the paper's other
 * three combinations, and SigLIP's loss. The computation is exact and never stores an N x N matrix.
 *
 *     cloob_objective_options o;
 *     cloob_objective_options_init(&o);
 *     cloob_pairs e = { .x = x, .y = y, .n = n, .d = d };
 *     cloob_objective_result r;
 *     cloob_gradients g = { .dx = dx, .dy = dy };
 *     if (cloob_objective(ctx, &o, &e, &g, &r) == CLOOB_OK) printf("%g\n", r.loss);
 */
#ifndef CLOOB_OBJECTIVE_H
#define CLOOB_OBJECTIVE_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cloob_method {
    CLOOB_METHOD_CLOOB,            /* retrieval and InfoLOOB */
    CLOOB_METHOD_CLIP,             /* InfoNCE on the embeddings themselves */
    CLOOB_METHOD_INFOLOOB,         /* InfoLOOB without retrieval */
    CLOOB_METHOD_INFONCE_HOPFIELD, /* InfoNCE with retrieval */
    CLOOB_METHOD_SIGLIP,           /* SigLIP's sigmoid loss, with logit_bias and without division by inv_tau */
    CLOOB_METHOD_CLOOB_UV          /* U_x with V_y, which the paper rejects: device "ref" only, no training */
} cloob_method;

typedef struct cloob_objective_options {
    size_t size; /* of this struct; set by cloob_objective_options_init */
    cloob_method method;
    double inv_tau;        /* inverse temperature, above 0 */
    double scale_hopfield; /* beta, not negative */
    const char *device;    /* "auto", "cpu", "cuda", "cuda:N", "ref" */
    cloob_dtype compute;   /* F32, or BF16: embeddings are rounded to bf16, and a GPU multiplies in bf16 */
    double logit_bias;     /* siglip only; default: -10 */
} cloob_objective_options;

/* Sets the paper's values: cloob, inv_tau 30, scale_hopfield 8; device auto, F32. */
CLOOB_OPTIONS_INIT(cloob_objective_options)

/* Unit rows in host memory, row-major f32; owned by the caller. u, v: stored patterns; NULL: the batch itself. */
typedef struct cloob_pairs {
    const float *x, *y; /* (n, d) */
    int64_t n, d;
    const float *u, *v; /* (nu, d), (nv, d) */
    int64_t nu, nv;
} cloob_pairs;

/* Gradients of `loss` with respect to the rows (not to rows before normalisation): overwritten, shaped like x, y, u, v.
 * Any may be NULL; dx and dy only together. */
typedef struct cloob_gradients {
    float *dx, *dy, *du, *dv;
} cloob_gradients;

typedef struct cloob_objective_result {
    double loss; /* (image_term + text_term) / inv_tau; siglip: their sum */
    double image_term, text_term;
    /* Derivatives of image_term + text_term by inv_tau and scale_hopfield; 0 without gradients. */
    double dsum_dinv_tau, dsum_dscale;
    int64_t n, d, nu, nv;
    double dsum_dbias; /* siglip: derivative by logit_bias */
} cloob_objective_result;

/* Computes the objective; g may be NULL. Fails if a row is not of unit length or has a NaN, or if there are too few
 * pairs; the error text names the value or the row. */
CLOOB_API cloob_status cloob_objective(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_pairs *e,
                                       const cloob_gradients *g, cloob_objective_result *r);

/* ---- plans: the objective of rows in place --------------------------------------------------------- */

/* The objective for a custom training loop. Rows and gradients are in the memory of the device: host memory for "cpu"
 * and "ref", GPU memory for "cuda". Nothing is copied. After the first run nothing is allocated, except by "ref". */
typedef struct cloob_objective_plan cloob_objective_plan;

typedef struct cloob_objective_shape {
    int64_t n, d, nu, nv; /* nu, nv 0: the batch is the stored patterns */
    cloob_dtype dtype;    /* of the rows: F32, BF16, or F64 (device "ref", or "auto", which then selects it) */
    bool gradients;
} cloob_objective_shape;

typedef struct cloob_objective_rows {
    const void *x, *y, *u, *v; /* (n, d), (n, d), (nu, d), (nv, d) */
    /* Overwritten; F64 if the rows are F64, else F32. They must not overlap the rows. dx and dy are required if the
     * shape has gradients; du and dv may be NULL. */
    void *dx, *dy, *du, *dv;
} cloob_objective_rows;

/* Creates a plan for one shape. o->compute is ignored: the shape has the type. The caller destroys *out. */
CLOOB_API cloob_status cloob_objective_plan_create(cloob_ctx *ctx, const cloob_objective_options *o,
                                                   const cloob_objective_shape *s, cloob_objective_plan **out);
/* Sets the two scales for the next run, for training loops that learn them. */
CLOOB_API cloob_status cloob_objective_plan_scales(cloob_ctx *ctx, cloob_objective_plan *p, double inv_tau,
                                                   double scale_hopfield);
/* Computes the objective and returns when it is complete. On a GPU, the caller must first synchronise the streams that
 * write the rows. */
CLOOB_API cloob_status cloob_objective_plan_run(cloob_ctx *ctx, cloob_objective_plan *p,
                                                const cloob_objective_rows *rows, cloob_objective_result *r);
CLOOB_API void cloob_objective_plan_destroy(cloob_objective_plan *p); /* p may be NULL */

#ifdef __cplusplus
}
#endif
#endif
