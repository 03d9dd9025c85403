/* Ranks of all pairs or of some of them, and what they come to. */
#include "eval/retrieval.h"

#include <math.h>
#include <stdlib.h>

#include "eval/retrieval_ranks.h"

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void retrieval_summary(cloob_retrieval_side *out, int64_t *rank, int64_t N)
{
    int64_t at1 = 0, at5 = 0, at10 = 0;
    double sum = 0, inverse = 0;
    for (int64_t i = 0; i < N; i++) {
        at1 += rank[i] <= 1, at5 += rank[i] <= 5, at10 += rank[i] <= 10;
        sum += (double)rank[i];
        inverse += 1 / (double)rank[i];
    }
    qsort(rank, (size_t)N, sizeof *rank, ascending);
    out->recall1 = (double)at1 / (double)N;
    out->recall5 = (double)at5 / (double)N;
    out->recall10 = (double)at10 / (double)N;
    out->mean_rank = sum / (double)N;
    out->mrr = inverse / (double)N;
    out->median_rank = floor(0.5 * (double)(rank[(N - 1) / 2] + rank[N / 2]));
}

/* ---- passes -------------------------------------------------------------------------------------- */

/* One block of memory behind a pass over n queries. */
static cloob_status pass_init(cloob_ctx *ctx, rank_pass *p, void **block, int64_t n)
{
    size_t each = sizeof(double) + 2 * sizeof(int64_t) + 2;
    *block = calloc((size_t)n, each);
    if (!*block) return ctx_no_memory(ctx, (size_t)n * each, "ranks");
    p->matched = *block;
    for (int k = 0; k < 2; k++) {
        p->above[k] = (int64_t *)(p->matched + n) + k * n;
        p->tied[k] = (unsigned char *)(p->matched + 3 * n) + k * n;
    }
    return CLOOB_OK;
}

static cloob_status run_pass(cloob_ctx *ctx, device *gpu, const rank_pass *p)
{
    CLOOB_TRY(ranks_match(ctx, p));
    return gpu ? ranks_gpu(ctx, gpu, p) : ranks_cpu(ctx, p);
}

static void finish(const rank_pass *p, int which, cloob_retrieval_side *side)
{
    int64_t n = p->a->src.N;
    side->tied = 0;
    for (int64_t i = 0; i < n; i++) p->above[which][i]++, side->tied += p->tied[which][i];
    retrieval_summary(side, p->above[which], n);
}

static cloob_status all_queries(cloob_ctx *ctx, device *gpu, cloob_retrieval *out, const unit_rows *image,
                                const unit_rows *text)
{
    void *block;
    rank_pass p = { .a = image, .b = text, .step = 1, .both = true };
    CLOOB_TRY(pass_init(ctx, &p, &block, image->src.N));
    cloob_status status = run_pass(ctx, gpu, &p);
    if (status == CLOOB_OK) finish(&p, 0, &out->image_to_text), finish(&p, 1, &out->text_to_image);
    free(block);
    return status;
}

/* Every step-th row of `from`, n of them, asks among all of `among`. */
static cloob_status some_queries(cloob_ctx *ctx, device *gpu, cloob_retrieval_side *out, const unit_rows *from,
                                 const unit_rows *among, int64_t step, int64_t n)
{
    void *block = NULL;
    rows some = rows_every(&from->src, step, 0);
    unit_rows asking;
    some.N = n;
    CLOOB_TRY(unit_rows_init(ctx, &asking, &some));
    rank_pass p = { .a = &asking, .b = among, .step = step };
    cloob_status status = pass_init(ctx, &p, &block, n);
    if (status == CLOOB_OK) status = run_pass(ctx, gpu, &p);
    if (status == CLOOB_OK) finish(&p, 0, out);
    free(block);
    unit_rows_release(&asking);
    return status;
}

cloob_status retrieval_run(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text,
                           int64_t queries, device *gpu)
{
    int64_t N = image->src.N, step = queries > 0 && queries < N ? N / queries : 1;
    CLOOB_TRY(unit_rows_match(ctx, image, text));
    out->pairs = out->images = out->texts = N;
    out->queries = queries > 0 && queries < N ? queries : N;
    out->scaled = image->scaled + text->scaled;
    if (out->queries == N) return all_queries(ctx, gpu, out, image, text);
    CLOOB_TRY(some_queries(ctx, gpu, &out->image_to_text, image, text, step, queries));
    return some_queries(ctx, gpu, &out->text_to_image, text, image, step, queries);
}

/* ---- several captions per image ------------------------------------------------------------------ */

static cloob_status check_owners(cloob_ctx *ctx, const unit_rows *image, const unit_rows *text, const int64_t *owner)
{
    if (image->src.D != text->src.D)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s has %lld columns, %s %lld", image->src.name, (long long)image->src.D,
                        text->src.name, (long long)text->src.D);
    for (int64_t j = 0; j < text->src.N; j++)
        if (owner[j] < 0 || owner[j] >= image->src.N)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "text %lld belongs to image %lld; there are images 0 to %lld",
                            (long long)j, (long long)owner[j], (long long)image->src.N - 1);
    return CLOOB_OK;
}

/* Ranks of the queries that have a partner. */
static cloob_status owned_side(cloob_ctx *ctx, cloob_retrieval_side *out, const unit_rows *from, const unit_rows *among,
                               const int64_t *partner, int64_t *queries)
{
    void *block;
    rank_pass p = { .a = from, .b = among, .partner = partner };
    int64_t n = 0;
    CLOOB_TRY(pass_init(ctx, &p, &block, from->src.N));
    cloob_status status = run_pass(ctx, NULL, &p);
    out->tied = 0;
    for (int64_t i = 0; i < from->src.N && status == CLOOB_OK; i++)
        if (partner[i] >= 0) p.above[0][n++] = p.above[0][i] + 1, out->tied += p.tied[0][i];
    if (status == CLOOB_OK) retrieval_summary(out, p.above[0], n);
    *queries = n;
    free(block);
    return status;
}

cloob_status retrieval_run_owned(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text,
                                 const int64_t *owner)
{
    int64_t *best, texts;
    CLOOB_TRY(check_owners(ctx, image, text, owner));
    *out = (cloob_retrieval){ .images = image->src.N, .texts = text->src.N, .scaled = image->scaled + text->scaled };
    best = malloc((size_t)image->src.N * sizeof *best);
    if (!best) return ctx_no_memory(ctx, (size_t)image->src.N * sizeof *best, "ranks");
    cloob_status status = ranks_best(ctx, image, text, owner, best);
    if (status == CLOOB_OK) status = owned_side(ctx, &out->image_to_text, image, text, best, &out->queries);
    if (status == CLOOB_OK) status = owned_side(ctx, &out->text_to_image, text, image, owner, &texts);
    out->pairs = text->src.N;
    free(best);
    return status;
}
