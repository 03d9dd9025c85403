/* Image-text retrieval: the rank of the true partner among all candidates, in both directions.
 *
 * Row i of the images belongs to row i of the texts. The rank of a query's partner counts from 1 and is its
 * place when candidates are sorted by similarity, largest first, equal ones by index: 1 + those above + those
 * equal with a lower index. A collapsed encoder therefore comes out at chance, not at 100 %. Similarities are
 * formed in float; a similarity too close to the partner's is recomputed in double, with the partner's, so
 * ranks are exact unless more than an eighth of a tile is that close: those count as equal. */
#ifndef EVAL_RETRIEVAL_H
#define EVAL_RETRIEVAL_H

#ifdef __cplusplus
extern "C" {
#endif
#include "cloob/eval.h"
#include "eval/rows.h"

/* image, text: the same N and D. N x N similarities are formed tile by tile; memory is 26 bytes per pair and
 * a few MiB per thread. queries: 0 or N ranks every pair; fewer ranks that many, evenly spread over the rows, each
 * among all N candidates. */
cloob_status retrieval_run(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text,
                           int64_t queries);

/* Any number of captions per image: text j belongs to image owner[j]. An image's rank is that of its best caption
 * among all texts, a text's that of its image among all images, as Flickr30k and COCO are published. Images without a
 * caption are candidates, not queries. */
cloob_status retrieval_run_owned(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text,
                                 const int64_t *owner);

/* rank: (N), from 1; sorted in place. */
void retrieval_summary(cloob_retrieval_side *out, int64_t *rank, int64_t N);

#ifdef __cplusplus
}
#endif
#endif
