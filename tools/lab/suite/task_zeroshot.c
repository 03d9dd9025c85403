/* Zero-shot tasks: classification (accuracy, recall by class, average precision where an image has several labels) and
 * retrieval. */
#include <math.h>
#include <stdlib.h>

#include "lab/suite/suite.h"
#include "core/arith.h"
#include "eval/metrics.h"
#include "cloob/eval.h"
#include "eval/metrics.h"
#include "infer/embed_source.h"

enum { AT_ONCE = 512 };

static void answers_release(bench_answers *a) { free(a->label), free(a->predicted), free(a->right), free(a->right5); }

static cloob_status answers_init(cloob_ctx *ctx, bench_answers *a, const bench_features *f)
{
    size_t n = (size_t)f->e.rows;
    *a = (bench_answers){ f->e.rows, malloc(n * sizeof *a->label), malloc(n * sizeof *a->predicted), malloc(n),
                          malloc(n) };
    return a->label && a->predicted && a->right && a->right5 ? CLOOB_OK : ctx_no_memory(ctx, n * 18, "answers");
}

/* The first of equal scores is the answer, as argmax has it. */
static void note(bench_answers *a, int64_t i, int64_t label, const float *score, int64_t C)
{
    int64_t best = 0, before = 0;
    for (int64_t c = 1; c < C; c++)
        if (score[c] > score[best]) best = c;
    for (int64_t c = 0; c < C; c++) before += score[c] > score[label] || (score[c] == score[label] && c < label);
    a->label[i] = label, a->predicted[i] = best;
    a->right[i] = best == label, a->right5[i] = before < 5;
}

static cloob_status answer(cloob_ctx *ctx, zeroshot *z, const bench_features *f, bench_answers *a)
{
    for (int64_t i = 0; i < f->e.rows; i += AT_ONCE) {
        int64_t n = min64(AT_ONCE, f->e.rows - i);
        CLOOB_TRY(zeroshot_add(ctx, z, f->e.image + i * z->D, f->e.label + i, n, i));
        for (int64_t k = 0; k < n; k++) note(a, i + k, f->e.label[i + k], z->score + k * z->C, z->C);
    }
    return CLOOB_OK;
}

/* ---- several labels ------------------------------------------------------------------------------ */

static cloob_status precision(cloob_ctx *ctx, bench *b, const float *score, const unsigned char *positive, int64_t n,
                              int64_t C)
{
    double *ap = malloc((size_t)C * sizeof *ap), sum = 0;
    if (!ap) return ctx_no_memory(ctx, (size_t)C * sizeof *ap, "average precision");
    cloob_status status = average_precision(ctx, score, positive, n, C, ap);
    for (int64_t c = 0; c < C && status == CLOOB_OK; c++) sum += ap[c] / (double)C;
    if (status == CLOOB_OK) bench_score(b, "mean_average_precision", sum);
    free(ap);
    return status;
}

static cloob_status check_targets(cloob_ctx *ctx, const bench *b, const bench_features *f, int64_t C)
{
    if (f->targets != C)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: labels of %lld numbers, and %lld classes in classnames.txt",
                        b->folder, (long long)f->targets, (long long)C);
    for (int64_t i = 0; i < f->e.rows * C; i++)
        if (f->target[i] != 0 && f->target[i] != 1)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: image %lld has a label of %g; 0 and 1 are possible", b->folder,
                            (long long)(i / C), f->target[i]);
    return CLOOB_OK;
}

static cloob_status rank_classes(cloob_ctx *ctx, bench *b, zeroshot *z, const bench_features *f)
{
    int64_t n = f->e.rows, C = z->C;
    float *score = malloc((size_t)(n * C) * sizeof *score);
    unsigned char *positive = malloc((size_t)(n * C));
    cloob_status status =
        score && positive ? check_targets(ctx, b, f, C) : ctx_no_memory(ctx, (size_t)(n * C) * sizeof *score, "scores");
    if (status == CLOOB_OK) {
        zeroshot_scores(ctx, z, f->e.image, n, score);
        for (int64_t i = 0; i < n * C; i++) positive[i] = f->target[i] != 0;
        status = precision(ctx, b, score, positive, n, C);
    }
    free(score), free(positive);
    return status;
}

cloob_status task_multilabel(cloob_ctx *ctx, bench *b, const bench_features *f)
{
    prompts p;
    zeroshot z;
    CLOOB_TRY(bench_prompts(ctx, b, &p));
    cloob_status status = bench_weights(ctx, b, &p.set[0], &z);
    if (status == CLOOB_OK) {
        status = rank_classes(ctx, b, &z, f);
        zeroshot_release(&z);
    }
    prompts_release(&p);
    return status;
}

/* ---- one label ----------------------------------------------------------------------------------- */

static cloob_status count(cloob_ctx *ctx, bench *b, zeroshot *z, bench_features *f)
{
    bench_answers a;
    cloob_status status = answers_init(ctx, &a, f);
    if (status == CLOOB_OK) status = answer(ctx, z, f, &a);
    if (status == CLOOB_OK) {
        accuracy_result r = accuracy_finish(&z->count);
        bench_score(b, "acc1", r.top1);
        bench_score(b, "acc5", z->C >= 5 ? r.top5 : NAN);
        bench_score(b, "mean_per_class_recall", r.mean_per_class);
        if (b->set && b->set->protocol != DATACOMP_PLAIN) status = task_groups(ctx, b, f, &a);
    }
    answers_release(&a);
    return status;
}

cloob_status task_classes(cloob_ctx *ctx, bench *b)
{
    bench_features f;
    prompts p = { 0 };
    zeroshot z;
    CLOOB_TRY(features_make(ctx, b, b->o.split, NULL, &f));
    b->out->n = f.e.rows, b->out->bad = f.e.bad;
    if (f.target) {
        cloob_status status = task_multilabel(ctx, b, &f);
        features_release(&f);
        return status;
    }
    cloob_status status = bench_prompts(ctx, b, &p);
    if (status == CLOOB_OK) status = bench_weights(ctx, b, &p.set[0], &z);
    if (status == CLOOB_OK) {
        status = count(ctx, b, &z, &f);
        zeroshot_release(&z);
    }
    prompts_release(&p);
    features_release(&f);
    return status;
}

/* ---- retrieval: every caption of every image, both ways ------------------------------------------ */

static void put_scores(bench *b, const cloob_retrieval_side *images, const cloob_retrieval_side *texts)
{
    bench_score(b, "image_retrieval_recall@5", images->recall5);
    bench_score(b, "text_retrieval_recall@5", texts->recall5);
    bench_score(b, "image_retrieval_recall@1", images->recall1);
    bench_score(b, "text_retrieval_recall@1", texts->recall1);
    bench_score(b, "image_retrieval_recall@10", images->recall10);
    bench_score(b, "text_retrieval_recall@10", texts->recall10);
    bench_score(b, "mean_recall@1", (images->recall1 + texts->recall1) / 2);
}

cloob_status task_retrieval(cloob_ctx *ctx, bench *b)
{
    bench_features f;
    cloob_retrieval r;
    CLOOB_TRY(features_make(ctx, b, b->o.split, NULL, &f));
    const embed_result *e = &f.e;
    b->out->n = e->rows, b->out->bad = e->bad;
    cloob_matrix images = { e->image, CLOOB_F32, e->rows, e->image_width, b->folder },
                 texts = { e->text, CLOOB_F32, e->text_rows, e->text_width, b->folder };
    cloob_retrieve_options how = { .device = b->o.device, .text_image = e->text_image };
    cloob_status status =
        e->text ? cloob_retrieve(ctx, &r, &images, &texts, &how)
                : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: neither classnames.txt nor captions (txt members)", b->folder);
    if (status == CLOOB_OK) put_scores(b, &r.text_to_image, &r.image_to_text);
    features_release(&f);
    return status;
}
