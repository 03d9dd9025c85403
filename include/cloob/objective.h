/* The CLOOB objective of a batch of embeddings, with gradients: Hopfield retrieval and InfoLOOB, and the
 * paper's other three combinations. Exact, and never holding an N x N matrix.
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
    CLOOB_METHOD_SIGLIP            /* SigLIP's sigmoid loss, with logit_bias and without division by inv_tau */
} cloob_method;

/* "cloob", "clip", "infoloob", "infonce-hopfield", "siglip"; false for any other. */
CLOOB_API bool cloob_method_from_name(const char *name, cloob_method *out);

typedef struct cloob_objective_options {
    size_t size; /* of this struct; set by cloob_objective_options_init */
    cloob_method method;
    double inv_tau;        /* inverse temperature, above 0 */
    double scale_hopfield; /* beta, not negative */
    const char *device;    /* "auto", "cpu", "cuda", "cuda:N", "ref" */
    cloob_dtype compute;   /* F32, or BF16: embeddings are rounded to it first, and a GPU multiplies in it */
    double logit_bias;     /* siglip: -10 */
} cloob_objective_options;

/* The paper's: cloob, 30, 8; device auto, F32. */
CLOOB_API void cloob_objective_options_init(cloob_objective_options *o);

/* Rows of unit length in host memory, row-major f32. u, v: stored patterns; NULL: the batch itself. */
typedef struct cloob_pairs {
    const float *x, *y; /* (n, d) */
    int64_t n, d;
    const float *u, *v; /* (nu, d), (nv, d) */
    int64_t nu, nv;
} cloob_pairs;

/* Overwritten; any may be NULL. dx, dy: both or none. Of `loss`, rows taken as given. */
typedef struct cloob_gradients {
    float *dx, *dy, *du, *dv;
} cloob_gradients;

typedef struct cloob_objective_result {
    double loss; /* (image_term + text_term) / inv_tau; siglip: their sum */
    double image_term, text_term;
    double dsum_dinv_tau, dsum_dscale; /* of image_term + text_term, by the two scales; 0 without gradients */
    int64_t n, d, nu, nv;
    double dsum_dbias; /* siglip */
} cloob_objective_result;

/* g may be NULL. Fails with a text that names the value or the row: not unit length, NaN, too few pairs. */
CLOOB_API cloob_status cloob_objective(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_pairs *e,
                                       const cloob_gradients *g, cloob_objective_result *r);

/* ---- rows that are where they should be ---- */

/* Rows and gradients that already lie in the memory they are computed in: the host's for "cpu" and "ref", the
 * GPU's for "cuda". Nothing is copied, and after the first run nothing is allocated (but by ref). For a
 * training loop of one's own.
 */
typedef struct cloob_objective_plan cloob_objective_plan;

typedef struct cloob_objective_shape {
    int64_t n, d, nu, nv; /* nu, nv 0: the batch itself is stored */
    cloob_dtype dtype;    /* of the rows: F32, BF16; or F64 with device "ref", which "auto" then takes */
    bool gradients;
} cloob_objective_shape;

typedef struct cloob_objective_rows {
    const void *x, *y, *u, *v; /* (n, d), (n, d), (nu, d), (nv, d) */
    void *dx, *dy, *du, *dv;   /* overwritten; F64 where the rows are, else F32; never the rows' own memory. dx and
              * dy must be there where the shape asks for gradients, du and dv may be NULL */
} cloob_objective_rows;

/* o->compute is not looked at: the shape has the type. */
CLOOB_API cloob_status cloob_objective_plan_create(cloob_ctx *ctx, const cloob_objective_options *o,
                                                   const cloob_objective_shape *s, cloob_objective_plan **out);
/* Learnable scales: takes effect with the next run. */
CLOOB_API cloob_status cloob_objective_plan_scales(cloob_ctx *ctx, cloob_objective_plan *p, double inv_tau,
                                                   double scale_hopfield);
/* Everything is done when it returns. What was queued on a GPU before must be done when it is called. */
CLOOB_API cloob_status cloob_objective_plan_run(cloob_ctx *ctx, cloob_objective_plan *p,
                                                const cloob_objective_rows *rows, cloob_objective_result *r);
CLOOB_API void cloob_objective_plan_destroy(cloob_objective_plan *p); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
