/* How many candidates stand before a query's partner: tile by tile, on the CPU or a GPU, with the same
 * answer.
 *
 * Query k is row k of a; its partner is candidate k * step, row k * step of b, or the one that `partner` names.
 * Similarities are formed in float; what is within RANK_NEAR of the partner's is recomputed in double, always in the
 * same order of additions, so that equal rows have equal similarities wherever they are formed. Where more than an
 * eighth of a stretch of candidates is that near (a collapse), the near ones count as equal. */
#ifndef EVAL_RETRIEVAL_RANKS_H
#define EVAL_RETRIEVAL_RANKS_H

#ifdef __cplusplus
extern "C" {
#endif
#include "eval/rows.h"
#include "tensor/device.h"

/* Float similarities of unit rows are off by 1e-7 or so (rounding errors of D products, which mostly cancel).
 */
#define RANK_NEAR 2e-6f
enum { RANK_STRETCH = 512 }; /* candidates looked at together */

typedef struct rank_pass {
    const unit_rows *a, *b;
    int64_t step;
    bool both;              /* every candidate asks for its row as well; step is 1 and a has as many rows as b */
    double *matched;        /* (rows of a) similarity of query and partner */
    int64_t *above[2];      /* (rows of a), zeros on entry: candidates before the partner; [1] where both */
    unsigned char *tied[2]; /* 1 where another candidate is exactly as similar */
    size_t gpu_limit;       /* bytes to take on a GPU; 0: three quarters of what is free */
    const int64_t *partner; /* (rows of a) rows of b, on the CPU; -1: no query. NULL: k * step */
} rank_pass;

/* Which candidate is query k's. */
static inline int64_t rank_partner(const rank_pass *p, int64_t k) { return p->partner ? p->partner[k] : k * p->step; }

/* The largest of row i's similarities to the rows of b that it owns, as rank_pass wants it: partner (rows of a) gets
 * the first of the most similar rows j with owner[j] == i, -1 where there is none. */
cloob_status ranks_best(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b, const int64_t *owner, int64_t *partner);

/* Fills `matched`; needed before either of the two below. */
cloob_status ranks_match(cloob_ctx *ctx, const rank_pass *p);

cloob_status ranks_cpu(cloob_ctx *ctx, const rank_pass *p);
/* Rows of both stay on the device where they fit, else they are sent in panels. Says so in the log. In a
 * build without CUDA: CLOOB_ERR_UNSUPPORTED. */
cloob_status ranks_gpu(cloob_ctx *ctx, device *d, const rank_pass *p);

#ifdef __cplusplus
}
#endif
#endif
