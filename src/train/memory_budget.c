/* Computes the sizes of a step from its graphs. */
#include "train/memory_budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/encoder.h"
#include "train/step_impl.h"
#include "core/needs.h"

enum { MiB = 1 << 20 };

/* ---- parts --------------------------------------------------------------------------------------- */

static cloob_status tower_bytes(cloob_ctx *ctx, const memory_case *c, const params *p, bool text, size_t *out)
{
    towers t;
    size_t max = 0, input = 0;
    cloob_status status = towers_build(ctx, c->o, c->dev, p, text, &t);
    for (int i = 0; i < t.count && status == CLOOB_OK; i++) { /* these graphs share one arena and their inputs */
        exec_memory m;
        status = exec_measure(ctx, &t.g[i], c->dev, &m);
        if (status != CLOOB_OK) break;
        if (m.arena_bytes > max) max = m.arena_bytes;
        static const char *const names[] = { "images", "tokens", "kept" };
        input = m.input_bytes;
        for (int k = 0; k < 3; k++) {
            value_id v = graph_find(&t.g[i], names[k]);
            if (v != NO_VALUE) input += batch_upload_bytes(c->dev, tensor_bytes(&t.g[i].value[v].t));
        }
    }
    towers_release(&t);
    *out = max + input;
    return status;
}

static cloob_status loss_bytes(cloob_ctx *ctx, const memory_case *c, const params *p, size_t *out)
{
    const step_options *o = c->o;
    size_t warm = 0, stored = 0;
    int64_t memory_rows[2] = { 0, 0 }, rows = o->batch * o->accum, dim = o->model.embed;
    loss_options l;
    if (loss_method_has_hopfield(o->method) && !o->own.call)
        CLOOB_TRY(hopfield_memory_measure(ctx, o->memory, c->ranks, rows, dim, memory_rows, &stored));
    loss_shape shape = {
        .rows = rows, .dim = dim, .dtype = CLOOB_F32, .stored_u = memory_rows[0], .stored_v = memory_rows[1]
    };
    loss_options_init(&l);
    l.backend = c->dev->backend == BACKEND_CUDA ? LOSS_CUDA : c->dev->backend == BACKEND_CPU ? LOSS_CPU : LOSS_REF;
    l.inv_tau = o->inv_tau;
    l.beta = o->beta;
    l.method = loss_method_leaves_one_out(o->method) ? CLOOB_METHOD_INFOLOOB : CLOOB_METHOD_CLIP;
    if (o->hopfield_warmup > 0 && !o->own.call && loss_method_has_hopfield(o->method))
        CLOOB_TRY(loss_measure(ctx, &l, &shape, c->ranks, &warm));
    l.method = o->method;
    if (o->own.call) *out = own_loss_bytes(o, c->ranks);
    else CLOOB_TRY(loss_measure(ctx, &l, &shape, c->ranks, out));
    bool micro = o->accum > 1; /* embeddings and gradients of all micro-batches, which the towers do not hold */
    int64_t own = 2 * micro + (micro || !params_trains(p, false)) + (micro || !params_trains(p, true));
    *out += warm + stored + (size_t)(own * rows * dim) * sizeof(float);
    return CLOOB_OK;
}

static cloob_status plan_parts(cloob_ctx *ctx, const memory_case *c, params *p, memory_need *out)
{
    const step_options *o = c->o;
    step_memory *m = &out->step;
    size_t n = (size_t)p->trainable * sizeof(float);
    size_t shadow = o->compute == CLOOB_BF16 ? (size_t)p->learned * sizeof(uint16_t) : 0;
    m->params_bytes = (size_t)p->total * sizeof(float) + n + shadow;
    m->optimizer_bytes = n * (2 + (o->ema > 0) + (o->accum > 1));
    CLOOB_TRY(tower_bytes(ctx, c, p, false, &m->image_bytes));
    CLOOB_TRY(tower_bytes(ctx, c, p, true, &m->text_bytes));
    CLOOB_TRY(loss_bytes(ctx, c, p, &m->loss_bytes));
    m->total_bytes = m->params_bytes + m->optimizer_bytes + m->image_bytes + m->text_bytes + m->loss_bytes;
    if (c->eval_batch > 0) {
        encoder_options eo = { .compute = o->compute, .batch = c->eval_batch };
        CLOOB_TRY(encoder_measure(ctx, p, &eo, &out->eval_bytes));
    }
    size_t libraries = c->dev->backend == BACKEND_CUDA ? 512 : 32; /* MiB; they load their code on first use */
    out->reserve_bytes = libraries * MiB + c->loader_bytes;
    out->total_bytes = m->total_bytes + out->eval_bytes + out->reserve_bytes;
    return CLOOB_OK;
}

cloob_status memory_plan(cloob_ctx *ctx, const memory_case *c, memory_need *out)
{
    params *p;
    *out = (memory_need){ 0 };
    CLOOB_TRY(params_create_training(ctx, &c->o->model, c->dev, c->o->compute, PARAMS_TABLE, &c->o->part, &p));
    cloob_status status = plan_parts(ctx, c, p, out);
    params_destroy(p);
    return status;
}

/* ---- available memory ------------------------------------------------------------------------------- */

bool memory_parse(const char *text, size_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    double size = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++) size *= 1024;
    if (unit) end++;
    if (unit && (strcmp(end, "iB") == 0 || strcmp(end, "B") == 0)) end += strlen(end);
    bool good = end != text && !*end && size > 0 && size < 1e18;
    if (good) *bytes = (size_t)size;
    return good;
}

cloob_status memory_available(cloob_ctx *ctx, device *dev, size_t *out)
{
    size_t total, limit;
    const char *text = getenv("CLOOB_MEMORY_LIMIT");
    dev->memory(dev, &total, out);
    if (!text || !*text) return CLOOB_OK;
    if (!memory_parse(text, &limit))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "CLOOB_MEMORY_LIMIT=%s: not a size; give a number of bytes, or a size such as 24G", text);
    if (*out == 0 || limit < *out) *out = limit;
    return CLOOB_OK;
}

/* ---- a limit ------------------------------------------------------------------------------------- */

cloob_status memory_fit(cloob_ctx *ctx, const memory_case *c, step_options *o, size_t limit, memory_need *out)
{
    enum { STEP_PERCENT = 10 };
    CLOOB_TRY(memory_plan(ctx, c, out));
    if (out->total_bytes <= limit || o->grad.checkpoint) return CLOOB_OK;
    o->save_memory = o->grad.recompute = true;
    CLOOB_TRY(memory_plan(ctx, c, out));
    for (int share = STEP_PERCENT; share <= 100 && out->total_bytes > limit; share += STEP_PERCENT) {
        o->grad.checkpoint = true, o->grad.checkpoint_share = share;
        CLOOB_TRY(memory_plan(ctx, c, out));
    }
    if (out->total_bytes > limit)
        return ctx_fail(ctx, CLOOB_ERR_MEMORY,
                        "%.2f GiB are needed with every block recomputed, %.2f are allowed; use a smaller batch",
                        (double)out->total_bytes / 0x1p30, (double)limit / 0x1p30);
    ctx_log(ctx, CLOOB_LOG_INFO,
            "to stay within %.2f GiB, %d %% of the blocks and cheap ops are recomputed: %.2f GiB planned",
            (double)limit / 0x1p30, o->grad.checkpoint ? o->grad.checkpoint_share : 0,
            (double)out->total_bytes / 0x1p30);
    return CLOOB_OK;
}

/* ---- the refusal --------------------------------------------------------------------------------- */

const char *memory_text(const memory_need *n, char text[MEMORY_TEXT])
{
    const step_memory *m = &n->step;
    bool large = n->total_bytes >= (size_t)1024 * MiB; /* all sizes in the unit of the largest */
    const char *name = large ? "GiB" : "MiB";
    double unit = large ? 1024.0 * MiB : MiB;
    int used =
        snprintf(text, MEMORY_TEXT,
                 "%.2f %s (parameters %.2f, optimizer %.2f, image tower %.2f, text tower %.2f, objective %.2f",
                 (double)n->total_bytes / unit, name, (double)m->params_bytes / unit, (double)m->optimizer_bytes / unit,
                 (double)m->image_bytes / unit, (double)m->text_bytes / unit, (double)m->loss_bytes / unit);
    if (n->eval_bytes)
        used += snprintf(text + used, (size_t)(MEMORY_TEXT - used), ", validation %.2f", (double)n->eval_bytes / unit);
    used += snprintf(text + used, (size_t)(MEMORY_TEXT - used), ", libraries %.2f)", (double)n->reserve_bytes / unit);
    snprintf(text + used, (size_t)(MEMORY_TEXT - used), ", %.2f %s free", (double)n->available_bytes / unit, name);
    return text;
}

/* The largest batch below c's whose plan stays within `room`, by bisection; 0: none. */
static cloob_status largest_batch(cloob_ctx *ctx, const memory_case *c, size_t room, int64_t *out)
{
    step_options o = *c->o;
    memory_case at = *c;
    at.o = &o;
    int64_t smallest = c->o->accum * c->ranks > 1 ? 1 : 2, over = c->o->batch;
    *out = 0;
    for (o.batch = smallest; o.batch < over; o.batch = *out + (over - *out) / 2) {
        memory_need n;
        CLOOB_TRY(memory_plan(ctx, &at, &n));
        if (n.total_bytes <= room) *out = o.batch;
        else over = o.batch;
        if (over - *out < 2 || over == smallest) break;
    }
    return CLOOB_OK;
}

cloob_status memory_largest_batch(cloob_ctx *ctx, const memory_case *c, int64_t *out)
{
    memory_need n;
    CLOOB_TRY(memory_plan(ctx, c, &n));
    CLOOB_TRY(memory_available(ctx, c->dev, &n.available_bytes));
    *out = c->o->batch;
    if (n.available_bytes == 0 || n.total_bytes <= n.available_bytes) return CLOOB_OK;
    return largest_batch(ctx, c, n.available_bytes, out);
}

static cloob_status refuse(cloob_ctx *ctx, const memory_case *c, const memory_need *n)
{
    char parts[MEMORY_TEXT], batch[96] = "even the smallest batch does not";
    int64_t max;
    CLOOB_TRY(largest_batch(ctx, c, n->available_bytes, &max));
    if (max) snprintf(batch, sizeof batch, "the largest batch that fits is %lld", (long long)max);
    return ctx_fail(ctx, CLOOB_ERR_MEMORY, "a batch of %lld does not fit into the memory of %s: it needs %s; %s%s",
                    (long long)c->o->batch, c->dev->name, memory_text(n, parts), batch,
                    c->o->grad.checkpoint ? "" : "; `grad_checkpointing` needs less");
}

cloob_status memory_check(cloob_ctx *ctx, const memory_case *c, memory_need *out)
{
    CLOOB_TRY(step_check_sizes(ctx, c->o));
    CLOOB_TRY(memory_plan(ctx, c, out));
    CLOOB_TRY(memory_available(ctx, c->dev, &out->available_bytes));
    if (out->available_bytes == 0 || out->total_bytes <= out->available_bytes) return CLOOB_OK;
    return refuse(ctx, c, out);
}

/* ---- a model without weights ------------------------------------------------------------------------ */

static cloob_status measure_model(cloob_ctx *ctx, device *dev, int64_t batch, cloob_dtype compute, model_outline *o)
{
    params *p;
    memory_need need;
    step_options so;
    encoder_options eo = { .compute = CLOOB_F32, .batch = batch };
    CLOOB_TRY(params_create(ctx, &o->config, dev, CLOOB_F32, PARAMS_TABLE, &p));
    for (int i = 0; i < p->count; i++) {
        if (p->row[i].buffer) continue;
        o->tensors++;
        o->parameters += p->row[i].count;
        if (strncmp(p->row[i].name, "visual.", 7) == 0) o->image_parameters += p->row[i].count;
    }
    cloob_status status = encoder_measure(ctx, p, &eo, &o->embed_bytes);
    o->embed_bytes += (size_t)p->total * sizeof(float);
    params_destroy(p);
    CLOOB_TRY(status);
    step_options_init(&so);
    so.model = o->config;
    so.batch = batch;
    so.compute = compute;
    CLOOB_TRY(memory_plan(ctx, &(memory_case){ .o = &so, .dev = dev, .ranks = 1 }, &need));
    o->step = need.step;
    return CLOOB_OK;
}

cloob_status model_describe(cloob_ctx *ctx, const char *model, int64_t batch, const char *precision, model_outline *out)
{
    device *dev;
    API_NEEDS(ctx, model && out);
    *out = (model_outline){ 0 };
    if (batch < 2 || batch > 1 << 24) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a batch of %lld", (long long)batch);
    CLOOB_TRY(model_config_load(ctx, model, &out->config));
    CLOOB_TRY(device_open(ctx, "cpu", &dev));
    bool fp32 = !precision || strcmp(precision, "fp32") == 0;
    cloob_status status = measure_model(ctx, dev, batch, fp32 ? CLOOB_F32 : CLOOB_BF16, out);
    device_close(dev);
    return status;
}
