/* Detects a run that learns nothing. */
#include "train/run_loop.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST_CHECK = 50 };

double collapse_similarity(const float *x, int64_t n, int64_t d)
{
    double square = 0;
    if (n < 2) return 0;
    for (int64_t k = 0; k < d; k++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)x[i * d + k];
        square += sum * sum;
    }
    return (square - (double)n) / ((double)n * (double)(n - 1));
}

double collapse_start(cloob_method method, int64_t N, double inv_tau)
{
    if (loss_method_is_sigmoid(method)) return 0; /* its start depends on the bias */
    double others = (double)(loss_method_leaves_one_out(method) ? N - 1 : N);
    return others > 0 ? 2 * log(others) / inv_tau : 0;
}

bool collapse_is_due(int64_t updates)
{
    int64_t check = FIRST_CHECK;
    while (check < updates) check *= 2;
    return check == updates;
}

bool collapse_is_plateau(const collapse_signs *s) { return s->start > 0 && fabs(s->loss - s->start) < 0.05 * s->start; }

bool collapse_seen(const collapse_signs *s)
{
    bool point = s->image > 0.99 || s->text > 0.99;
    return point && collapse_is_plateau(s);
}

static cloob_status similarity_within(cloob_ctx *ctx, run *r, bool text, double *out)
{
    int64_t n = r->o->batch_size * r->o->accum_freq, d = r->so.model.embed;
    size_t bytes = (size_t)(n * d) * sizeof(float);
    float *x = malloc(bytes); /* a few times in a run */
    if (!x) return ctx_no_memory(ctx, bytes, "the embeddings of a batch");
    cloob_status status = r->dev->to_host(ctx, r->dev, x, step_embeddings(r->s, text), bytes);
    *out = status == CLOOB_OK ? collapse_similarity(x, n, d) : 0;
    free(x);
    return status;
}

/* The loss has not moved, though the embeddings are not one point: names the usual remedies. */
static void report_plateau(cloob_ctx *ctx, run *r, const collapse_signs *signs)
{
    enum { PATIENCE = 400 };
    if (r->at.updates < PATIENCE || !collapse_is_plateau(signs)) return;
    journal_warn(ctx, r->log,
                 "after %lld steps the loss (%.4f) is still at its initial value (%.4f): %s, or try another `lr`",
                 (long long)r->at.updates, signs->loss, signs->start,
                 loss_method_has_hopfield(r->so.method) && r->so.hopfield_warmup < r->at.updates
                     ? "delay retrieval (`hopfield_warmup` 1000)"
                     : "check that captions belong to their images");
}

cloob_status run_check_collapse(cloob_ctx *ctx, run *r, const step_result *s)
{
    int64_t N = r->o->batch_size * r->o->accum_freq * comm_size(r->c);
    collapse_signs signs = { .loss = s->loss, .start = r->o->loss ? 0 : collapse_start(r->so.method, N, s->inv_tau) };
    if (!collapse_is_due(r->at.updates) || comm_rank(r->c) != 0) return CLOOB_OK;
    CLOOB_TRY(similarity_within(ctx, r, false, &signs.image));
    CLOOB_TRY(similarity_within(ctx, r, true, &signs.text));
    if (!collapse_seen(&signs)) {
        report_plateau(ctx, r, &signs);
        return CLOOB_OK;
    }
    journal_line(ctx, r->log,
                 "COLLAPSE: after %lld steps the loss %.4f is still at its initial value (%.4f), and %s are embedded "
                 "at one point (mean similarity: images %.3f, texts %.3f). Likely causes: a learning rate that is too "
                 "high or a warm-up that is too short (`lr`, `warmup`); captions or images that are all alike or do "
                 "not match; a batch that is too small; weights of `pretrained` with another activation or "
                 "normalisation; retrieval from the first step on, which `hopfield_warmup` delays.",
                 (long long)r->at.updates, s->loss, signs.start,
                 signs.image > 0.99 ? (signs.text > 0.99 ? "images and texts" : "all images") : "all texts",
                 signs.image, signs.text);
    return CLOOB_OK;
}
