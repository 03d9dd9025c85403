/* The parts of the objective on a GPU, corresponding to cpu.h: tiles of scores, retrieval, contrast. Private to
 * src/loss/cuda. Everything is launched on one stream; nothing here waits. */
#ifndef LOSS_CUDA_GPU_H
#define LOSS_CUDA_GPU_H

#include "loss/impl.h"
#include "tensor/cuda/vendor.h"

/* The state of a plan: handles, and the memory of a tile. */
typedef struct gpu {
    cublasHandle_t blas;
    cudaStream_t stream;
    int device;
    cloob_dtype T; /* of embeddings, retrieved rows and GEMM operands */
    size_t size;   /* of T, bytes */
    int64_t d;
    int64_t tile; /* scores are computed tile x tile at a time */
    bool fused;   /* by fused.cu instead of a GEMM and a pass over its result */
    void *blas_memory;
    void *e, *ds;     /* (tile, tile) of T */
    float *s, *t;     /* (tile, tile) scores and their other factor; NULL when fused */
    float *panel;     /* (tile, d) */
    float *top, *pos; /* (tile) of the current row of tiles */
    double *sum;
    float *partial;               /* fused: (tile / FUSED_COLUMNS, tile, 2) maxima and sums */
    unsigned long long *bad;      /* first row that is refused; one cell per use */
    double *value, *dots;         /* (n) */
    double *total;                /* GPU_TOTALS numbers that are copied to the host at the end */
    float *mean_a, *mean_b;       /* (d), f32 only */
    double *column;               /* (N), f32 only */
    float *centred_a, *centred_b; /* (n, d), (N, d), f32 only */
    struct gpu_report *report;    /* page-locked: results copied by the stream */
} gpu;

enum { GPU_IMAGE, GPU_TEXT, GPU_DINV_TAU, GPU_DBETA, GPU_TOTALS };
enum { GPU_BAD_CELLS = 8 };

typedef struct gpu_report {
    double totals[GPU_TOTALS];
    unsigned long long bad[GPU_BAD_CELLS];
} gpu_report;

typedef struct mat { /* rows of T on the device */
    const void *data;
    int64_t n;
} mat;

/* The rows from `first` on. */
const void *mat_at(const gpu *g, const void *data, int64_t first);

cloob_status gpu_cuda(cloob_ctx *ctx, cudaError_t e, const char *what);
#define GPU_TRY(what, call) CLOOB_TRY(gpu_cuda(ctx, (call), what))

/* C (M, N) f32 = alpha op(A) op(B) + beta C, A and B of T; row-major. */
cloob_status gpu_gemm(cloob_ctx *ctx, const gpu *g, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha,
                      const void *A, int64_t lda, const void *B, int64_t ldb, double beta, float *C, int64_t ldc);

cloob_status gpu_zero(cloob_ctx *ctx, const gpu *g, void *p, size_t bytes);

/* Tiles (tile.c): each leaves its result in g->e, and g->ds. */
cloob_status tile_exp(cloob_ctx *ctx, const gpu *g, const void *a, const void *b, int64_t m, int64_t n, double beta,
                      const float *row_shift); /* e = exp(beta a b^T - shift); shift beta when row_shift is NULL */
/* e as above; ds = factor e o (dra b^T + a drb^T); drb may be NULL */
cloob_status tile_dscore(cloob_ctx *ctx, const gpu *g, const void *a, const void *b, const void *dra, const void *drb,
                         int64_t m, int64_t n, double beta, const float *row_shift, double factor);

typedef struct gpu_pair { /* cpu.h: pair. Both directions share exp(beta (a b^T - 1)) */
    mat a, b;
    bool same;
    double beta;
    float *ra, *rb;
    const void *dra, *drb;
    float *da, *db;
} gpu_pair;

cloob_status gpu_pair_forward(cloob_ctx *ctx, const gpu *g, const gpu_pair *p);
cloob_status gpu_pair_backward(cloob_ctx *ctx, const gpu *g, const gpu_pair *p);

typedef struct gpu_search { /* cpu.h: search. Any states, any stored set; the shift is the row's maximum */
    mat states, stored;
    double beta;
    float *r;       /* forward: (n, d) sums */
    const void *dr; /* backward: (n, d) of T */
    float *shift;   /* (n) */
    float *dstates, *dstored;
} gpu_search;

cloob_status gpu_search_forward(cloob_ctx *ctx, const gpu *g, const gpu_search *s);
/* Adds to total[GPU_DBETA]. */
cloob_status gpu_search_backward(cloob_ctx *ctx, const gpu *g, const gpu_search *s);

typedef struct gpu_contrast { /* cpu.h: contrast */
    mat a, b;
    int64_t first;
    double inv_tau;
    bool leave_one_out;
    double *lse, *weight; /* (n) */
    float *unit_length;
    const void *low; /* with unit_length: the rounding errors of the anchors, see k_unit_forward; NULL: none */
    float *da, *db;
} gpu_contrast;

/* Adds the sum over the anchors to *total (device). */
cloob_status gpu_contrast_forward(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c, double *total);
/* Adds to total[GPU_DINV_TAU]. */
cloob_status gpu_contrast_backward(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c);

/* On the host (loss_is_hosted). */
cloob_status gpu_host_run(cloob_ctx *ctx, loss_plan *p, const gpu *g, const loss_inputs *in, const loss_outputs *out,
                          loss_result *r);

/* The contrastive methods (batch.c). */
bool gpu_shares_scores(const loss_plan *p); /* retrieval is by gpu_pair, not by gpu_search */
size_t gpu_batch_bytes(const loss_plan *p, gpu *g);
cloob_status gpu_batch_queue(cloob_ctx *ctx, loss_plan *p, gpu *g, const loss_inputs *in, const loss_outputs *out);
void gpu_batch_result(const loss_plan *p, const double totals[], loss_result *r);

/* SigLIP (sigmoid.c). */
size_t gpu_sigmoid_bytes(const loss_plan *p, gpu *g);
cloob_status gpu_sigmoid_queue(cloob_ctx *ctx, loss_plan *p, gpu *g, const loss_inputs *in, const loss_outputs *out);
void gpu_sigmoid_result(const loss_plan *p, const double totals[], loss_result *r);

static inline void *gpu_carve(carver *c, size_t bytes) { return carve_aligned(c, bytes, 256); }

/* The parts of g that all methods need; n: own rows, N: all rows. */
void gpu_carve_common(carver *c, const loss_plan *p, gpu *g);
/* Fails when the carved bytes differ from the counted bytes, which would write past the block. */
cloob_status gpu_carved(cloob_ctx *ctx, const loss_plan *p, size_t used);

/* Clears totals and bad rows; after carving, before the first kernel. */
cloob_status gpu_begin_totals(cloob_ctx *ctx, const gpu *g);
/* Starts the copy of totals and bad rows to the host, after the last kernel. */
cloob_status gpu_send_totals(cloob_ctx *ctx, const gpu *g);

#endif
