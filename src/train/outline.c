/* A model without weights: sizes, parameters, and the memory a step would take. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/needs.h"
#include "model/encoder.h"
#include "train/memory_budget.h"

static void put_sizes(const model_config *c, model_outline *o)
{
    snprintf(o->name, sizeof o->name, "%s", c->name);
    o->family = model_family_name(c->family);
    o->image_activation = c->family == MODEL_RESNET ? "relu" : model_act_name(c->image.act);
    o->text_activation = model_act_name(c->text.act);
    o->embed = c->embed, o->image_size = c->image_size, o->image_width = c->width, o->image_heads = c->image_heads;
    for (int i = 0; i < 5; i++) o->image_layers += c->layers[i];
    o->image_tokens = model_config_image_tokens(c), o->patch = c->patch;
    o->context = c->context, o->vocab = c->vocab;
    o->text_width = c->text_width, o->text_layers = c->text_layers, o->text_heads = c->text_heads;
}

static cloob_status count_parameters(cloob_ctx *ctx, const model_config *c, device *dev, model_outline *o)
{
    params *p;
    CLOOB_TRY(params_create(ctx, c, dev, CLOOB_F32, PARAMS_TABLE, &p));
    for (int i = 0; i < p->count; i++) {
        if (p->row[i].buffer) continue;
        o->tensors++;
        o->parameters += p->row[i].count;
        if (strncmp(p->row[i].name, "visual.", 7) == 0) o->image_parameters += p->row[i].count;
    }
    o->text_parameters = o->parameters - o->image_parameters;
    encoder_options eo = { .compute = CLOOB_F32, .batch = o->batch };
    size_t bytes;
    cloob_status status = encoder_measure(ctx, p, &eo, &bytes);
    if (status == CLOOB_OK) o->embed_bytes = (int64_t)bytes + p->total * (int64_t)sizeof(float);
    params_destroy(p);
    return status;
}

static cloob_status plan_step(cloob_ctx *ctx, const model_config *c, device *dev, const char *precision,
                              model_outline *o)
{
    step_options so;
    memory_need need;
    step_options_init(&so);
    so.model = *c;
    so.batch = o->batch;
    so.compute = !precision || strcmp(precision, "fp32") == 0 ? CLOOB_F32 : CLOOB_BF16;
    memory_case at = { .o = &so, .dev = dev, .ranks = 1 };
    CLOOB_TRY(memory_plan(ctx, &at, &need));
    o->step_params = (int64_t)need.step.params_bytes, o->step_optimizer = (int64_t)need.step.optimizer_bytes;
    o->step_image = (int64_t)need.step.image_bytes, o->step_text = (int64_t)need.step.text_bytes;
    o->step_objective = (int64_t)need.step.loss_bytes, o->step_bytes = (int64_t)need.step.total_bytes;
    return CLOOB_OK;
}

static cloob_status fill(cloob_ctx *ctx, const model_config *c, const char *precision, model_outline *o)
{
    device *dev;
    sbuf s = { 0 };
    CLOOB_TRY(device_open(ctx, "cpu", &dev));
    put_sizes(c, o);
    cloob_status status = count_parameters(ctx, c, dev, o);
    if (status == CLOOB_OK) status = plan_step(ctx, c, dev, precision, o);
    device_close(dev);
    if (status != CLOOB_OK) return status;
    model_config_to_json(c, &s);
    o->config = sbuf_detach(&s);
    return o->config ? CLOOB_OK : ctx_no_memory(ctx, 512, "a configuration");
}

cloob_status model_describe(cloob_ctx *ctx, const char *model, int64_t batch, const char *precision, model_outline *out)
{
    model_config c;
    API_NEEDS(ctx, model && out);
    *out = (model_outline){ .batch = batch };
    if (batch < 2 || batch > 1 << 24) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a batch of %lld", (long long)batch);
    CLOOB_TRY(model_config_load(ctx, model, &c));
    return fill(ctx, &c, precision, out);
}

void model_outline_release(model_outline *o)
{
    if (!o) return;
    free(o->config);
    *o = (model_outline){ 0 };
}
