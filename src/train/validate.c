/* Validation: embeddings of the validation pairs, their loss, retrieval both ways, and the paper's analysis when asked.
 * Rank 0 works, the others wait; running statistics are the same everywhere, so nothing is lost by it. */
#include <math.h>
#include <stdlib.h>
#include <stdio.h>

#include "core/file.h"
#include "eval/analysis.h"
#include "infer/embed_data.h"
#include "eval/retrieval.h"
#include "model/encoder.h"
#include "train/resume.h"
#include "train/run.h"
#include "eval/eval_json.h"

typedef struct pairs {
    float *image, *text; /* (n, D) unit rows */
    int64_t n, D;
} pairs;

static cloob_status embed_batches(cloob_ctx *ctx, run *r, loader *l, encoder *e, pairs *p, int64_t room)
{
    for (;;) {
        batch b;
        comm_answer(r->c); /* the others wait */
        CLOOB_TRY(loader_next(ctx, l, &b));
        if (b.end) return CLOOB_OK;
        int64_t n = b.rows < room - p->n ? b.rows : room - p->n;
        CLOOB_TRY(encoder_images(ctx, e, b.images, n, CLOOB_UNIT, p->image + p->n * p->D));
        CLOOB_TRY(encoder_texts(ctx, e, b.tokens, n, CLOOB_UNIT, p->text + p->n * p->D));
        p->n += n;
    }
}

static cloob_status embed_pairs(cloob_ctx *ctx, run *r, encoder *e, pairs *p)
{
    loader_options lo;
    loader *l;
    int64_t room = dataset_epoch_samples(r->val);
    size_t bytes = (size_t)(room * p->D) * sizeof(float);
    p->image = malloc(bytes);
    p->text = malloc(bytes);
    if (!p->image || !p->text) return ctx_no_memory(ctx, 2 * bytes, "validation embeddings");
    loader_options_init(&lo);
    lo.batch = r->o->batch_size_eval;
    lo.ranks = 1;
    lo.workers = (int)r->o->workers;
    lo.bad_share = run_bad_share(r);
    lo.context = r->so.model.context;
    loader_feeds(&lo, r->dev);
    transform_options_init(&lo.view, r->so.model.image_size);
    lo.view.mode = (resize_mode)r->so.model.resize;
    CLOOB_TRY(loader_create(ctx, r->val, r->tok, &lo, &l));
    cloob_status status = embed_batches(ctx, r, l, e, p, room);
    loader_destroy(l);
    return status;
}

/* ---- numbers ------------------------------------------------------------------------------------- */

static cloob_status loss_of(cloob_ctx *ctx, const run *r, const pairs *p, cloob_method method, double *out)
{
    loss_options o;
    loss_plan *plan;
    loss_result result;
    loss_shape shape = { .rows = p->n, .dim = p->D, .dtype = CLOOB_F32 };
    loss_inputs in = { .x = p->image, .y = p->text };
    loss_outputs none = { 0 };
    loss_options_init(&o);
    o.method = method;
    o.inv_tau = r->so.learn_inv_tau && method == CLOOB_METHOD_SIGLIP ? loss_scale_value(step_get_state(r->s).scalar[0])
                                                                     : r->o->init_inv_tau;
    o.beta = r->o->scale_hopfield;
    o.bias = step_get_state(r->s).scalar[6];
    o.gradients = false;
    o.unchecked = true;
    CLOOB_TRY(loss_plan_create(ctx, &o, &shape, NULL, &plan));
    cloob_status status = loss_run(ctx, plan, &in, &none, NULL, &result);
    loss_plan_destroy(plan);
    *out = result.loss;
    return status;
}

static void put_side(run *r, json_out *line, int64_t epoch, const char *side, const cloob_retrieval_side *s)
{
    static const char *const names[] = { "mean_rank", "median_rank", "R@1", "R@5", "R@10" };
    double values[] = { s->mean_rank, s->median_rank, s->recall1, s->recall5, s->recall10 };
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_%s", side, names[i]);
        journal_put(r->log, line, epoch, name, values[i]);
    }
}

/* Twice no better than guessing is worth a word, and so is the end of the run; once before that may be the warm-up. */
static void look_for_chance(cloob_ctx *ctx, run *r, int64_t n, const cloob_retrieval *found)
{
    enum { ENOUGH_PAIRS = 50, FIRST_WORD = 2 };
    double chance = 10 / (double)n;
    double best = fmax(found->image_to_text.recall10, found->text_to_image.recall10);
    if (n < ENOUGH_PAIRS) return;
    r->at_chance = best <= 1.5 * chance ? r->at_chance + 1 : 0;
    bool at_the_end = r->at_chance == 1 && r->at.updates >= r->stop_at;
    if (r->at_chance != FIRST_WORD && !at_the_end) return;
    journal_warn(
        ctx, r->log,
        "validation is at chance (R@10 %.3f; guessing gives %.3f). If the training loss is not falling either, "
        "train longer, delay retrieval (`hopfield_warmup`) or lower `lr`. If it is falling, the model is "
        "memorising the training pairs: use more pairs, a smaller `model`, or published weights (`pretrained`)",
        best, chance);
}

static cloob_status put_retrieval(cloob_ctx *ctx, run *r, json_out *line, int64_t epoch, const rows *images,
                                  const rows *texts)
{
    unit_rows x, y;
    cloob_retrieval found;
    CLOOB_TRY(unit_rows_init(ctx, &x, images));
    cloob_status status = unit_rows_init(ctx, &y, texts);
    if (status == CLOOB_OK) {
        status = retrieval_run(ctx, &found, &x, &y, 0, NULL);
        unit_rows_release(&y);
    }
    unit_rows_release(&x);
    CLOOB_TRY(status);
    look_for_chance(ctx, r, images->N, &found);
    put_side(r, line, epoch, "image_to_text", &found.image_to_text);
    put_side(r, line, epoch, "text_to_image", &found.text_to_image);
    journal_line(ctx, r->log, "epoch %lld: image to text R@1 %.3f, R@5 %.3f, R@10 %.3f; text to image %.3f, %.3f, %.3f",
                 (long long)epoch, found.image_to_text.recall1, found.image_to_text.recall5,
                 found.image_to_text.recall10, found.text_to_image.recall1, found.text_to_image.recall5,
                 found.text_to_image.recall10);
    return CLOOB_OK;
}

static cloob_status put_analysis(cloob_ctx *ctx, run *r, json_out *line, int64_t epoch, const rows *images,
                                 const rows *texts)
{
    cloob_analysis a;
    char folder[1200];
    cloob_status status = analysis_run(ctx, &a, images, texts, 0.99);
    if (status == CLOOB_OK) {
        journal_put(r->log, line, epoch, "image_ajne", a.x.ajne);
        journal_put(r->log, line, epoch, "text_ajne", a.y.ajne);
        journal_put(r->log, line, epoch, "image_effective_eigenvalues", (double)a.x.effective);
        journal_put(r->log, line, epoch, "text_effective_eigenvalues", (double)a.y.effective);
        snprintf(folder, sizeof folder, "%s/analysis/epoch_%lld", journal_dir(r->log), (long long)epoch);
        status = file_make_dirs(ctx, folder);
        if (status == CLOOB_OK) status = analysis_write(ctx, &a, NULL, folder);
    }
    cloob_analysis_release(&a);
    return status;
}

/* Appends what the pairs give to the line of results. */
static cloob_status measure(cloob_ctx *ctx, run *r, const pairs *p, int64_t epoch, json_out *line)
{
    rows images, texts;
    double loss, clip;
    tensor x = TENSOR(CLOOB_F32, p->image, p->n, p->D), y = TENSOR(CLOOB_F32, p->text, p->n, p->D);
    CLOOB_TRY(loss_of(ctx, r, p, r->so.method, &loss));
    CLOOB_TRY(loss_of(ctx, r, p, CLOOB_METHOD_CLIP, &clip));
    CLOOB_TRY(rows_of(ctx, &images, &x, "validation images"));
    CLOOB_TRY(rows_of(ctx, &texts, &y, "validation texts"));
    CLOOB_TRY(put_retrieval(ctx, r, line, epoch, &images, &texts));
    if (r->o->analyze) CLOOB_TRY(put_analysis(ctx, r, line, epoch, &images, &texts));
    journal_put(r->log, line, epoch, "val_loss", loss);
    journal_put(r->log, line, epoch, "clip_val_loss",
                clip * r->o->init_inv_tau / 2); /* InfoNCE as open_clip prints it */
    journal_line(ctx, r->log, "epoch %lld: validation loss %.5f over %lld pairs", (long long)epoch, loss,
                 (long long)p->n);
    return CLOOB_OK;
}

static cloob_status validate_pairs(cloob_ctx *ctx, run *r, encoder *e, int64_t epoch, json_out *line)
{
    pairs p = { .D = r->so.model.embed };
    cloob_status status = embed_pairs(ctx, r, e, &p);
    if (status == CLOOB_OK && p.n > 1) status = measure(ctx, r, &p, epoch, line);
    if (status == CLOOB_OK) json_put_int(line, "num_samples", p.n);
    free(p.image);
    free(p.text);
    return status;
}

int64_t run_eval_batch(const run *r)
{
    if (!r->val && !run_has_zeroshot(r)) return 0;
    int64_t limit = r->dev->backend == BACKEND_CUDA ? 256 : 64; /* more gains nothing */
    return r->o->batch_size_eval < limit ? r->o->batch_size_eval : limit;
}

static cloob_status validate(cloob_ctx *ctx, run *r, int64_t epoch, bool with_pairs, bool with_zeroshot)
{
    encoder *e;
    encoder_options eo;
    json_out line = { .spaced = true };
    encoder_options_init(&eo);
    eo.compute = r->so.compute;
    eo.invariant = false;
    eo.batch = run_eval_batch(r);
    CLOOB_TRY(encoder_create_on(ctx, step_params(r->s), &eo, &e));
    json_begin(&line, NULL, '{');
    cloob_status status = with_zeroshot ? run_zeroshot(ctx, r, e, epoch, &line) : CLOOB_OK;
    if (status == CLOOB_OK && with_pairs) status = validate_pairs(ctx, r, e, epoch, &line);
    json_put_int(&line, "epoch", epoch); /* the last: journal_has_result looks for it there */
    json_end(&line);
    if (status == CLOOB_OK)
        status = line.failed ? ctx_no_memory(ctx, line.len, "results") : journal_result(ctx, r->log, line.data);
    encoder_destroy(e);
    free(line.data);
    return status;
}

/* Every so many epochs, and at the end. */
static bool is_due(const run *r, int64_t frequency, int64_t epoch)
{
    return r->at.updates >= r->stop_at || (frequency > 0 && epoch % frequency == 0);
}

epoch_debt run_debt(run *r, int64_t epoch)
{
    epoch_debt d = { .epoch = epoch };
    d.validation = r->val && is_due(r, r->o->val_frequency, epoch);
    d.zeroshot = run_has_zeroshot(r) && r->o->zeroshot_frequency > 0 && is_due(r, r->o->zeroshot_frequency, epoch);
    if (!d.validation && !d.zeroshot) return (epoch_debt){ 0 };
    d.results_bytes = journal_result_bytes(r->log);
    return d;
}

cloob_status run_validate(cloob_ctx *ctx, run *r)
{
    epoch_debt d = r->at.owed;
    if (!d.epoch) return CLOOB_OK;
    cloob_status status = comm_rank(r->c) == 0 ? validate(ctx, r, d.epoch, d.validation, d.zeroshot) : CLOOB_OK;
    CLOOB_TRY(comm_agree(ctx, r->c, status));
    r->at.owed = (epoch_debt){ 0 };
    return CLOOB_OK;
}

cloob_status run_settle_debt(cloob_ctx *ctx, run *r)
{
    int64_t paid = 0;
    cloob_status status = CLOOB_OK;
    epoch_debt *d = &r->at.owed;
    if (!d->epoch) return CLOOB_OK;
    /* A checkpoint of another run brings its weights, not its debts: their results belong in the other folder. */
    if (comm_rank(r->c) == 0) {
        bool there = true;
        if (resume_is_inside(journal_checkpoints(r->log), r->from))
            status = journal_has_result(ctx, r->log, d->epoch, d->results_bytes, &there);
        paid = there;
    }
    CLOOB_TRY(comm_agree(ctx, r->c, status));
    if (comm_size(r->c) > 1) CLOOB_TRY(comm_host_sum(ctx, r->c, &paid, 1));
    d->validation = d->validation && r->val;
    d->zeroshot = d->zeroshot && run_has_zeroshot(r);
    if (paid || (!d->validation && !d->zeroshot)) {
        *d = (epoch_debt){ 0 };
        return CLOOB_OK;
    }
    journal_line(ctx, r->log, "epoch %lld: evaluated now, because the run ended before it could be",
                 (long long)d->epoch);
    return run_validate(ctx, r);
}
