/* Evaluation between epochs. Validation pairs: their embeddings, loss, retrieval in both directions, and on request the
 * paper's analysis. Class folders: zero-shot accuracy under open_clip's names. Rank 0 evaluates while the others wait;
 * running statistics are the same on every rank. */
#include <math.h>
#include <stdlib.h>
#include <stdio.h>

#include "core/arith.h"
#include "core/file.h"
#include "eval/analysis.h"
#include "eval/metrics.h"
#include "infer/embed_data.h"
#include "infer/zeroshot_run.h"
#include "io/safetensors.h"
#include "model/encoder.h"
#include "train/checkpoint.h"
#include "train/run_loop.h"

/* Both sides of the validation pairs, as unit rows of one width. */
static cloob_status embed_pairs(cloob_ctx *ctx, run *r, encoder *e, embedded *out)
{
    embed_options o = {
        .what = CLOOB_UNIT, .batch = r->o->batch_size_eval, .workers = (int)r->o->workers, .bad_share = run_bad_share(r)
    };
    if (!dataset_has_captions(r->val))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: has no captions to validate with", r->o->val_data);
    return embed_data(ctx, e, r->tok, r->val, &o, out);
}

/* ---- numbers ------------------------------------------------------------------------------------- */

/* The caller's own loss, in batches of the training size: its memory may grow with the square of the batch. */
static cloob_status own_loss_of(cloob_ctx *ctx, const run *r, const embedded *p, double *out)
{
    int64_t most = r->o->batch_size * r->o->accum_freq * comm_size(r->c), n = 0;
    double inv_tau =
        r->so.learn_inv_tau ? loss_scale_value(step_get_state(r->s).scalars.inv_tau.value) : r->o->init_inv_tau;
    *out = 0;
    for (int64_t first = 0; first < p->rows; first += most) {
        int64_t count = min64(most, p->rows - first);
        if (count < 2 && first > 0) break; /* most losses need another pair */
        cloob_loss_call call = { .size = sizeof call,
                                 .step = r->at.updates,
                                 .n = count,
                                 .d = p->image_width,
                                 .x = p->image + first * p->image_width,
                                 .y = p->text + first * p->image_width,
                                 .inv_tau = inv_tau };
        if (!r->o->loss(r->o->loss_user, &call))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`loss`: the function failed in validation");
        *out += call.loss * (double)count;
        n += count;
    }
    *out /= (double)n;
    return CLOOB_OK;
}

static cloob_status loss_of(cloob_ctx *ctx, const run *r, const embedded *p, cloob_method method, double *out)
{
    loss_options o;
    loss_plan *plan;
    loss_result result;
    loss_shape shape = { .rows = p->rows, .dim = p->image_width, .dtype = CLOOB_F32 };
    loss_inputs in = { .x = p->image, .y = p->text };
    loss_outputs none = { 0 };
    loss_options_init(&o);
    o.method = method;
    o.inv_tau = r->so.learn_inv_tau && method == CLOOB_METHOD_SIGLIP
                    ? loss_scale_value(step_get_state(r->s).scalars.inv_tau.value)
                    : r->o->init_inv_tau;
    o.beta = r->o->scale_hopfield;
    o.bias = step_get_state(r->s).scalars.bias.value;
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

/* Warns at the second validation in a row that is no better than guessing, or at the end of the run. A single one
 * earlier may be the warm-up. */
static void check_chance(cloob_ctx *ctx, run *r, int64_t n, const cloob_retrieval *found)
{
    enum { ENOUGH_PAIRS = 50, WARN_AFTER = 2 };
    double chance = 10 / (double)n;
    double best = fmax(found->image_to_text.recall10, found->text_to_image.recall10);
    if (n < ENOUGH_PAIRS) return;
    r->at_chance = best <= 1.5 * chance ? r->at_chance + 1 : 0;
    bool at_the_end = r->at_chance == 1 && r->at.updates >= r->plan.stop_at;
    if (r->at_chance != WARN_AFTER && !at_the_end) return;
    journal_warn(
        ctx, r->log,
        "validation is at chance (R@10 %.3f; guessing gives %.3f). If the training loss is not falling either, "
        "train longer, delay retrieval (`hopfield_warmup`) or lower `lr`. If it is falling, the model is "
        "memorising the training pairs: use more pairs, a smaller `model`, or published weights (`pretrained`)",
        best, chance);
}

static cloob_status put_retrieval(cloob_ctx *ctx, run *r, json_out *line, int64_t epoch, const cloob_matrix *images,
                                  const cloob_matrix *texts)
{
    cloob_retrieval found;
    CLOOB_TRY(cloob_retrieve(ctx, &found, images, texts, NULL));
    check_chance(ctx, r, images->rows, &found);
    put_side(r, line, epoch, "image_to_text", &found.image_to_text);
    put_side(r, line, epoch, "text_to_image", &found.text_to_image);
    journal_line(ctx, r->log, "epoch %lld: image to text R@1 %.3f, R@5 %.3f, R@10 %.3f; text to image %.3f, %.3f, %.3f",
                 (long long)epoch, found.image_to_text.recall1, found.image_to_text.recall5,
                 found.image_to_text.recall10, found.text_to_image.recall1, found.text_to_image.recall5,
                 found.text_to_image.recall10);
    return CLOOB_OK;
}

/* The paper's measure, relative to the epoch before the first restart; not computed earlier. */
static void put_change(cloob_ctx *ctx, run *r, json_out *line, int64_t epoch, const char *metric, double now)
{
    char name[96];
    double first;
    if (!first_cycle_end(ctx, r, metric, &first) || !(first > 0)) return;
    snprintf(name, sizeof name, "%s_change", metric);
    journal_put(r->log, line, epoch, name, now / first - 1);
}

static cloob_status put_analysis(cloob_ctx *ctx, run *r, json_out *line, int64_t epoch, const cloob_matrix *images,
                                 const cloob_matrix *texts)
{
    embedding_analysis a;
    char folder[1200];
    cloob_status status = analyze_matrices(ctx, &a, images, texts, 0.99);
    if (status == CLOOB_OK) {
        journal_put(r->log, line, epoch, "image_ajne", a.x.ajne);
        journal_put(r->log, line, epoch, "text_ajne", a.y.ajne);
        journal_put(r->log, line, epoch, "image_effective_eigenvalues", (double)a.x.effective);
        journal_put(r->log, line, epoch, "text_effective_eigenvalues", (double)a.y.effective);
        put_change(ctx, r, line, epoch, "image_effective_eigenvalues", (double)a.x.effective);
        put_change(ctx, r, line, epoch, "text_effective_eigenvalues", (double)a.y.effective);
        snprintf(folder, sizeof folder, "%s/analysis/epoch_%lld", journal_dir(r->log), (long long)epoch);
        status = file_make_dirs(ctx, folder);
        if (status == CLOOB_OK) status = analysis_write(ctx, &a, NULL, folder);
    }
    analysis_release(&a);
    return status;
}

/* The epoch is the last one before a restart of the learning rate, or the last of a run with restarts. */
static bool ends_cycle(const run *r)
{
    const schedule *s = &r->plan.sched;
    if (s->kind != SCHEDULE_COSINE_RESTARTS || r->o->skip_scheduler) return false;
    int64_t next = min64(r->at.updates + r->plan.steps_per_epoch, r->plan.total_steps - 1);
    return r->at.updates >= r->plan.total_steps || schedule_cycle(s, next) > schedule_cycle(s, r->at.updates - 1);
}

/* Writes the embeddings in the format of cloob embed. */
static cloob_status save_embeddings(cloob_ctx *ctx, const run *r, const embedded *p, int64_t epoch)
{
    char path[1200];
    st_entry entry[] = { { "image", TENSOR(CLOOB_F32, p->image, p->rows, p->image_width) },
                         { "text", TENSOR(CLOOB_F32, p->text, p->rows, p->text_width) } };
    snprintf(path, sizeof path, "%s/embeddings", journal_dir(r->log));
    CLOOB_TRY(file_make_dirs(ctx, path));
    snprintf(path, sizeof path, "%s/embeddings/epoch_%lld.safetensors", journal_dir(r->log), (long long)epoch);
    return st_write(ctx, path, entry, 2, NULL, 0);
}

/* Appends the metrics of the pairs to the line of results. */
static cloob_status measure(cloob_ctx *ctx, run *r, const embedded *p, int64_t epoch, json_out *line)
{
    cloob_matrix images = { p->image, CLOOB_F32, p->rows, p->image_width, "validation images" },
                 texts = { p->text, CLOOB_F32, p->rows, p->text_width, "validation texts" };
    double loss, clip;
    CLOOB_TRY(r->o->loss ? own_loss_of(ctx, r, p, &loss) : loss_of(ctx, r, p, r->so.method, &loss));
    CLOOB_TRY(loss_of(ctx, r, p, CLOOB_METHOD_CLIP, &clip));
    CLOOB_TRY(put_retrieval(ctx, r, line, epoch, &images, &texts));
    if (r->o->save_embeddings) CLOOB_TRY(save_embeddings(ctx, r, p, epoch));
    if (r->o->analyze) CLOOB_TRY(put_analysis(ctx, r, line, epoch, &images, &texts));
    journal_put(r->log, line, epoch, "val_loss", loss);
    journal_put(r->log, line, epoch, "clip_val_loss",
                clip * r->o->init_inv_tau / 2); /* InfoNCE as open_clip prints it */
    journal_line(ctx, r->log, "epoch %lld: validation loss %.5f over %lld pairs", (long long)epoch, loss,
                 (long long)p->rows);
    return CLOOB_OK;
}

static cloob_status validate_pairs(cloob_ctx *ctx, run *r, encoder *e, int64_t epoch, json_out *line)
{
    embedded p;
    CLOOB_TRY(embed_pairs(ctx, r, e, &p));
    cloob_status status = p.rows > 1 ? measure(ctx, r, &p, epoch, line) : CLOOB_OK;
    json_put_int(line, "num_samples", p.rows);
    embedded_release(&p);
    return status;
}

/* ---- zero-shot ----------------------------------------------------------------------------------- */

typedef struct source {
    const char *data, *key, *set; /* set: its name in the prompts; NULL: as the options say */
} source;

/* ImageNet's prompts are found by name; other folders use `zeroshot_set`, or the only set in the file. */
static cloob_status choose_prompts(cloob_ctx *ctx, const run *r, const source *s, const dataset *d, prompts *p,
                                   arena *a, prompt_set *out)
{
    const char *name = s->set ? s->set : r->o->zeroshot_set;
    const prompt_set *found = NULL;
    if (!r->o->zeroshot_prompts) return class_names_as_prompts(ctx, d, a, out);
    CLOOB_TRY(prompts_open(ctx, r->o->zeroshot_prompts, p));
    if (name) CLOOB_TRY(prompts_find(ctx, p, name, &found));
    else if (p->count == 1) found = &p->set[0];
    else
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: contains %lld sets; select one with `zeroshot_set`",
                        r->o->zeroshot_prompts, (long long)p->count);
    *out = *found;
    return CLOOB_OK;
}

static void put(run *r, json_out *line, int64_t epoch, const char *key, const char *which, double number)
{
    char name[80];
    snprintf(name, sizeof name, "%s-%s", key, which);
    journal_put(r->log, line, epoch, name, number);
}

/* The accuracy on one source, in the line of results; e NULL: only checks the data and its prompts. */
static cloob_status one_source(cloob_ctx *ctx, run *r, encoder *e, const source *s, int64_t epoch, json_out *line)
{
    zeroshot_run_options o = { .workers = (int)r->o->workers };
    dataset_options images = dataset_options_of_images(&r->o->data);
    zeroshot z;
    prompts p = { 0 };
    arena a = { 0 };
    prompt_set set;
    dataset *d;
    int64_t bad;
    CLOOB_TRY(dataset_open(ctx, s->data, &images, &d));
    cloob_status status = choose_prompts(ctx, r, s, d, &p, &a, &set);
    if (status == CLOOB_OK && dataset_class_count(d) < 2)
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: zero-shot needs folders of two classes or more", s->data);
    if (status == CLOOB_OK && e && (status = zeroshot_run(ctx, e, r->tok, d, &set, &o, &z, &bad)) == CLOOB_OK) {
        accuracy_result t = accuracy_finish(&z.count);
        zeroshot_release(&z);
        put(r, line, epoch, s->key, "top1", t.top1);
        put(r, line, epoch, s->key, "top5", t.top5);
        char skipped[64] = "";
        if (bad) snprintf(skipped, sizeof skipped, "; skipped %lld that cannot be read", (long long)bad);
        journal_line(ctx, r->log, "epoch %lld: %s top1 %.4f, top5 %.4f over %lld images%s", (long long)epoch, s->key,
                     t.top1, t.top5, (long long)t.n, skipped);
    }
    prompts_release(&p);
    arena_release(&a);
    dataset_close(d);
    return status;
}

static bool has_zeroshot(const run *r) { return r->o->imagenet_val || r->o->imagenet_v2 || r->o->zeroshot_data; }

static cloob_status each_source(cloob_ctx *ctx, run *r, encoder *e, int64_t epoch, json_out *line)
{
    const source s[] = { { r->o->imagenet_val, "imagenet-zeroshot-val", "imagenet" },
                         { r->o->imagenet_v2, "imagenetv2-zeroshot-val", "imagenet" },
                         { r->o->zeroshot_data, "zeroshot-val", NULL } };
    for (int i = 0; i < 3; i++)
        if (s[i].data) CLOOB_TRY(one_source(ctx, r, e, &s[i], epoch, line));
    return CLOOB_OK;
}

cloob_status run_check_zeroshot(cloob_ctx *ctx, run *r) { return each_source(ctx, r, NULL, 0, NULL); }

/* ---- the evaluation of an epoch ------------------------------------------------------------------ */

int64_t run_eval_batch(const run *r)
{
    if (!r->val && !has_zeroshot(r)) return 0;
    int64_t limit = r->dev->backend == BACKEND_CUDA ? 256 : 64; /* larger batches are not faster */
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
    cloob_status status = with_zeroshot ? each_source(ctx, r, e, epoch, &line) : CLOOB_OK;
    if (status == CLOOB_OK && with_pairs) status = validate_pairs(ctx, r, e, epoch, &line);
    if (ends_cycle(r)) json_put_bool(&line, "cycle_end", true);
    json_put_int(&line, "epoch", epoch); /* last, where journal_has_result expects it */
    json_end(&line);
    if (status == CLOOB_OK)
        status = line.failed ? ctx_no_memory(ctx, line.len, "results") : journal_result(ctx, r->log, line.data);
    encoder_destroy(e);
    if (status == CLOOB_OK) {
        json_out event = run_event_begin(r, "evaluation", epoch);
        json_put_raw(&event, "metrics", line.data, line.len);
        run_event_end(r, &event);
        sbuf_add(&r->metrics, line.data, line.len);
    }
    free(line.data);
    return status;
}

/* Every `frequency` epochs, and at the end. */
static bool is_due(const run *r, int64_t frequency, int64_t epoch)
{
    return r->at.updates >= r->plan.stop_at || (frequency > 0 && epoch % frequency == 0);
}

pending_eval run_due_eval(const run *r, int64_t epoch)
{
    pending_eval d = { .epoch = epoch };
    d.validation = r->val && is_due(r, r->o->val_frequency, epoch);
    d.zeroshot = has_zeroshot(r) && r->o->zeroshot_frequency > 0 && is_due(r, r->o->zeroshot_frequency, epoch);
    if (!d.validation && !d.zeroshot) return (pending_eval){ 0 };
    d.results_bytes = journal_result_bytes(r->log);
    return d;
}

cloob_status run_evaluate(cloob_ctx *ctx, run *r)
{
    pending_eval d = r->at.pending;
    if (!d.epoch) return CLOOB_OK;
    cloob_status status = comm_rank(r->c) == 0 ? validate(ctx, r, d.epoch, d.validation, d.zeroshot) : CLOOB_OK;
    CLOOB_TRY(comm_agree(ctx, r->c, status));
    r->at.pending = (pending_eval){ 0 };
    return CLOOB_OK;
}

cloob_status run_finish_pending_eval(cloob_ctx *ctx, run *r)
{
    int64_t finished = 0;
    cloob_status status = CLOOB_OK;
    pending_eval *d = &r->at.pending;
    if (!d->epoch) return CLOOB_OK;
    /* The results of another run's checkpoint belong in that run's folder: nothing is pending here. */
    if (comm_rank(r->c) == 0) {
        bool there = true;
        if (resume_is_inside(journal_checkpoints(r->log), r->start.from))
            status = journal_has_result(ctx, r->log, d->epoch, d->results_bytes, &there);
        finished = there;
    }
    CLOOB_TRY(comm_agree(ctx, r->c, status));
    if (comm_size(r->c) > 1) CLOOB_TRY(comm_host_sum(ctx, r->c, &finished, 1));
    d->validation = d->validation && r->val;
    d->zeroshot = d->zeroshot && has_zeroshot(r);
    if (finished || (!d->validation && !d->zeroshot)) {
        *d = (pending_eval){ 0 };
        return CLOOB_OK;
    }
    journal_line(ctx, r->log, "epoch %lld: evaluated now, because the run ended before it could be",
                 (long long)d->epoch);
    return run_evaluate(ctx, r);
}
