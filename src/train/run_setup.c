/* Opens a run: ranks, device, data, tokenizer, model, folder, state. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/arith.h"
#include "core/file.h"
#include "core/limits.h"
#include "core/text.h"
#include "model/interchange.h"
#include "model/weights.h"
#include "infer/embed_data.h"
#include "infer/model_file.h"
#include "tensor/device.h"
#include "tensor/precision.h"
#include "train/checkpoint.h"
#include "train/run_loop.h"
#include "train/settings.h"

/* ---- data and tokenizer -------------------------------------------------------------------------- */

static cloob_status open_data(cloob_ctx *ctx, run *r)
{
    const cloob_train_options *o = r->o;
    cloob_data_options d = o->data;
    d.num_samples = o->train_num_samples;
    CLOOB_TRY(dataset_open(ctx, o->train_data, &d, &r->train));
    if (!dataset_has_captions(r->train))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: has no captions to train on", o->train_data);
    d = o->data;
    d.num_samples = o->val_num_samples;
    d.resampled = false, d.upsampling = NULL; /* of training data alone */
    if (o->val_data) CLOOB_TRY(dataset_open(ctx, o->val_data, &d, &r->val));
    return comm_rank(r->c) == 0 ? run_check_zeroshot(ctx, r) : CLOOB_OK;
}

enum { TOKENIZER_CAPTIONS = 2000000 }; /* more captions hardly change the merges */

static cloob_status train_tokenizer(cloob_ctx *ctx, run *r)
{
    int64_t n = dataset_count(r->train), count = 0;
    if (n > TOKENIZER_CAPTIONS) n = TOKENIZER_CAPTIONS;
    char **text = calloc((size_t)n, sizeof *text);
    if (!text) return ctx_no_memory(ctx, (size_t)n * sizeof *text, "captions");
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < n && status != CLOOB_ERR_MEMORY; i++) { /* skips unreadable samples */
        status = dataset_caption(ctx, r->train, i, 0, &text[count]);
        count += status == CLOOB_OK;
    }
    if (status != CLOOB_ERR_MEMORY)
        status = tokenizer_train_texts(ctx, (const char *const *)text, count, (int32_t)r->o->vocab_size, &r->tok);
    for (int64_t i = 0; i < count; i++) free(text[i]);
    free(text);
    return status;
}

/* A resumed or pretrained run uses the tokenizer of its weights. */
static cloob_status open_tokenizer(cloob_ctx *ctx, run *r)
{
    sbuf merges = { 0 };
    const char *given = r->o->resume ? r->start.from : r->o->pretrained;
    if (r->start.has_given) CLOOB_TRY(model_tokenizer(ctx, given, r->o->vocab, &r->start.given, &r->tok));
    else CLOOB_TRY(r->o->vocab ? cloob_tokenizer_open(ctx, r->o->vocab, &r->tok) : train_tokenizer(ctx, r));
    if (!r->tok) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s holds no tokenizer; give it with `vocab` FILE", given);
    tokenizer_save(r->tok, &merges);
    r->tok_text = sbuf_detach(&merges);
    return r->tok_text ? CLOOB_OK : ctx_no_memory(ctx, merges.len, "the tokenizer");
}

/* ---- model --------------------------------------------------------------------------------------- */

static cloob_status find_resume(cloob_ctx *ctx, const cloob_train_options *o, char path[RESUME_PATH])
{
    char folder[RESUME_PATH];
    if (strcmp(o->resume, "latest") != 0) {
        snprintf(path, RESUME_PATH, "%s", o->resume);
        return CLOOB_OK;
    }
    snprintf(folder, sizeof folder, "%s%s%s/checkpoints", o->logs, text_ends_with(o->logs, "/") ? "" : "/", o->name);
    if (file_is_dir(folder)) return resume_find(ctx, folder, path);
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: no such run to resume; check `logs` and `name`", folder);
}

/* Applies the options that change any model, given weights included. Resize modes were checked with the options. */
static void override_model(const cloob_train_options *o, model_config *c)
{
    if (o->force_quick_gelu) model_config_set_act(c, ACT_QUICKGELU);
    if (o->force_patch_dropout >= 0) c->patch_dropout = o->force_patch_dropout;
    if (o->image_resize_mode) resize_mode_from_name(o->image_resize_mode, &c->view.mode);
    if (o->image_std[0] <= 0) return;
    memcpy(c->image_mean, o->image_mean, sizeof c->image_mean);
    memcpy(c->image_std, o->image_std, sizeof c->image_std);
}

/* The model that the options describe. */
static cloob_status requested_model(cloob_ctx *ctx, const cloob_train_options *o, model_config *c)
{
    CLOOB_TRY(model_config_load(ctx, o->model, c));
    if (o->force_image_size > 0) c->image_size = o->force_image_size;
    if (o->image_size_schedule) c->image_size = settings_image_size(o, 0);
    override_model(o, c);
    return CLOOB_OK;
}

/* A resumed run must have the model of its checkpoint. */
static cloob_status check_resumed_model(cloob_ctx *ctx, const run *r, const model_config *stored)
{
    model_config asked;
    char *difference;
    CLOOB_TRY(requested_model(ctx, r->o, &asked));
    asked.vocab = stored->vocab;
    asked.patch_dropout = stored->patch_dropout;                          /* may change, e.g. none in the last epochs */
    if (r->o->image_size_schedule) asked.image_size = stored->image_size; /* depends on the epoch */
    CLOOB_TRY(checkpoint_compare(ctx, stored, &asked, &difference));
    if (!difference) return CLOOB_OK;
    free(difference);
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "`resume`: the checkpoint holds %s (%lld px), the flags ask for %s (%lld px); give the run's own "
                    "`model` and settings, or `pretrained` to start a new run from its weights",
                    stored->name[0] ? stored->name : "another model", (long long)stored->image_size, r->o->model,
                    (long long)asked.image_size);
}

static cloob_status configure_model(cloob_ctx *ctx, run *r, const model_config *stored)
{
    model_config *c = &r->so.model;
    if (!stored) CLOOB_TRY(requested_model(ctx, r->o, c));
    if (stored) *c = *stored;
    if (!stored && model_config_is_folded(c))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "`model`: the image tower of %s is folded for inference and is not trained from random "
                        "weights; give `pretrained` to fine-tune one",
                        c->name);
    override_model(r->o, c);
    if (c->patch_dropout > 0 && c->family != MODEL_VIT)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`force_patch_dropout`: a %s has no patches to leave out",
                        model_family_name(c->family));
    if (!stored) c->vocab = cloob_tokenizer_vocab_size(r->tok);
    return model_config_check(ctx, c);
}

static void set_optimizer(run *r)
{
    const cloob_train_options *o = r->o;
    bool vit = r->so.model.family == MODEL_VIT;
    r->plan.lr = o->lr >= 0 ? o->lr : 5e-4;
    r->so.beta1 = o->beta1 >= 0 ? o->beta1 : 0.9;
    r->so.beta2 = o->beta2 >= 0 ? o->beta2 : vit ? 0.98 : 0.999;
    r->so.eps = o->eps >= 0 ? o->eps : vit ? 1e-6 : 1e-8;
    r->so.wd = o->wd;
    r->so.clip = o->grad_clip_norm;
    r->so.ema = o->ema;
}

/* Checks the options against a caller's own loss. */
static cloob_status check_own_loss(cloob_ctx *ctx, const run *r)
{
    const cloob_train_options *o = r->o;
    if (r->start.stored && run_settings_has_own_loss(r->start.stored) && !o->loss)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "`resume`: the run was trained with a loss of the calling program; give its `loss` again");
    const char *what = !o->loss                           ? NULL
                       : strcmp(o->method, "siglip") == 0 ? "`method` siglip, whose bias is learned"
                       : strcmp(o->memory, "batch") != 0  ? "a `memory` of the Hopfield networks"
                       : o->learnable_scale_hopfield      ? "`learnable_scale_hopfield`"
                                                          : NULL;
    return what ? ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`loss` (a custom loss) cannot be combined with %s", what)
                : CLOOB_OK;
}

static cloob_status set_step_options(cloob_ctx *ctx, run *r)
{
    const cloob_train_options *o = r->o;
    precision p;
    CLOOB_TRY(check_own_loss(ctx, r));
    r->so.own = (step_loss){ o->loss, o->loss_user };
    CLOOB_TRY(precision_find(ctx, o->precision, true, &p));
    r->so.compute = p.compute;
    r->so.batch = o->batch_size;
    r->so.accum = o->accum_freq;
    loss_method_from_name(o->method, &r->so.method);
    r->so.inv_tau = o->init_inv_tau;
    r->so.beta = o->scale_hopfield;
    r->so.memory = o->memory;
    r->so.hopfield_warmup = o->hopfield_warmup;
    bool siglip = r->so.method == CLOOB_METHOD_SIGLIP; /* learns both, as in the paper */
    r->so.bias = o->init_logit_bias;
    r->so.learn_bias = siglip;
    r->so.model.has_logit_bias |= siglip;
    r->so.learn_inv_tau = o->learnable_inv_tau || siglip;
    r->so.learn_beta = o->learnable_scale_hopfield;
    r->so.part = (params_training){ .lock_image = o->lock_image,
                                    .lock_text = o->lock_text,
                                    .unlocked_image = o->lock_image_unlocked_groups,
                                    .unlocked_text = o->lock_text_unlocked_layers };
    if (o->lora) settings_lora(o->lora, &r->so.part.lora, &r->so.part.lora_scale); /* checked with the options */
    r->so.layer_decay = o->layer_decay;
    r->so.bn_sync = o->use_bn_sync;
    r->so.grad.checkpoint = o->grad_checkpointing;
    r->so.pack_texts = o->pack_texts;
    set_optimizer(r);
    return CLOOB_OK;
}

/* ---- the loader and the schedule ----------------------------------------------------------------- */

double run_bad_share(const run *r) { return r->o->allow_bad_samples ? 0 : 0.05; }

cloob_status run_open_loader(cloob_ctx *ctx, run *r)
{
    const cloob_train_options *o = r->o;
    loader_options lo;
    loader_options_init(&lo);
    lo.batch = o->batch_size * o->accum_freq;
    lo.rank = comm_rank(r->c);
    lo.ranks = comm_size(r->c);
    lo.workers = (int)o->workers;
    lo.seed = (uint64_t)(o->resume ? r->at.seed : o->seed); /* a resumed run keeps its order */
    lo.train = true;
    lo.bad_share = run_bad_share(r);
    lo.context = r->so.model.context;
    loader_feeds(&lo, r->dev);
    transform_options_init(&lo.view, r->so.model.image_size);
    if (r->so.model.position_side) /* NaFlex: crops keep the image's proportions, and become whole patches */
        lo.view.how = r->so.model.view, lo.view.ratio_min = lo.view.ratio_max = 1;
    lo.view.scale_min = o->aug_scale_min;
    lo.view.scale_max = o->aug_scale_max;
    memcpy(lo.view.jitter, o->aug_jitter, sizeof lo.view.jitter);
    lo.view.jitter_prob = o->aug_jitter_prob;
    lo.view.gray_prob = o->aug_gray_prob;
    for (int64_t i = 0; i < o->aug_cfg_count; i++) CLOOB_TRY(transform_options_parse(ctx, &lo.view, o->aug_cfg[i]));
    CLOOB_TRY(transform_options_check(ctx, &lo.view));
    CLOOB_TRY(run_choose_decoder(ctx, r, &lo));
    CLOOB_TRY(loader_create(ctx, r->train, r->tok, &lo, &r->batches));
    r->plan.steps_per_epoch = loader_batches(r->batches);
    schedule_from_name(o->lr_scheduler, &r->plan.sched.kind);
    r->plan.sched.warmup = o->warmup;
    r->plan.sched.cycles = o->restart_cycles;
    r->plan.sched.cycle = saturating_mul(o->restart_epochs, r->plan.steps_per_epoch);
    r->plan.sched.cooldown = saturating_mul(o->epochs_cooldown, r->plan.steps_per_epoch);
    return CLOOB_OK;
}

/* The end of the run, in updates: updates so far plus the steps left in the epochs. Steps per epoch times epochs would
 * be wrong for a run that changed its batch size. */
static void find_end(run *r)
{
    int64_t epochs = r->o->epochs > r->at.epoch ? r->o->epochs - r->at.epoch : 0;
    int64_t left = saturating_mul(r->plan.steps_per_epoch, epochs) - (epochs ? r->at.step_in_epoch : 0);
    r->plan.total_steps = saturating_add(r->at.updates, left > 0 ? left : 0);
    if (r->o->schedule_steps > 0) r->plan.total_steps = min64(r->plan.total_steps, r->o->schedule_steps);
    r->plan.sched.total = r->plan.total_steps;
    r->plan.stop_at = r->o->max_steps > 0 ? min64(r->plan.total_steps, r->o->max_steps) : r->plan.total_steps;
}

/* A run may be resumed with another number of ranks or another batch. The position in the epoch is kept in samples; the
 * rest of the run is counted in new steps. */
static void place_in_epoch(cloob_ctx *ctx, run *r)
{
    int64_t global = r->o->batch_size * r->o->accum_freq * comm_size(r->c), before = r->at.global_batch;
    bool moved = r->o->resume && before != 0 && before != global;
    if (moved) r->at.step_in_epoch = run_position_samples(&r->at) / global;
    if (r->at.step_in_epoch > r->plan.steps_per_epoch) r->at.step_in_epoch = r->plan.steps_per_epoch;
    r->at.global_batch = global;
    find_end(r);
    if (!moved) return;
    ctx_log(ctx, CLOOB_LOG_WARN,
            "the checkpoint was made with %lld pairs a step, this run has %lld: continuing at step %lld of epoch %lld",
            (long long)before, (long long)global, (long long)r->at.step_in_epoch, (long long)r->at.epoch + 1);
}

/* ---- opening ----------------------------------------------------------------------------------- */

static void default_name(const run *r, char name[256])
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%Y_%m_%d-%H_%M_%S", localtime_r(&now, &tm));
    snprintf(name, 256, "%s-model_%s-lr_%g-b_%lld-j_%lld-p_%s", when, r->o->model, r->plan.lr,
             (long long)r->o->batch_size, (long long)r->o->workers, r->o->precision ? r->o->precision : "fp32");
    for (char *c = name; (c = strchr(c, '/'));) *c = '-'; /* from a model's path, as in open_clip */
}

/* settings.json, a line of provenance.jsonl, and both for the caller's on_log. */
static cloob_status write_settings(cloob_ctx *ctx, run *r, const cloob_train_options *o)
{
    json_out settings = { .spaced = true, .lines = 1 }, provenance = { .spaced = true };
    if (comm_rank(r->c) != 0) return CLOOB_OK;
    settings_put_json(&settings, NULL, o);
    provenance_put(ctx, r, &provenance, NULL);
    bool failed = settings.failed || provenance.failed;
    cloob_status status = failed ? ctx_no_memory(ctx, 8192, "the settings") : CLOOB_OK;
    if (status == CLOOB_OK) {
        json_out event = run_event_begin(r, "start", r->at.epoch);
        json_put_text(&event, "run", r->sum.run_dir);
        settings_put_json(&event, "settings", o);
        json_put_raw(&event, "provenance", provenance.data, provenance.len);
        run_event_end(r, &event);
        status = journal_provenance(ctx, r->log, provenance.data);
    }
    char *text = json_out_line(&settings);
    if (status == CLOOB_OK) status = text ? journal_settings(ctx, r->log, text) : ctx_no_memory(ctx, 1, "settings");
    free(text), free(provenance.data);
    return status;
}

/* Writes the options, with the defaults of the model's family, and facts about the machine. */
static cloob_status write_params(cloob_ctx *ctx, run *r)
{
    cloob_train_options o = *r->o;
    sbuf s = { 0 };
    o.lr = r->plan.lr;
    o.beta1 = r->so.beta1, o.beta2 = r->so.beta2, o.eps = r->so.eps, o.wd = r->so.wd;
    o.device = r->dev->name;
    o.image_resize_mode = resize_mode_name(r->so.model.view.mode);
    settings_put(&s, &o, SETTINGS_ALL);
    sbuf_printf(&s, "world_size: %d\nversion: %s\nthreads: %d\n", comm_size(r->c), cloob_version(), ctx->threads);
    if (o.loss) sbuf_puts(&s, SETTINGS_OWN_LOSS ": True\n");
    machine_describe(&s, r->dev);
    cloob_status status = s.failed ? ctx_no_memory(ctx, s.len, "params.txt") : journal_params(ctx, r->log, s.data);
    sbuf_release(&s);
    o.device = r->o->device;
    return status == CLOOB_OK ? write_settings(ctx, r, &o) : status;
}

static cloob_status open_journal(cloob_ctx *ctx, run *r)
{
    char name[256];
    default_name(r, name);
    CLOOB_TRY(journal_open(ctx, r->o->logs, r->o->name ? r->o->name : name, r->o->resume ? JOURNAL_RESUME : JOURNAL_NEW,
                           comm_rank(r->c) == 0, strstr(r->o->report_to, "tensorboard") != NULL, &r->log));
    snprintf(r->sum.run_dir, sizeof r->sum.run_dir, "%s", journal_dir(r->log));
    if (comm_rank(r->c) == 0) journal_tee_open(r->log, &r->tee);
    if (comm_rank(r->c) == 0) resume_clean(journal_checkpoints(r->log));
    /* A run that continues a partial epoch, which `max_steps` ended, evaluates the whole epoch. */
    bool partial = r->at.pending.epoch > r->at.epoch;
    if (partial && (r->at.updates < r->plan.stop_at || run_ends_unfinished(r))) r->at.pending = (pending_eval){ 0 };
    if (r->o->resume) resume_real_name(journal_checkpoints(r->log), r->start.from, r->saved.path);
    if (r->o->resume && resume_is_inside(journal_checkpoints(r->log), r->start.from))
        CLOOB_TRY(journal_drop_results(ctx, r->log, max64(r->at.epoch, r->at.pending.epoch), r->at.results_bytes));
    return write_params(ctx, r);
}

/* The weights a run starts from, if any: r->start.given, from r->start.from. */
static cloob_status read_given(cloob_ctx *ctx, run *r)
{
    interchange_report report = { 0 };
    interchange_options io = { 0 };
    if (r->o->resume) {
        CLOOB_TRY(find_resume(ctx, r->o, r->start.from));
        CLOOB_TRY(weights_read_native(ctx, r->start.from, &r->start.given));
        r->start.has_given = true;
    } else if (r->o->pretrained) {
        cloob_status status = interchange_read(ctx, r->o->pretrained, &io, &r->start.given, &report);
        r->start.has_given = status == CLOOB_OK;
        interchange_report_release(&report);
        return status;
    }
    return CLOOB_OK;
}

/* Everything about the model that can fail on one rank. */
static cloob_status prepare_model(cloob_ctx *ctx, run *r)
{
    CLOOB_TRY(read_given(ctx, r));
    if (r->o->resume) CLOOB_TRY(auto_options_resume(ctx, r));
    CLOOB_TRY(auto_options_objective(ctx, r));
    bool same_model = r->o->resume && strcmp(r->o->model, "auto") != 0; /* the given model must be the checkpoint's */
    CLOOB_TRY(auto_options_model(ctx, r));
    CLOOB_TRY(open_tokenizer(ctx, r));
    int64_t size = r->o->image_size_schedule ? settings_image_size(r->o, 0) : r->o->force_image_size;
    if (r->start.has_given && !r->o->resume && size > 0) CLOOB_TRY(weights_resize_images(ctx, &r->start.given, size));
    if (same_model) CLOOB_TRY(check_resumed_model(ctx, r, &r->start.given.config));
    CLOOB_TRY(configure_model(ctx, r, r->start.has_given ? &r->start.given.config : NULL));
    CLOOB_TRY(run_check_stages(ctx, r));
    r->start.asked = r->options;
    r->start.notes_before = r->start.notes.len;
    auto_options_rest(ctx, r);
    return set_step_options(ctx, r);
}

/* Only rank 0 validates. */
static memory_case memory_case_of(const run *r)
{
    return (memory_case){ &r->so, r->dev, comm_size(r->c), comm_rank(r->c) == 0 ? run_eval_batch(r) : 0,
                          run_decoder_bytes(r) };
}

cloob_status run_check_memory(cloob_ctx *ctx, run *r)
{
    size_t limit;
    memory_case c = memory_case_of(r);
    CLOOB_TRY(set_step_options(ctx, r));
    if (r->o->fit_memory && !memory_parse(r->o->fit_memory, &limit))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "`fit_memory` %s: not a size; give a number of bytes, or a size such as 80G", r->o->fit_memory);
    if (r->o->fit_memory) CLOOB_TRY(memory_fit(ctx, &c, &r->so, limit, &r->need));
    return memory_check(ctx, &c, &r->need);
}

/* Refuses a batch that is too large before kernels are tuned; with a schedule, checks the largest images first. */
static cloob_status check_memory(cloob_ctx *ctx, run *r)
{
    memory_case c = memory_case_of(r);
    int64_t size = r->so.model.image_size, largest = settings_largest_image(r->o);
    if (largest > size) r->so.model.image_size = largest;
    CLOOB_TRY(auto_options_fit(ctx, r, &c));
    if (largest > size) CLOOB_TRY(run_check_memory(ctx, r));
    r->so.model.image_size = size;
    return run_check_memory(ctx, r);
}

/* Ranks communicate inside, so a rank that fails aborts the others. */
cloob_status run_make_step(cloob_ctx *ctx, run *r)
{
    cloob_status status = CLOOB_OK;
    if (r->dev->backend == BACKEND_CUDA && comm_size(r->c) > 1 && !r->gpus)
        status = comm_create_nccl(ctx, r->c, &r->gpus);
    if (status == CLOOB_OK) status = step_create(ctx, &r->so, r->dev, r->gpus ? r->gpus : r->c, &r->s);
    if (status != CLOOB_OK && comm_size(r->c) > 1) comm_abort(ctx, r->c, cloob_error(ctx));
    return status;
}

static cloob_status fill_model(cloob_ctx *ctx, run *r)
{
    cloob_status status;
    if (r->o->resume) status = checkpoint_read(ctx, r->start.from, r->s, &r->at);
    else if (r->start.has_given) status = params_load(ctx, step_params(r->s), &r->start.given);
    else status = params_init(ctx, step_params(r->s), (uint64_t)r->o->seed);
    if (status == CLOOB_OK && r->start.has_given && !r->o->resume)
        status = params_init_adapters(ctx, step_params(r->s), (uint64_t)r->o->seed);
    if (r->o->resume) snprintf(r->sum.checkpoint, sizeof r->sum.checkpoint, "%s", r->start.from);
    if (status == CLOOB_OK && r->o->resume && r->at.seed != r->o->seed)
        ctx_log(ctx, CLOOB_LOG_WARN, "the checkpoint was made with `seed` %lld: continuing with that seed",
                (long long)r->at.seed);
    if (r->start.has_given) weights_release(&r->start.given);
    r->start.has_given = false;
    return status;
}

static cloob_status own_device(cloob_ctx *ctx, run *r)
{
    char name[32];
    const char *wanted = r->o->device ? r->o->device : "auto";
    int gpus = device_cuda_count(), place = comm_local_rank(r->c);
    bool gpu = strcmp(wanted, "cuda") == 0 || (strcmp(wanted, "auto") == 0 && gpus > 0);
    if (!gpu || comm_size(r->c) == 1) return device_open(ctx, wanted, &r->dev);
    if (gpus > 0 && place >= gpus)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "more ranks than GPUs on one machine, which has %d; start one rank per GPU", gpus);
    snprintf(name, sizeof name, "cuda:%d", place);
    return device_open(ctx, name, &r->dev);
}

/* A rank that the others wait for (vocabulary, checkpoint, evaluation on rank 0) signals them with its progress. */
static void show_and_answer(void *user, const cloob_progress *p)
{
    run *r = user;
    if (pthread_equal(r->caller.thread, pthread_self())) comm_answer(r->c);
    if (r->caller.show) r->caller.show(r->caller.user, p);
}

static cloob_status open_device(cloob_ctx *ctx, run *r)
{
    CLOOB_TRY(comm_create(ctx, &r->c));
    if (comm_rank(r->c) == 0) journal_tee_begin(ctx, &r->tee);
    comm_set_timeout(r->c, r->o->collective_timeout);
    if (comm_size(r->c) > 1) {
        r->caller.show = ctx->progress, r->caller.user = ctx->progress_user, r->caller.thread = pthread_self();
        ctx->progress = show_and_answer, ctx->progress_user = r;
    }
    return comm_agree(ctx, r->c, own_device(ctx, r));
}

/* A global batch is divided over the ranks and their micro-batches. */
static cloob_status divide_batch(cloob_ctx *ctx, run *r)
{
    int64_t all = r->options.global_batch_size, accum = r->options.accum_freq, ranks = comm_size(r->c);
    if (all == 0) return CLOOB_OK;
    if (all % (ranks * accum) != 0)
        return ctx_fail(
            ctx, CLOOB_ERR_ARGUMENT,
            "`global_batch_size` %lld cannot be divided by %lld ranks x %lld micro-batches; take a multiple of "
            "%lld, or another number of ranks",
            (long long)all, (long long)ranks, (long long)accum, (long long)(ranks * accum));
    r->options.batch_size = all / (ranks * accum);
    return CLOOB_OK;
}

/* A run whose last restart cycle is cut short ends at a high learning rate. The paper's presets do, too. */
static void describe_last_cycle(cloob_ctx *ctx, run *r)
{
    const schedule *s = &r->plan.sched;
    int64_t after = r->plan.total_steps - s->warmup;
    if (r->o->skip_scheduler || s->kind != SCHEDULE_COSINE_RESTARTS || s->cycle < 1 || after < 1) return;
    if (after % s->cycle == 0) return;
    journal_line(ctx, r->log,
                 "the last restart cycle ends after %lld of its %lld steps, at a learning rate of %.2g; "
                 "`restart_cycles` %lld gives cycles of equal length",
                 (long long)(after % s->cycle), (long long)s->cycle,
                 r->plan.lr * schedule_scale(s, r->plan.total_steps - 1), (long long)(after / s->cycle + 1));
}

/* Warns about settings that are likely to waste hours. */
static void warn_early(cloob_ctx *ctx, run *r)
{
    int64_t left = r->plan.total_steps - r->at.updates;
    if (!r->o->skip_scheduler && r->plan.sched.warmup >= r->plan.total_steps && left > 0 && r->plan.total_steps > 1)
        journal_warn(ctx, r->log,
                     "the warm-up of %lld steps is longer than the run of %lld: the learning rate never reaches %g; "
                     "give a `warmup` of %lld, or more `epochs`",
                     (long long)r->plan.sched.warmup, (long long)r->plan.total_steps, r->plan.lr,
                     (long long)(r->plan.total_steps > 10 ? r->plan.total_steps / 10 : 1));
    describe_last_cycle(ctx, r);
}

static void describe(cloob_ctx *ctx, run *r)
{
    step_memory m = step_memory_of(r->s);
    const double MiB = 1048576.0;
    int64_t each = r->o->batch_size * r->o->accum_freq;
    char parts[64] = "";
    if (r->o->accum_freq > 1) snprintf(parts, sizeof parts, " (in %lld micro-batches)", (long long)r->o->accum_freq);
    char *notes = r->start.notes.data;
    for (char *line; notes && (line = strsep(&notes, "\n"));) /* one for each chosen setting */
        if (*line) journal_line(ctx, r->log, "%s", line);
    journal_line(ctx, r->log, "%s, %s, %s on %s, batch %lld = %d x %lld%s", r->so.model.name,
                 r->o->loss ? "a loss of the calling program" : r->o->method,
                 r->so.compute == CLOOB_F32 ? "fp32" : "bf16", r->dev->name, (long long)(each * comm_size(r->c)),
                 comm_size(r->c), (long long)each, parts);
    if (model_config_patches_kept(&r->so.model))
        journal_line(ctx, r->log, "patch dropout %g: training sees %lld of %lld patches of an image",
                     r->so.model.patch_dropout, (long long)model_config_patches_kept(&r->so.model),
                     (long long)(model_config_image_tokens(&r->so.model) - !r->so.model.no_class_token));
    if (r->o->image_size_schedule)
        journal_line(ctx, r->log, "images of %lld px in epoch %lld (`image_size_schedule` %s)",
                     (long long)settings_image_size(r->o, r->at.epoch), (long long)r->at.epoch + 1,
                     r->o->image_size_schedule);
    if (step_params(r->s)->trainable < step_params(r->s)->learned)
        journal_line(ctx, r->log, "%.3f M parameters are trained; the others are frozen",
                     (double)step_params(r->s)->trainable / 1e6);
    journal_line(ctx, r->log,
                 "%.1f M parameters; planned peak %.0f of %.0f MiB free: parameters %.0f, optimizer %.0f, image tower "
                 "%.0f, text tower %.0f, objective %.0f, validation %.0f",
                 (double)step_params(r->s)->learned / 1e6, (double)(m.total_bytes + r->need.eval_bytes) / MiB,
                 (double)r->need.available_bytes / MiB, (double)m.params_bytes / MiB, (double)m.optimizer_bytes / MiB,
                 (double)m.image_bytes / MiB, (double)m.text_bytes / MiB, (double)m.loss_bytes / MiB,
                 (double)r->need.eval_bytes / MiB);
    journal_line(ctx, r->log, "%lld pairs, %lld steps an epoch, %lld steps in all; vocabulary of %d",
                 (long long)dataset_count(r->train), (long long)r->plan.steps_per_epoch, (long long)r->plan.total_steps,
                 cloob_tokenizer_vocab_size(r->tok));
    if (strcmp(r->o->memory, "batch") != 0)
        journal_line(ctx, r->log,
                     loss_method_has_hopfield(r->so.method) ? "the Hopfield networks store %s"
                                                            : "`memory` %s has no effect: the method retrieves nothing",
                     r->o->memory);
    run_log_decoder(ctx, r, false);
    warn_early(ctx, r);
    if (r->at.updates && !r->at.step_in_epoch)
        journal_line(ctx, r->log, "resumed after epoch %lld", (long long)r->at.epoch);
    else if (r->at.updates)
        journal_line(ctx, r->log, "resumed in epoch %lld, after %lld of its steps", (long long)r->at.epoch + 1,
                     (long long)r->at.step_in_epoch);
}

/* Finds mistakes in names before data is read and a vocabulary is trained. */
static cloob_status check_names(cloob_ctx *ctx, run *r)
{
    model_config c;
    if (r->o->resume) return CLOOB_OK;
    if (strcmp(r->o->model, "auto") != 0) CLOOB_TRY(requested_model(ctx, r->o, &c));
    return r->o->name && comm_rank(r->c) == 0 ? journal_check_name(ctx, r->o->logs, r->o->name) : CLOOB_OK;
}

cloob_status run_open(cloob_ctx *ctx, run *r, const cloob_train_options *o)
{
    *r = (run){ .options = *o };
    r->o = &r->options;
    settings_fill(&r->options);
    r->time.started = r->saved.when = clock_seconds();
    step_options_init(&r->so);
    CLOOB_TRY(settings_check(ctx, r->o));
    CLOOB_TRY(open_device(ctx, r));
    CLOOB_TRY(comm_agree(ctx, r->c, run_open_decoder(ctx, r)));
    CLOOB_TRY(comm_agree(ctx, r->c, divide_batch(ctx, r)));
    CLOOB_TRY(comm_agree(ctx, r->c, check_names(ctx, r)));
    /* comm_agree reports the failure of one rank to the others, which would wait for it forever. */
    CLOOB_TRY(comm_agree(ctx, r->c, open_data(ctx, r)));
    CLOOB_TRY(comm_agree(ctx, r->c, prepare_model(ctx, r)));
    CLOOB_TRY(comm_agree(ctx, r->c, check_memory(ctx, r)));
    CLOOB_TRY(run_make_step(ctx, r));
    CLOOB_TRY(comm_agree(ctx, r->c, fill_model(ctx, r)));
    CLOOB_TRY(comm_agree(ctx, r->c, run_open_loader(ctx, r)));
    place_in_epoch(ctx, r);
    if (!o->resume) r->at.seed = o->seed;
    step_set_draws(r->s, (uint64_t)r->at.seed, r->at.updates);
    CLOOB_TRY(comm_agree(ctx, r->c, open_journal(ctx, r)));
    if (o->log_layers && comm_rank(r->c) == 0)
        CLOOB_TRY(layer_norms_create(ctx, r->log, step_params(r->s), &r->layers));
    describe(ctx, r);
    r->saved.updates = r->at.updates;
    return comm_agree(ctx, r->c, loader_seek(ctx, r->batches, r->at.epoch, r->at.step_in_epoch));
}

void run_close(cloob_ctx *ctx, run *r)
{
    if (ctx->progress == show_and_answer) ctx->progress = r->caller.show, ctx->progress_user = r->caller.user;
    if (r->start.has_given) weights_release(&r->start.given);
    layer_norms_destroy(r->layers);
    step_destroy(r->s); /* before the loader: an upload may still read its memory */
    loader_destroy(r->batches);
    device_decoder_destroy(r->decoder);
    cloob_tokenizer_close(r->tok);
    free(r->tok_text);
    sbuf_release(&r->start.notes);
    sbuf_release(&r->metrics);
    run_settings_close(r->start.stored);
    dataset_close(r->train);
    dataset_close(r->val);
    journal_tee_end(ctx, &r->tee);
    journal_close(r->log);
    comm_destroy(r->gpus);
    device_close(r->dev);
    comm_destroy(r->c);
}
