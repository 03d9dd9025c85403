/* Single training steps on a caller's arrays (cloob/trainer.h). */
#include "cloob/trainer.h"

#include <stdio.h>
#include <stdlib.h>

#include "data/text/tokenizer.h"
#include "train/step.h"
#include "core/needs.h"
#include "tensor/precision.h"

struct cloob_trainer {
    device *dev;
    step *s;
    step_options o;
    char *merges; /* the tokenizer's text, or NULL */
};

void cloob_trainer_options_init_size(cloob_trainer_options *o, size_t size)
{
    cloob_trainer_options d = { .model = "tiny",
                                .batch = 64,
                                .method = CLOOB_METHOD_CLOOB,
                                .inv_tau = CLOOB_DEFAULT_INV_TAU,
                                .scale_hopfield = CLOOB_DEFAULT_SCALE_HOPFIELD,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .wd = CLOOB_DEFAULT_WD };
    options_write(o, size, &d, sizeof d);
}

static cloob_status configure(cloob_ctx *ctx, const cloob_trainer_options *o, cloob_trainer *t)
{
    precision p;
    step_options_init(&t->o);
    CLOOB_TRY(model_config_load(ctx, o->model, &t->o.model));
    CLOOB_TRY(precision_find(ctx, o->precision, true, &p));
    t->o.compute = p.compute;
    t->o.batch = o->batch, t->o.method = o->method;
    t->o.inv_tau = o->inv_tau, t->o.beta = o->scale_hopfield;
    t->o.beta1 = o->beta1, t->o.beta2 = o->beta2, t->o.eps = o->eps, t->o.wd = o->wd, t->o.clip = o->grad_clip_norm;
    if (o->tokenizer) {
        sbuf text = { 0 };
        tokenizer_save(o->tokenizer, &text);
        t->merges = sbuf_detach(&text);
        if (!t->merges) return ctx_no_memory(ctx, 1, "a tokenizer");
        t->o.model.vocab = cloob_tokenizer_vocab_size(o->tokenizer);
    }
    return model_config_check(ctx, &t->o.model);
}

cloob_status cloob_trainer_create(cloob_ctx *ctx, const cloob_trainer_options *o, cloob_trainer **out)
{
    API_NEEDS(ctx, o && out);
    *out = NULL;
    OPTIONS_READ(ctx, cloob_trainer_options, o);
    cloob_trainer *t = calloc(1, sizeof *t);
    if (!t) return ctx_no_memory(ctx, sizeof *t, "a trainer");
    cloob_status status = configure(ctx, o, t);
    if (status == CLOOB_OK) status = device_open(ctx, o->device ? o->device : "auto", &t->dev);
    if (status == CLOOB_OK) status = step_create(ctx, &t->o, t->dev, NULL, &t->s);
    if (status == CLOOB_OK) status = params_init(ctx, step_params(t->s), o->seed);
    if (status == CLOOB_OK) *out = t;
    else cloob_trainer_destroy(t);
    return status;
}

void cloob_trainer_destroy(cloob_trainer *t)
{
    if (!t) return;
    step_destroy(t->s);
    device_close(t->dev);
    free(t->merges);
    free(t);
}

int64_t cloob_trainer_image_size(const cloob_trainer *t) { return t ? t->o.model.image_size : 0; }

int64_t cloob_trainer_context(const cloob_trainer *t) { return t ? t->o.model.context : 0; }

static cloob_status check_tokens(cloob_ctx *ctx, const cloob_trainer *t, const int32_t *tokens)
{
    int64_t T = t->o.model.context;
    for (int64_t i = 0; i < t->o.batch * T; i++)
        if (tokens[i] < 0 || tokens[i] >= t->o.model.vocab)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "text %lld: token %d is outside the vocabulary of %lld",
                            (long long)(i / T), tokens[i], (long long)t->o.model.vocab);
    return CLOOB_OK;
}

cloob_status cloob_trainer_step(cloob_ctx *ctx, cloob_trainer *t, const uint8_t *rgb, const int32_t *tokens, double lr,
                                cloob_trainer_result *r)
{
    API_NEEDS(ctx, t && rgb && tokens);
    step_result inner;
    CLOOB_TRY(check_tokens(ctx, t, tokens));
    CLOOB_TRY(step_run(ctx, t->s, rgb, tokens, lr, &inner));
    if (r) *r = (cloob_trainer_result){ inner.loss, inner.image_term, inner.text_term, inner.grad_norm, inner.skipped };
    return CLOOB_OK;
}

static cloob_status fill(cloob_ctx *ctx, cloob_trainer *t, weights *w)
{
    char text[40];
    w->config = t->o.model;
    CLOOB_TRY(params_store(ctx, step_params(t->s), w));
    if (t->merges) CLOOB_TRY(weights_set_meta(ctx, w, "tokenizer", t->merges));
    CLOOB_TRY(weights_set_meta(ctx, w, "method", loss_method_name(t->o.method)));
    snprintf(text, sizeof text, "%.17g", t->o.inv_tau);
    CLOOB_TRY(weights_set_meta(ctx, w, "inv_tau", text));
    snprintf(text, sizeof text, "%.17g", t->o.beta);
    return weights_set_meta(ctx, w, "scale_hopfield", text);
}

cloob_status cloob_trainer_save(cloob_ctx *ctx, cloob_trainer *t, const char *path)
{
    API_NEEDS(ctx, t && path);
    weights w;
    weights_init(&w);
    cloob_status status = fill(ctx, t, &w);
    if (status == CLOOB_OK) status = weights_write_native(ctx, path, &w);
    weights_release(&w);
    return status;
}
