/* Images of a split through the model, with the numbers stored next to them, and the tasks of CLIP_benchmark on them:
 * zero-shot classification (accuracy, recall by class, average precision where an image has several labels), retrieval,
 * linear probe. */
#include <math.h>
#include <stdlib.h>

#include "core/arith.h"
#include "data/sets/dataset.h"
#include "eval/metrics.h"
#include "infer/embed_job.h"
#include "infer/zeroshot_run.h"
#include "io/rows_file.h"
#include "lab/memory.h"
#include "lab/suite/suite.h"

enum { MAX_TARGETS = 1 << 16 }; /* numbers of one npy member: far more than any set has classes */

/* The folder's name may come from a list or an archive, so commands in it are not run. */
static cloob_status open_split(cloob_ctx *ctx, const bench *b, const char *split, const char *text_key, dataset **d)
{
    cloob_data_options o;
    if (dataset_runs_commands(ctx, b->folder))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: its name is a command (pipe:), which is not run; rename it",
                        b->folder);
    cloob_data_options_init(&o);
    if (b->o.data) o = *b->o.data;
    o.type = "webdataset", o.split = split;
    if (text_key) o.text_key = text_key;
    return dataset_open(ctx, b->folder, &o, d);
}

/* The array of one sample into row; *columns is set by the first one. */
static cloob_status read_target(cloob_ctx *ctx, const dataset *d, int64_t i, stored_sample *s, double *row,
                                int64_t *columns)
{
    int64_t n;
    CLOOB_TRY(dataset_fetch(ctx, d, i, 0, FETCH_TARGETS, s));
    CLOOB_TRY(npy_numbers(ctx, s->data, s->size, s->name.data, row, *columns ? *columns : MAX_TARGETS, &n));
    if (n < 1 || (*columns && n != *columns))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has %lld numbers, others have %lld", s->name.data, (long long)n,
                        (long long)*columns);
    *columns = n;
    return CLOOB_OK;
}

static cloob_status read_targets(cloob_ctx *ctx, const dataset *d, bench_features *f)
{
    stored_sample s = { 0 };
    double *first = must(malloc(MAX_TARGETS * sizeof *first));
    cloob_status status = read_target(ctx, d, f->e.row[0], &s, first, &f->targets);
    free(first);
    if (status == CLOOB_OK) f->target = must(malloc((size_t)(f->e.rows * f->targets) * sizeof *f->target));
    for (int64_t i = 0; i < f->e.rows && status == CLOOB_OK; i++)
        status = read_target(ctx, d, f->e.row[i], &s, f->target + i * f->targets, &f->targets);
    stored_sample_release(&s);
    return status;
}

cloob_status features_make(cloob_ctx *ctx, const bench *b, const char *split, bench_features *f)
{
    dataset *d;
    *f = (bench_features){ 0 };
    CLOOB_TRY(open_split(ctx, b, split, NULL, &d));
    embed_job job;
    embed_job_init(&job);
    job.data = d, job.eval.workers = b->o.workers;
    job.all_captions = dataset_has_captions(d);
    cloob_status status = embed_to_memory(ctx, b->m, &job, &f->e);
    if (status == CLOOB_OK && dataset_has_targets(d)) status = read_targets(ctx, d, f);
    dataset_close(d);
    if (status != CLOOB_OK) features_release(f);
    return status;
}

cloob_status features_add_targets(cloob_ctx *ctx, const bench *b, bench_features *f)
{
    dataset *classes, *d;
    CLOOB_TRY(open_split(ctx, b, b->o.split, NULL, &classes));
    int64_t n = dataset_count(classes);
    dataset_close(classes);
    cloob_status status = open_split(ctx, b, b->o.split, "npy", &d);
    if (status != CLOOB_OK)
        return ctx_wrap(ctx, status, "%s: its metrics need an npy member next to every image", b->folder);
    if (dataset_count(d) != n)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld images have a class and %lld an npy member; all need both",
                          b->folder, (long long)n, (long long)dataset_count(d));
    if (status == CLOOB_OK) status = read_targets(ctx, d, f);
    dataset_close(d);
    return status;
}

void features_release(bench_features *f)
{
    embed_result_release(&f->e);
    free(f->target);
    *f = (bench_features){ 0 };
}

/* ---- answers of a classifier ------------------------------------------------------------------------ */

enum { AT_ONCE = 512 };

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
    double *ap = must(malloc((size_t)C * sizeof *ap)), sum = 0;
    cloob_status status = average_precision(ctx, score, positive, n, C, ap);
    for (int64_t c = 0; c < C && status == CLOOB_OK; c++) sum += ap[c] / (double)C;
    if (status == CLOOB_OK) bench_score(b, "mean_average_precision", sum);
    free(ap);
    return status;
}

static cloob_status check_targets(cloob_ctx *ctx, const bench *b, const bench_features *f, int64_t C)
{
    if (f->targets != C)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: labels have %lld numbers, but classnames.txt has %lld classes",
                        b->folder, (long long)f->targets, (long long)C);
    for (int64_t i = 0; i < f->e.rows * C; i++)
        if (f->target[i] != 0 && f->target[i] != 1)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: image %lld has a label of %g; must be 0 or 1", b->folder,
                            (long long)(i / C), f->target[i]);
    return CLOOB_OK;
}

static cloob_status rank_classes(cloob_ctx *ctx, bench *b, zeroshot *z, const bench_features *f)
{
    int64_t n = f->e.rows, C = z->C;
    float *score = must(malloc((size_t)(n * C) * sizeof *score));
    unsigned char *positive = must(malloc((size_t)(n * C)));
    cloob_status status = check_targets(ctx, b, f, C);
    if (status == CLOOB_OK) {
        zeroshot_scores(ctx, z, f->e.image, n, score);
        for (int64_t i = 0; i < n * C; i++) positive[i] = f->target[i] != 0;
        status = precision(ctx, b, score, positive, n, C);
    }
    free(score), free(positive);
    return status;
}

/* ---- one label ----------------------------------------------------------------------------------- */

static cloob_status count(cloob_ctx *ctx, bench *b, zeroshot *z, bench_features *f)
{
    size_t n = (size_t)f->e.rows;
    bench_answers a = { f->e.rows, must(malloc(n * 8)), must(malloc(n * 8)), must(malloc(n)), must(malloc(n)) };
    cloob_status status = answer(ctx, z, f, &a);
    if (status == CLOOB_OK) {
        accuracy_result r = accuracy_finish(&z->count);
        bench_score(b, "acc1", r.top1);
        bench_score(b, "acc5", z->C >= 5 ? r.top5 : NAN);
        bench_score(b, "mean_per_class_recall", r.mean_per_class);
        if (b->set && b->set->protocol != DATACOMP_PLAIN) status = task_groups(ctx, b, f, &a);
    }
    free(a.label), free(a.predicted), free(a.right), free(a.right5);
    return status;
}

cloob_status task_classes(cloob_ctx *ctx, bench *b)
{
    bench_features f;
    prompts p = { 0 };
    zeroshot z;
    CLOOB_TRY(features_make(ctx, b, b->o.split, &f));
    b->out->n = f.e.rows, b->out->bad = f.e.bad;
    cloob_status status = prompts_import(ctx, &b->folder, 1, &p);
    if (status == CLOOB_OK) status = zeroshot_weights(ctx, b->m->enc, b->m->tok, &p.set[0], NULL, &z);
    if (status == CLOOB_OK) {
        status = f.target ? rank_classes(ctx, b, &z, &f) : count(ctx, b, &z, &f);
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
    CLOOB_TRY(features_make(ctx, b, b->o.split, &f));
    const embed_result *e = &f.e;
    b->out->n = e->rows, b->out->bad = e->bad;
    cloob_matrix images = { e->image, CLOOB_F32, e->rows, e->image_width, b->folder },
                 texts = { e->text, CLOOB_F32, e->text_rows, e->text_width, b->folder };
    cloob_retrieve_options how = { .text_image = e->text_image };
    cloob_status status =
        e->text ? cloob_retrieve(ctx, &r, &images, &texts, &how)
                : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: neither classnames.txt nor captions (txt members)", b->folder);
    if (status == CLOOB_OK) put_scores(b, &r.text_to_image, &r.image_to_text);
    features_release(&f);
    return status;
}

/* ---- the linear probe ---------------------------------------------------------------------------- */

/* Unit features of the image tower, trained on train, tested on test. The penalty is chosen on the validation split,
 * which is then trained on as well; without one on every other training row. It is minimised by L-BFGS, where
 * CLIP_benchmark takes ten epochs of AdamW: the penalty is lambda, not weight decay. */

static cloob_split split_of(const bench_features *f, const char *name)
{
    return (cloob_split){ { f->e.image, CLOOB_F32, f->e.rows, f->e.image_width, name },
                          f->e.label,
                          (const char *const *)f->e.class_name,
                          f->e.classes };
}

static cloob_status train_all(cloob_ctx *ctx, bench *b, const cloob_split *train, const cloob_split *val,
                              const cloob_split *test)
{
    cloob_probe_options o;
    cloob_probe_result r;
    cloob_probe_options_init(&o);
    CLOOB_TRY(cloob_probe(ctx, &r, &o, train, val, test));
    bench_score(b, "lp_acc1", r.test_acc);
    bench_score(b, "lp_acc5", r.classes >= 5 ? r.test_acc5 : NAN);
    bench_score(b, "lp_mean_per_class_recall", r.test_mean_per_class);
    bench_score(b, "lambda", r.lambda);
    cloob_probe_release(&r);
    return CLOOB_OK;
}

static cloob_status train_few(cloob_ctx *ctx, bench *b, const cloob_split *train, const cloob_split *val,
                              const cloob_split *test)
{
    few_shot_options o = { .shots = &b->o.shots, .shots_count = 1, .seeds = 1, .seed = b->o.seed };
    few_shot_result r;
    cloob_probe_options_init(&o.probe);
    CLOOB_TRY(few_shot_probe(ctx, &r, &o, train, val, test));
    const few_shot_draw *d = &r.row[0].draw[0];
    bench_score(b, "lp_acc1", d->test_acc);
    bench_score(b, "lp_acc5", d->test_acc5);
    bench_score(b, "lp_mean_per_class_recall", d->test_mean_per_class);
    bench_score(b, "lambda", d->lambda);
    return CLOOB_OK;
}

static cloob_status check_labels(cloob_ctx *ctx, const bench *b, const bench_features *f, const char *split)
{
    if (f->e.label && !f->target) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a linear probe needs one class per image (cls members), %s has none",
                    b->folder, split);
}

cloob_status task_probe(cloob_ctx *ctx, bench *b)
{
    const char *name[3] = { b->o.train_split, b->o.val_split, b->o.split };
    bench_features f[3] = { { .targets = 0 } };
    cloob_status status = CLOOB_OK;
    for (int k = 0; k < 3 && status == CLOOB_OK; k++) {
        if (!name[k]) continue;
        status = features_make(ctx, b, name[k], &f[k]);
        if (status == CLOOB_OK) status = check_labels(ctx, b, &f[k], name[k]);
    }
    if (status == CLOOB_OK) {
        cloob_split train = split_of(&f[0], name[0]), val = split_of(&f[1], name[1]), test = split_of(&f[2], name[2]);
        b->out->n = f[2].e.rows, b->out->bad = f[2].e.bad;
        status = (b->o.shots > 0 ? train_few : train_all)(ctx, b, &train, name[1] ? &val : NULL, &test);
        bench_score(b, "fewshot_k", (double)b->o.shots);
        bench_score(b, "seed", (double)b->o.seed);
    }
    for (int k = 0; k < 3; k++) features_release(&f[k]);
    return status;
}
