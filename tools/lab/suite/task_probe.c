/* The linear probe of CLIP_benchmark: unit features of the image tower, trained on train, tested on test. The penalty
 * is chosen on the validation split, which is then trained on as well; without one on every other training row. Ours
 * is minimised by L-BFGS, where CLIP_benchmark takes ten epochs of AdamW: the penalty is lambda, not weight decay. */
#include <math.h>

#include "lab/suite/suite.h"
#include "cloob/eval.h"

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
    o.device = b->o.device;
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
    cloob_few_shot_options o = { .shots = &b->o.shots, .shots_count = 1, .seeds = 1, .seed = b->o.seed };
    cloob_few_shot_result r;
    cloob_probe_options_init(&o.probe);
    o.probe.device = b->o.device;
    CLOOB_TRY(cloob_few_shot(ctx, &r, &o, train, val, test));
    const cloob_few_shot_draw *d = &r.row[0].draw[0];
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
        status = features_make(ctx, b, name[k], NULL, &f[k]);
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
