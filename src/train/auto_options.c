/* Chooses defaults from the data and the machine. */
#include "train/run_setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/file.h"
#include "train/settings.h"
#include "core/option.h"
#include "core/text.h"

enum {
    LARGE_MODEL_PAIRS = 100000, /* RN50 from scratch learns little from fewer */
    PEEK = 9,                   /* images whose size is inspected */
    SMALL_IMAGE = 48,           /* shorter edge below this: 32 pixels are enough */
    BATCH = 64,
    EPOCHS = 32,
    PAIRS_PER_THREAD = 150000, /* about a quarter of an hour for `tiny`: docs/measurements/results.md */
    WARMUP = 10000,
    SHORT_WARMUP = 1000,
    VIT_B_32 = 151000000, /* parameters */
    TUNE_STEPS = 300,     /* fine-tuning: fewer steps are not enough, docs/measurements/results.md */
    TUNE_EPOCHS = 3,
    TUNE_MAX_EPOCHS = 100,
    TUNE_RETRIEVAL = 1000, /* steps before retrieval starts; shorter runs learn more without it, same page */
};

/* ---- a resumed run ------------------------------------------------------------------------------- */

cloob_status auto_options_resume(cloob_ctx *ctx, run *r)
{
    char path[1100], *slash;
    snprintf(path, sizeof path, "%s", r->start.from);
    for (int up = 0; up < 2; up++) { /* RUN/checkpoints/FILE */
        slash = strrchr(path, '/');
        if (!slash) return CLOOB_OK;
        *slash = '\0';
    }
    snprintf(path + strlen(path), sizeof path - strlen(path), "/settings.json");
    if (!file_exists(path)) return CLOOB_OK;
    CLOOB_TRY(settings_load(ctx, path, NULL, &r->start.stored));
    int64_t n;
    const option_desc *table = train_option_table(&n);
    for (int64_t i = 0; i < n; i++) {
        const void *at = (const char *)&r->options + table[i].offset;
        bool open = (table[i].type == OPTION_AUTO && *(const double *)at < 0) ||
                    (table[i].type == OPTION_AUTO_INT && *(const int64_t *)at < 0);
        if (open) option_copy(&table[i], run_settings_options(r->start.stored), &r->options);
    }
    return CLOOB_OK;
}

/* ---- the objective of given weights ------------------------------------------ */

/* A positive number of the metadata; 0: there is none. */
static double given_number(const run *r, const char *key)
{
    const char *text = weights_get_meta(&r->start.given, key);
    double x = text ? strtod(text, NULL) : 0;
    return x > 0 && isfinite(x) ? x : 0;
}

/* cloob's files name their method. Published ones imply it: SigLIP has a bias, the authors' CLOOB a second scale, and a
 * file with only a temperature is CLIP, which learns it. */
static bool given_method(const run *r, cloob_method *method, bool *learns)
{
    const char *name = weights_get_meta(&r->start.given, "method");
    *learns = weights_get_meta(&r->start.given, "learnable_inv_tau") != NULL;
    if (name && loss_method_from_name(name, method)) return true;
    if (r->start.given.config.has_logit_bias) *method = CLOOB_METHOD_SIGLIP;
    else if (given_number(r, "scale_hopfield") > 0) *method = CLOOB_METHOD_CLOOB;
    else if (given_number(r, "inv_tau") > 0) *method = CLOOB_METHOD_CLIP;
    else return false;
    *learns = *method == CLOOB_METHOD_CLIP;
    return true;
}

static void take_bias(run *r)
{
    const tensor *t = weights_find(&r->start.given, "logit_bias");
    const char *text = weights_get_meta(&r->start.given, "logit_bias");
    double bias = text ? strtod(text, NULL) : r->options.init_logit_bias;
    if (!text && (!t || tensor_count(t) != 1 || !dtype_convert(CLOOB_F64, &bias, t->dtype, t->data, 1))) return;
    if (isfinite(bias) && r->options.init_logit_bias == CLOOB_DEFAULT_LOGIT_BIAS) r->options.init_logit_bias = bias;
}

/* Fills open options. A method other than the weights' starts with its own temperature. */
static void take_scales(run *r, cloob_method method, bool learns, sbuf *taken)
{
    cloob_train_options *o = &r->options;
    double inv_tau = given_number(r, "inv_tau"), beta = given_number(r, "scale_hopfield");
    if (o->init_inv_tau < 0 && inv_tau > 0) {
        o->init_inv_tau = inv_tau;
        if (learns && !o->resume) o->learnable_inv_tau = true;
        if (method == CLOOB_METHOD_SIGLIP) take_bias(r);
        sbuf_printf(taken, ", `init_inv_tau` %g%s", inv_tau, o->learnable_inv_tau ? " (learned on)" : "");
    }
    if (o->scale_hopfield < 0 && beta > 0 && loss_method_has_hopfield(method)) {
        o->scale_hopfield = beta;
        sbuf_printf(taken, ", `scale_hopfield` %g", beta);
    }
}

cloob_status auto_options_objective(cloob_ctx *ctx, run *r)
{
    cloob_train_options *o = &r->options;
    cloob_method method = CLOOB_METHOD_CLOOB, given = CLOOB_METHOD_CLOOB;
    bool learns = false, known = r->start.has_given && given_method(r, &given, &learns);
    bool open = strcmp(o->method, "auto") == 0;
    sbuf taken = { 0 };
    if (open) o->method = loss_method_name(known ? given : CLOOB_METHOD_CLOOB);
    loss_method_from_name(o->method, &method);
    if (known && method == given) take_scales(r, method, learns, &taken);
    if (o->scale_hopfield < 0) o->scale_hopfield = CLOOB_DEFAULT_SCALE_HOPFIELD;
    if (o->pretrained && known && method != given)
        sbuf_printf(&r->start.notes, "`method` %s; the weights of %s are of %s\n", o->method, o->pretrained,
                    loss_method_name(given));
    else if (o->pretrained && known)
        sbuf_printf(&r->start.notes, "`method` %s%s: as in %s\n", o->method, taken.data ? taken.data : "",
                    o->pretrained);
    else if (o->pretrained)
        sbuf_printf(&r->start.notes, "`method` %s; %s does not say what it was trained with\n", o->method,
                    o->pretrained);
    sbuf_release(&taken);
    return settings_check_report_loss(ctx, o);
}

/* ---- the model ----------------------------------------------------------------------------------- */

/* The median of the shorter edges of a few images; 0: none could be read. */
static int64_t peek_size(cloob_ctx *ctx, const dataset *d)
{
    int64_t size[PEEK] = { 0 }, found = 0, n = dataset_count(d);
    for (int64_t i = 0; i < PEEK && i < n; i++) {
        sample s;
        if (dataset_read(ctx, d, i * (n / (n < PEEK ? n : PEEK)), 0, NULL, &s) != CLOOB_OK) continue;
        size[found++] = min64(s.im.width, s.im.height);
        sample_release(&s);
    }
    qsort(size, (size_t)found, sizeof *size, order_int64);
    return found ? size[found / 2] : 0;
}

static void choose_model(cloob_ctx *ctx, run *r)
{
    char pairs[32];
    bool gpu = r->dev->backend == BACKEND_CUDA;
    int64_t n = dataset_count(r->train);
    r->start.chose_small = !gpu || n < LARGE_MODEL_PAIRS;
    r->options.model = r->start.chose_small ? "tiny" : "RN50";
    if (!r->start.chose_small) return;
    int64_t edge = r->options.force_image_size || r->options.image_size_schedule ? 0 : peek_size(ctx, r->train);
    if (edge > 0 && edge < SMALL_IMAGE) r->options.force_image_size = 32;
    sbuf_printf(&r->start.notes,
                "`model` tiny at %lld pixels, because there are %s pairs%s; RN50 needs a GPU and some %s pairs\n",
                (long long)(r->options.force_image_size ? r->options.force_image_size : 64), text_grouped(pairs, n),
                gpu ? "" : " and no GPU", "100,000");
}

cloob_status auto_options_model(cloob_ctx *ctx, run *r)
{
    if (r->o->model && strcmp(r->o->model, "auto") != 0) return CLOOB_OK;
    if (!r->start.has_given) {
        choose_model(ctx, r);
        return CLOOB_OK;
    }
    const char *name = r->start.given.config.name;
    snprintf(r->start.model_name, sizeof r->start.model_name, "%s", name[0] ? name : "auto");
    r->options.model = r->start.model_name;
    return CLOOB_OK;
}

/* ---- the rest ------------------------------------------------------------------------------------ */

static int64_t devices(const run *r) { return (int64_t)comm_size(r->c) * r->o->accum_freq; }

static void choose_batch(run *r, int64_t samples)
{
    r->options.batch_size = BATCH;
    if (saturating_mul(BATCH, devices(r)) <= samples) return;
    int64_t limit = samples / devices(r);
    r->options.batch_size = limit < 1 ? 1 : limit;
    sbuf_printf(&r->start.notes, "`batch_size` %lld, because the data set has no more pairs\n",
                (long long)r->options.batch_size);
}

static void choose_epochs(cloob_ctx *ctx, run *r, int64_t samples)
{
    char pairs[32];
    r->options.epochs = EPOCHS;
    if (!r->start.chose_small || r->dev->backend == BACKEND_CUDA) return;
    int64_t budget = saturating_mul(PAIRS_PER_THREAD, ctx->threads * (int64_t)comm_size(r->c)), fit = budget / samples;
    if (fit >= EPOCHS) return;
    r->options.epochs = fit > 1 ? fit : 1;
    sbuf_printf(&r->start.notes, "`epochs` %lld: some %s pairs, about a quarter of an hour on this CPU\n",
                (long long)r->options.epochs, text_grouped(pairs, saturating_mul(r->options.epochs, samples)));
}

/* Half an epoch, whatever the number of epochs: extending a run does not change its start. */
static void choose_warmup(run *r, int64_t steps_per_epoch, int64_t total)
{
    r->options.warmup = WARMUP;
    if (total >= 2 * (int64_t)WARMUP) return;
    int64_t n = min64(min64(steps_per_epoch / 2, SHORT_WARMUP), total / 2);
    r->options.warmup = n > 1 ? n : 1;
    sbuf_printf(&r->start.notes, "`warmup` %lld of %lld steps; the usual 10,000 are for longer runs\n",
                (long long)r->options.warmup, (long long)total);
}

static void choose_objective(run *r, int64_t total)
{
    cloob_train_options *o = &r->options;
    cloob_method method = CLOOB_METHOD_CLOOB;
    loss_method_from_name(o->method, &method);
    bool retrieves = loss_method_has_hopfield(method);
    if (o->init_inv_tau < 0) {
        o->init_inv_tau = method == CLOOB_METHOD_SIGLIP ? 10 : r->start.chose_small ? 15 : CLOOB_DEFAULT_INV_TAU;
        if (r->start.chose_small && method != CLOOB_METHOD_SIGLIP)
            sbuf_puts(&r->start.notes,
                      "`init_inv_tau` 15, because a small model learns faster than with the paper's 30\n");
    }
    if (o->hopfield_warmup >= 0) return;
    o->hopfield_warmup = r->start.chose_small && retrieves ? total / 3 : 0;
    if (o->hopfield_warmup)
        sbuf_printf(&r->start.notes,
                    "`hopfield_warmup` %lld: retrieval from the first step keeps a small model on its first "
                    "plateau\n",
                    (long long)o->hopfield_warmup);
}

/* ---- fine-tuning --------------------------------------------------------------------------------- */

static int64_t given_parameters(const run *r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->start.given.count; i++) n += tensor_count(&r->start.given.entry[i].t);
    return n;
}

/* 1e-5 for ViT-B-32 and larger models, 1e-4 with 5 M parameters, a power law between and below them; one digit. */
static double tuning_rate(const run *r)
{
    char digit[16];
    double rate = 1e-5 * pow(VIT_B_32 / (double)max64(given_parameters(r), 1), 2.0 / 3);
    rate = rate < 1e-5 ? 1e-5 : rate > 3e-4 ? 3e-4 : rate;
    snprintf(digit, sizeof digit, "%.0e", rate);
    rate = strtod(digit, NULL);
    if (!r->o->lora) return rate;
    return 10 * rate < 5e-4 ? 5e-4 : 10 * rate; /* few parameters, so larger steps */
}

static void choose_tuning(run *r, int64_t per_epoch)
{
    cloob_train_options *o = &r->options;
    char parameters[32];
    if (o->epochs < 0) {
        int64_t enough = (TUNE_STEPS + per_epoch - 1) / max64(per_epoch, 1);
        o->epochs = min64(max64(enough, TUNE_EPOCHS), TUNE_MAX_EPOCHS);
        sbuf_printf(&r->start.notes, "`epochs` %lld of %lld steps: 3, or up to 100 where 3 are fewer than 300 steps\n",
                    (long long)o->epochs, (long long)per_epoch);
    }
    if (o->lr < 0) {
        o->lr = tuning_rate(r);
        sbuf_printf(&r->start.notes, "`lr` %.2g for %s with %s parameters; smaller models take more\n", o->lr,
                    o->lora ? "adapters of a model" : "a model", text_grouped(parameters, given_parameters(r)));
    }
    if (o->hopfield_warmup < 0) o->hopfield_warmup = TUNE_RETRIEVAL;
}

void auto_options_rest(cloob_ctx *ctx, run *r)
{
    cloob_train_options *o = &r->options;
    int64_t samples = dataset_epoch_samples(r->train);
    if (o->batch_size < 0) choose_batch(r, samples);
    if (o->finetune && r->start.has_given) choose_tuning(r, samples / saturating_mul(o->batch_size, devices(r)));
    if (o->epochs < 0) choose_epochs(ctx, r, samples);
    if (r->start.chose_small && o->lr < 0) {
        o->lr = 1e-3;
        sbuf_puts(&r->start.notes, "`lr` 1e-3, because a small model takes more than the usual 5e-4\n");
    }
    int64_t per_epoch = samples / saturating_mul(o->batch_size, devices(r));
    int64_t total = saturating_mul(per_epoch, o->epochs);
    if (o->schedule_steps > 0) total = min64(total, o->schedule_steps);
    if (o->warmup < 0) choose_warmup(r, per_epoch, total);
    choose_objective(r, total);
}

cloob_status auto_options_fit(cloob_ctx *ctx, run *r, const memory_case *c)
{
    int64_t limit;
    if (r->start.asked.batch_size >= 0 || comm_size(r->c) > 1) return CLOOB_OK;
    CLOOB_TRY(memory_largest_batch(ctx, c, &limit));
    if (limit < 1 || limit >= r->o->batch_size) return CLOOB_OK;
    int64_t wanted = r->o->batch_size;
    r->options = r->start.asked;
    r->options.batch_size = limit;
    r->start.notes.len = r->start.notes_before;
    sbuf_printf(&r->start.notes, "`batch_size` %lld, because %lld do not fit into the memory of %s\n", (long long)limit,
                (long long)wanted, r->dev->name);
    auto_options_rest(ctx, r);
    return CLOOB_OK;
}
