/* Image-text retrieval: the rank of the true partner among all candidates, in both directions.
 *
 * Row i of the images belongs to row i of the texts. The rank of a query's partner counts from 1 and is its
 * place when candidates are sorted by similarity, largest first, equal ones by index: 1 + those above + those
 * equal with a lower index. A collapsed encoder therefore comes out at chance, not at 100 %. Similarities are
 * formed in float; wherever one is too close to the partner's to be sure, both are recomputed in double, so
 * ranks are exact unless more than an eighth of a tile is that close: those count as equal. */
#ifndef EVAL_RETRIEVAL_H
#define EVAL_RETRIEVAL_H

#ifdef __cplusplus
extern "C" {
#endif
#include "cloob/eval.h"
#include "eval/rows.h"
#include "tensor/device.h"

/* image, text: the same N and D. N x N similarities are formed tile by tile; memory is 26 bytes per pair and
 * a few MiB per thread, and on a GPU (NULL: the CPU) the rows. queries: 0 or N ranks every pair; fewer ranks
 * that many, evenly spread over the rows, each among all N candidates. */
cloob_status retrieval_run(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text,
                           int64_t queries, device *gpu);

/* Any number of captions per image: text j belongs to image owner[j]. An image's rank is that of its best caption
 * among all texts, a text's that of its image among all images, as Flickr30k and COCO are published. Images without a
 * caption are candidates, not queries. On the CPU. */
cloob_status retrieval_run_owned(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text,
                                 const int64_t *owner);

/* rank: (N), from 1; sorted in place. */
void retrieval_summary(cloob_retrieval_side *out, int64_t *rank, int64_t N);

/* ---- ranks --------------------------------------------------------------------------------------- */

/* Counts the candidates ranked before a query's partner, tile by tile; the CPU and the GPU give the same counts.
 *
 * Query k is row k of a; its partner is candidate k * step, row k * step of b, or the one that `partner` names.
 * Similarities are formed in float; what is within RANK_NEAR of the partner's is recomputed in double, always in the
 * same order of additions, so that equal rows have equal similarities wherever they are formed. Where more than an
 * eighth of a stretch of candidates is that near (a collapse), the near ones count as equal. */

/* Float similarities of unit rows are off by 1e-7 or so (rounding errors of D products, which mostly cancel).
 */
#define RANK_NEAR 2e-6f
enum { RANK_STRETCH = 512 }; /* candidates processed together */

typedef struct rank_pass {
    const unit_rows *a, *b;
    int64_t step;
    bool both;              /* also ranks every candidate's row; step is 1 and a and b have the same number of rows */
    double *matched;        /* (rows of a) similarity of query and partner */
    int64_t *above[2];      /* (rows of a), zeros on entry: candidates before the partner; [1] where both */
    unsigned char *tied[2]; /* 1 where another candidate is exactly as similar */
    const int64_t *partner; /* (rows of a) rows of b, on the CPU; -1: no query. NULL: k * step */
} rank_pass;

/* Which candidate is query k's. */
static inline int64_t rank_partner(const rank_pass *p, int64_t k) { return p->partner ? p->partner[k] : k * p->step; }

/* Fills `matched`; needed before either of the two below. */
cloob_status ranks_match(cloob_ctx *ctx, const rank_pass *p);

cloob_status ranks_cpu(cloob_ctx *ctx, const rank_pass *p);
/* CLOOB_ERR_MEMORY when the rows of both do not fit on the device; nothing is written then. In a build without CUDA:
 * CLOOB_ERR_UNSUPPORTED. */
cloob_status ranks_gpu(cloob_ctx *ctx, device *d, const rank_pass *p);

#ifdef __cplusplus
}
#endif
#endif
