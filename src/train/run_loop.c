/* The training loop: batches, steps, lines in the log, checkpoints, evaluation. */
#include "train/run_loop.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/arith.h"
#include "core/file.h"
#include "core/limits.h"
#include "train/settings.h"
#include "core/needs.h"

/* ---- checkpoints --------------------------------------------------------------------------------- */

cloob_status run_link(cloob_ctx *ctx, const char *path, const char *name)
{
    char temporary[1200];
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    unlink(temporary);
    bool linked = link(path, temporary) == 0 || symlink(strrchr(path, '/') + 1, temporary) == 0;
    if (!linked || rename(temporary, name) != 0) {
        cloob_status status =
            ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot make %s a link to it: %s", path, name, strerror(errno));
        unlink(temporary);
        return status;
    }
    unlink(temporary); /* rename does nothing when both are the same file */
    return CLOOB_OK;
}

checkpoint_meta run_meta(const run *r)
{
    step_state st = step_get_state(r->s);
    return (checkpoint_meta){ .tokenizer = r->tok_text,
                              .method = r->o->method,
                              .name = r->o->name,
                              .inv_tau = r->so.learn_inv_tau ? exp(st.scalars.inv_tau.value) : r->o->init_inv_tau,
                              .learns_inv_tau = r->so.learn_inv_tau,
                              .beta =
                                  r->o->learnable_scale_hopfield ? exp(st.scalars.beta.value) : r->o->scale_hopfield };
}

cloob_status run_save(cloob_ctx *ctx, run *r, const char *name)
{
    char path[1024], latest[1100];
    cloob_status status = CLOOB_OK;
    checkpoint_meta meta = run_meta(r);
    snprintf(path, sizeof path, "%s/%s.safetensors", journal_checkpoints(r->log), name);
    snprintf(latest, sizeof latest, "%s/latest.safetensors", journal_checkpoints(r->log));
    if (comm_rank(r->c) == 0) {
        r->at.results_bytes = journal_result_bytes(r->log);
        status = checkpoint_write(ctx, path, r->s, &r->at, &meta);
        if (status == CLOOB_OK) status = run_link(ctx, path, latest);
    }
    CLOOB_TRY(comm_agree(ctx, r->c, status));
    if (r->o->delete_previous_checkpoint && r->saved.path[0] && strcmp(r->saved.path, path) != 0 &&
        comm_rank(r->c) == 0)
        unlink(r->saved.path);
    snprintf(r->saved.path, sizeof r->saved.path, "%s", path);
    snprintf(r->sum.checkpoint, sizeof r->sum.checkpoint, "%s", path);
    r->saved.when = clock_seconds();
    r->saved.updates = r->at.updates;
    journal_line(ctx, r->log, "saved %s", path);
    return CLOOB_OK;
}

/* Times between two lines of the log. Saving is not counted: its duration is added to `since`. */
typedef struct meter {
    double since, compute, wait; /* begin; seconds inside steps, and waiting for batches */
    int64_t steps;
} meter;

/* ---- the log ------------------------------------------------------------------------------------- */

static void show_progress(cloob_ctx *ctx, const run *r, const step_result *s)
{
    char note[64];
    if (comm_rank(r->c) != 0) return;
    snprintf(note, sizeof note, "epoch %lld  loss %.4f", (long long)r->at.epoch + 1, s->loss);
    ctx_progress_show(ctx, &(cloob_progress){ .task = "train",
                                              .unit = "steps",
                                              .done = r->at.updates,
                                              .total = r->plan.stop_at,
                                              .per_unit = r->o->batch_size * r->o->accum_freq * comm_size(r->c),
                                              .items = "pairs",
                                              .note = note });
}

/* open_clip's ClipLoss is the mean of the two cross entropies, not divided by inv_tau; its SigLipLoss equals
 * cloob's. */
static double report_factor(const run *r, double inv_tau)
{
    bool scaled = strcmp(r->o->report_loss, "open_clip") == 0 && r->so.method == CLOOB_METHOD_CLIP && !r->o->loss;
    return scaled ? inv_tau / 2 : 1;
}

json_out run_event_begin(const run *r, const char *name, int64_t epoch)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_members(&w, J_TEXT("event", name), J_INT("step", r->at.updates), J_INT("epoch", epoch));
    return w;
}

void run_event_end(const run *r, json_out *event)
{
    json_end(event);
    if (!event->failed && r->o->on_log && comm_rank(r->c) == 0) r->o->on_log(r->o->log_user, event->data);
    free(event->data);
}

static void log_step(cloob_ctx *ctx, run *r, const step_result *s, double lr, const meter *m, double step_seconds)
{
    int64_t steps = m->steps;
    double wait_seconds = m->wait;
    double other = step_seconds > 0 ? 1 - (m->compute + wait_seconds) / step_seconds : 0; /* such as saving */
    double pairs = (double)(r->o->batch_size * r->o->accum_freq * comm_size(r->c) * steps),
           rate = step_seconds > 0 ? pairs / step_seconds : 0;
    int64_t n = r->at.updates;
    double loss = s->loss * report_factor(r, s->inv_tau);
    journal_line(ctx, r->log,
                 "epoch %lld [%lld/%lld] loss %.5f (image %.4f, text %.4f), lr %.3e, norm %.3g, %.1f pairs/s, data "
                 "wait %.1f %%, other %.1f %%",
                 (long long)r->at.epoch + 1, (long long)r->at.step_in_epoch, (long long)r->plan.steps_per_epoch, loss,
                 s->image_term, s->text_term, lr, s->grad_norm, rate,
                 step_seconds > 0 ? 100 * wait_seconds / step_seconds : 0, 100 * other);
    journal_row row = { .step = n,
                        .epoch = r->at.epoch + 1,
                        .number = { [ROW_LOSS] = loss,
                                    [ROW_IMAGE] = s->image_term,
                                    [ROW_TEXT] = s->text_term,
                                    [ROW_LR] = lr,
                                    [ROW_NORM] = s->grad_norm,
                                    [ROW_RATE] = rate,
                                    [ROW_WAIT] = step_seconds > 0 ? wait_seconds / step_seconds : 0,
                                    [ROW_INV_TAU] = s->inv_tau } };
    journal_metrics(r->log, &row);
    json_out event = run_event_begin(r, "step", row.epoch);
    for (int i = 0; i < JOURNAL_NUMBERS; i++) json_put_number(&event, journal_number_names[i], row.number[i]);
    run_event_end(r, &event);
    journal_scalar(r->log, "train/loss", n, loss);
    journal_scalar(r->log, "train/lr", n, lr);
    journal_scalar(r->log, "train/data_time", n, wait_seconds / (double)steps);
    journal_scalar(r->log, "train/batch_time", n, step_seconds / (double)steps);
    journal_scalar(r->log, "train/samples_per_second", n, rate);
    journal_scalar(r->log, "train/inv_tau", n, s->inv_tau);
    journal_scalar(r->log, "train/grad_norm", n, s->grad_norm);
    r->sum.pairs_per_s = rate;
    r->time.loop += step_seconds;
    r->time.other += other * step_seconds;
    r->time.wait += wait_seconds;
    r->sum.wait_share = r->time.loop > 0 ? r->time.wait / r->time.loop : 0;
    r->sum.other_share = r->time.loop > 0 ? r->time.other / r->time.loop : 0;
}

/* ---- one epoch ----------------------------------------------------------------------------------- */

/* Adds the likely cause: the objective only names the unusable row, but in a run earlier steps are the cause. */
static cloob_status report_divergence(cloob_ctx *ctx, const run *r, double lr, cloob_status status)
{
    if (status != CLOOB_ERR_NUMERIC) return status;
    return ctx_fail(
        ctx, status,
        "training diverged at step %lld (learning rate %g, loss before %g): %s; lower `lr` or lengthen `warmup`",
        (long long)r->at.updates + 1, lr, r->sum.loss, cloob_error(ctx));
}

static void report_step(const run *r, const step_result *s, double lr)
{
    if (!r->o->on_step) return;
    const cloob_train_step values = { .size = sizeof values,
                                      .step = r->at.updates,
                                      .steps = r->plan.total_steps,
                                      .epoch = r->at.epoch + 1,
                                      .loss = s->loss * report_factor(r, s->inv_tau),
                                      .image_term = s->image_term,
                                      .text_term = s->text_term,
                                      .grad_norm = s->grad_norm,
                                      .lr = lr,
                                      .inv_tau = s->inv_tau,
                                      .skipped = s->skipped };
    r->o->on_step(r->o->step_user, &values);
}

static cloob_status one_step(cloob_ctx *ctx, run *r, meter *m)
{
    step_result s;
    double scale = r->o->skip_scheduler ? 1.0 : schedule_scale(&r->plan.sched, r->at.updates);
    double floor = r->at.updates < r->plan.sched.warmup || r->o->lr_min > r->plan.lr ? 0 : r->o->lr_min;
    double lr = floor + (r->plan.lr - floor) * scale;
    bool logged =
        (r->at.updates + 1) % r->o->log_every_n_steps == 0 || r->at.step_in_epoch + 1 == r->plan.steps_per_epoch;
    double begun = clock_seconds();
    if (logged && r->layers) CLOOB_TRY(layer_norms_before(ctx, r->layers));
    CLOOB_TRY(report_divergence(ctx, r, lr, step_run(ctx, r->s, NULL, NULL, lr, &s)));
    m->compute += clock_seconds() - begun;
    if (logged && r->layers)
        CLOOB_TRY(layer_norms_after(ctx, r->layers, r->at.updates + 1, step_train_factor(&r->so, s.inv_tau)));
    r->at.updates++;
    r->at.step_in_epoch++;
    r->at.skipped += s.skipped;
    m->steps++;
    if (s.skipped)
        journal_line(ctx, r->log, "step %lld skipped: the loss or its gradient is not finite",
                     (long long)r->at.updates);
    r->sum.loss = s.loss;
    report_step(r, &s, lr);
    CLOOB_TRY(run_check_collapse(ctx, r, &s));
    double now = clock_seconds();
    show_progress(ctx, r, &s);
    if (logged) {
        loader_stats ls = loader_stats_take(r->batches);
        log_step(ctx, r, &s, lr, m, now - m->since);
        loader_log_bottleneck(ctx, r->batches, &ls);
        *m = (meter){ .since = clock_seconds() };
    }
    return CLOOB_OK;
}

static const char *run_name(const run *r) { return file_base(journal_dir(r->log)); }

static cloob_status stop_now(cloob_ctx *ctx, run *r)
{
    CLOOB_TRY(run_save(ctx, r, "interrupted"));
    return ctx_fail(ctx, CLOOB_ERR_STOPPED, "stopped at step %lld, saved; continue with `resume` %s",
                    (long long)r->at.updates, run_name(r));
}

/* All ranks stop if one of them is requested to. They save at the same time, by the clock of rank 0. */
static cloob_status stop_or_save(cloob_ctx *ctx, run *r, bool *stop, bool *save)
{
    bool steps = false;
    double every = settings_save_interval(r->o->save_every, &steps); /* "500steps", "30m", "2h", "90s" */
    double since = steps ? (double)(r->at.updates - r->saved.updates) : clock_seconds() - r->saved.when;
    int64_t wish[2] = { r->o->should_stop && r->o->should_stop(r->o->stop_user),
                        comm_rank(r->c) == 0 && every > 0 && since >= every };
    if (comm_size(r->c) > 1) CLOOB_TRY(comm_host_sum(ctx, r->c, wish, 2));
    *stop = wish[0] != 0;
    *save = wish[1] != 0;
    return CLOOB_OK;
}

/* Starts the upload of the next batch; *more is false at the end of the epoch. The previous upload must be complete,
 * because the loader reuses its memory; outside the start of an epoch it already is. */
static cloob_status upload_next_batch(cloob_ctx *ctx, run *r, meter *m, bool *more)
{
    batch b;
    double before = clock_seconds();
    CLOOB_TRY(step_wait_upload(ctx, r->s));
    CLOOB_TRY(loader_next(ctx, r->batches, &b));
    m->wait += clock_seconds() - before;
    *more = !b.end;
    return b.end ? CLOOB_OK : step_stage(ctx, r->s, b.images, b.tokens);
}

static cloob_status after_step(cloob_ctx *ctx, run *r, meter *m)
{
    bool stop, save;
    CLOOB_TRY(stop_or_save(ctx, r, &stop, &save));
    if (stop) return stop_now(ctx, r);
    double before = clock_seconds();
    if (save) CLOOB_TRY(run_save(ctx, r, "recent"));
    m->since += clock_seconds() - before;
    return CLOOB_OK;
}

/* Uploads batch k + 1 while step k computes, if the device can. */
static cloob_status one_epoch(cloob_ctx *ctx, run *r)
{
    meter m = { .since = clock_seconds() };
    bool ahead = step_looks_ahead(r->s), more, next = true;
    CLOOB_TRY(upload_next_batch(ctx, r, &m, &more));
    for (; more; more = next) {
        bool last = r->at.updates + 1 >= r->plan.stop_at;
        if (ahead && !last) CLOOB_TRY(upload_next_batch(ctx, r, &m, &next));
        CLOOB_TRY(one_step(ctx, r, &m));
        if (last) return CLOOB_OK;
        CLOOB_TRY(after_step(ctx, r, &m));
        if (!ahead) CLOOB_TRY(upload_next_batch(ctx, r, &m, &next));
    }
    return CLOOB_OK;
}

static void report_epoch(const run *r, int64_t epoch)
{
    if (!r->o->on_epoch) return;
    const cloob_train_epoch values = { .size = sizeof values,
                                       .epoch = epoch,
                                       .epochs = r->o->epochs,
                                       .step = r->at.updates,
                                       .loss = r->sum.loss,
                                       .checkpoint = r->sum.checkpoint,
                                       .metrics = r->metrics.len ? r->metrics.data : NULL };
    r->o->on_epoch(r->o->epoch_user, &values);
}

static cloob_status end_of_epoch(cloob_ctx *ctx, run *r)
{
    char name[64];
    bool last = r->at.updates >= r->plan.stop_at;
    int64_t done = r->at.epoch + 1;
    if (r->at.step_in_epoch >= r->plan.steps_per_epoch) r->at.epoch++, r->at.step_in_epoch = 0;
    r->at.pending = run_due_eval(r, done);
    snprintf(name, sizeof name, "epoch_%lld", (long long)done);
    if (last || (r->o->save_frequency > 0 && done % r->o->save_frequency == 0)) CLOOB_TRY(run_save(ctx, r, name));
    else if (r->o->save_most_recent) CLOOB_TRY(run_save(ctx, r, "epoch_latest"));
    r->sum.epochs = done;
    sbuf_release(&r->metrics);
    r->metrics_due = r->at.pending.epoch != 0;
    CLOOB_TRY(run_evaluate(ctx, r));
    CLOOB_TRY(run_keep_best(ctx, r, done));
    CLOOB_TRY(run_check_early_stop(ctx, r));
    report_epoch(r, done);
    return CLOOB_OK;
}

bool run_ends_unfinished(const run *r)
{
    return r->at.epoch < r->o->epochs && r->at.step_in_epoch >= r->plan.steps_per_epoch;
}

cloob_status run_loop(cloob_ctx *ctx, run *r)
{
    CLOOB_TRY(run_finish_pending_eval(ctx, r));
    if (r->o->resume) CLOOB_TRY(run_check_early_stop(ctx, r));
    while (!r->stopped_early && (r->at.updates < r->plan.stop_at || run_ends_unfinished(r))) {
        CLOOB_TRY(run_enter_stage(ctx, r));
        CLOOB_TRY(one_epoch(ctx, r));
        CLOOB_TRY(end_of_epoch(ctx, r));
    }
    return CLOOB_OK;
}

/* Aborts the other ranks after a failure on this rank alone: they would wait in an exchange. What the ranks agreed on
 * (a stop, a peer's failure) ends them without it. */
static void end_all_ranks(cloob_ctx *ctx, run *r, cloob_status status)
{
    char text[CTX_ERROR_BYTES];
    bool agreed = status == CLOOB_ERR_STOPPED || (status == CLOOB_ERR_PEER && !comm_has_lost(r->c));
    if (status == CLOOB_OK || agreed || comm_size(r->c) == 1) return;
    snprintf(text, sizeof text, "%s", cloob_error(ctx));
    if (r->log) journal_line(ctx, r->log, "ended: %s", text);
    comm_abort(ctx, r->c, text);
}

/* ---- the end -------------------------------------------------------------------------------------- */

/* Counts each sample once: ranks read the same sample in different epochs. A change of the image size starts a new
 * count, so the largest count is kept. */
cloob_status run_count_bad(cloob_ctx *ctx, run *r)
{
    int size = comm_size(r->c);
    int64_t *mine = NULL, *all = NULL, *count = calloc((size_t)size, sizeof *count), total = 0, different = 0;
    cloob_status status = count ? loader_bad_samples(ctx, r->batches, &mine, &count[comm_rank(r->c)])
                                : ctx_no_memory(ctx, (size_t)size * sizeof *count, "a count");
    status = comm_agree(ctx, r->c, status);
    if (status == CLOOB_OK) status = comm_host_sum(ctx, r->c, count, size);
    for (int i = 0; i < size && status == CLOOB_OK; i++) total += count[i];
    if (status == CLOOB_OK) {
        all = malloc((size_t)(total + 1) * sizeof *all);
        status = comm_agree(ctx, r->c, all ? CLOOB_OK : ctx_no_memory(ctx, (size_t)total * sizeof *all, "bad samples"));
    }
    if (status == CLOOB_OK) status = comm_all_gather(ctx, r->c, mine, all, count, CLOOB_I64);
    if (status == CLOOB_OK) {
        qsort(all, (size_t)total, sizeof *all, order_int64);
        for (int64_t i = 0; i < total; i++) different += i == 0 || all[i] != all[i - 1];
        r->sum.bad_samples = max64(r->sum.bad_samples, different);
    }
    free(mine), free(all), free(count);
    return status;
}

/* The last line of the log. */
static void log_end(cloob_ctx *ctx, run *r, bool nothing_done)
{
    long long steps = r->at.updates, total = r->plan.total_steps;
    bool complete = r->at.updates >= r->plan.total_steps;
    const char *more = r->o->schedule_steps == r->plan.total_steps ? "a larger `schedule_steps` continues it"
                                                                   : "a larger `epochs` continues it";
    if (nothing_done && complete)
        journal_line(ctx, r->log, "nothing to do: the run is complete after %lld steps; %s", steps, more);
    else if (nothing_done)
        journal_line(ctx, r->log,
                     "nothing to do: the run is at step %lld of %lld already; a larger `max_steps`, or none, continues "
                     "it",
                     steps, total);
    else if (complete || r->stopped_early)
        journal_line(ctx, r->log, "done: %lld steps in %.0f s, loss %.5f, %lld bad samples skipped", steps,
                     r->sum.seconds, r->sum.loss, (long long)r->sum.bad_samples);
    else
        journal_line(ctx, r->log,
                     "stopped by `max_steps` after %lld of %lld steps, in %.0f s, loss %.5f, %lld bad samples skipped; "
                     "continue with `resume` %s",
                     steps, total, r->sum.seconds, r->sum.loss, (long long)r->sum.bad_samples, run_name(r));
}

static void report_end(const cloob_ctx *ctx, const run *r, cloob_status status)
{
    if (!r->log) return; /* the run did not start */
    json_out w = run_event_begin(r, "end", r->at.epoch);
    json_put_text(&w, "status", status == CLOOB_OK ? "done" : status == CLOOB_ERR_STOPPED ? "stopped" : "failed");
    if (status != CLOOB_OK) json_put_text(&w, "error", cloob_error(ctx));
    json_members(&w, J_OF(&r->sum, checkpoint), J_NUMBER("seconds", r->sum.seconds, 0));
    run_event_end(r, &w);
}

cloob_status cloob_train(cloob_ctx *ctx, const cloob_train_options *o, cloob_train_summary *summary)
{
    API_NEEDS(ctx, o);
    OPTIONS_READ(ctx, cloob_train_options, o);
    OPTIONS_ROOM(ctx, cloob_train_options, o, data);
    run r;
    run_settings *resumed;
    CLOOB_TRY(run_settings_apply(ctx, &o_read, &resumed));
    cloob_status status = run_open(ctx, &r, o);
    bool nothing_left = status == CLOOB_OK && o->resume && r.at.updates >= r.plan.stop_at && !run_ends_unfinished(&r);
    if (status == CLOOB_OK) {
        status = run_loop(ctx, &r);
        if (status == CLOOB_OK) status = run_count_bad(ctx, &r);
        end_all_ranks(ctx, &r, status);
    } else if (comm_has_lost(r.c)) end_all_ranks(ctx, &r, status);
    r.sum.rank = comm_rank(r.c);
    r.sum.ranks = comm_size(r.c);
    r.sum.steps = r.at.updates;
    r.sum.skipped_steps = r.at.skipped;
    snprintf(r.sum.method, sizeof r.sum.method, "%s", r.options.method ? r.options.method : "");
    r.sum.seconds = clock_seconds() - r.time.started;
    if (status == CLOOB_OK) log_end(ctx, &r, nothing_left);
    if (status == CLOOB_OK) run_log_decoder(ctx, &r, true);
    if (status != CLOOB_OK && r.log) { /* the log also records how the run ended */
        journal_note(r.log, "ended: %s", cloob_error(ctx));
    }
    report_end(ctx, &r, status);
    if (summary) *summary = r.sum;
    run_close(ctx, &r);
    run_settings_close(resumed);
    return status;
}
