/* Inference: one executor per kind of input and, for texts, per length; batches padded with zeros. */
#include "model/encoder.h"

#include <stdlib.h>
#include <string.h>

#include "graph/exec.h"
#include "model/tower.h"

/* Texts have a kind for every length, in steps: TOKENS is the longest, TOKENS + 1 one step long, and so on. */
enum { BYTES, FLOATS, TOKENS, STEP = 8, LENGTHS = 32, KINDS = TOKENS + LENGTHS };

struct encoder {
    params *p;
    bool owns_params;
    weights w;     /* what the parameters are views of; empty where somebody else owns them */
    bool bound[2]; /* image and text tower: taken from w on first use */
    encoder_options o;
    exec *exec[KINDS];
    void *recording[KINDS]; /* of a GPU's forward pass, from its second run on; NULL: not yet, or not possible */
    int runs[KINDS];        /* counted up to 2 */
    weight_cache *kept;     /* what kernels made of the weights, shared by the executors */
    void *host;             /* one batch of inputs or results as the device takes and gives them */
    size_t host_bytes;
};

void encoder_options_init(encoder_options *o)
{
    *o = (encoder_options){ .compute = CLOOB_F32, .invariant = true, .batch = 32 };
}

cloob_status encoder_create_on(cloob_ctx *ctx, params *p, const encoder_options *o, encoder **out)
{
    encoder *e = calloc(1, sizeof *e);
    if (!e) return ctx_no_memory(ctx, sizeof *e, "an encoder");
    e->p = p;
    e->o = *o;
    if (e->o.invariant || e->o.batch < 1) e->o.batch = 1;
    *out = e;
    return CLOOB_OK;
}

/* In fp32 a tower's weights are looked at when it is first used; bf16 is a copy of all of them. */
static cloob_status take_weights(cloob_ctx *ctx, encoder *e)
{
    if (e->p->compute == CLOOB_F32) return CLOOB_OK;
    e->bound[0] = e->bound[1] = true;
    return params_load(ctx, e->p, &e->w);
}

cloob_status encoder_create(cloob_ctx *ctx, weights *w, device *dev, const encoder_options *o, encoder **out)
{
    params *p = NULL;
    encoder *e = NULL;
    cloob_status status = params_create(ctx, &w->config, dev, o->compute, PARAMS_INFER, &p);
    if (status == CLOOB_OK) status = encoder_create_on(ctx, p, o, &e);
    if (status != CLOOB_OK) {
        params_destroy(p);
        weights_release(w);
        return status;
    }
    e->owns_params = true;
    e->w = *w;
    weights_init(w);
    status = take_weights(ctx, e);
    if (status == CLOOB_OK) *out = e;
    else encoder_destroy(e);
    return status;
}

static cloob_status bind_tower(cloob_ctx *ctx, encoder *e, bool text)
{
    if (!e->owns_params || e->bound[text]) return CLOOB_OK;
    CLOOB_TRY(params_bind(ctx, e->p, &e->w, text));
    e->bound[text] = true;
    return CLOOB_OK;
}

static void drop_executors(encoder *e)
{
    device *d = e->p->dev;
    for (int k = 0; k < KINDS; k++) {
        if (e->recording[k]) d->forget(d, e->recording[k]);
        exec_destroy(e->exec[k]);
        e->recording[k] = NULL, e->exec[k] = NULL, e->runs[k] = 0;
    }
    weight_cache_destroy(e->kept);
    e->kept = NULL;
}

void encoder_destroy(encoder *e)
{
    if (!e) return;
    drop_executors(e);
    if (e->owns_params) {
        params_destroy(e->p);
        weights_release(&e->w);
    }
    free(e->host);
    free(e);
}

const model_config *encoder_config(const encoder *e) { return &e->p->config; }

device *encoder_device(const encoder *e) { return e->p->dev; }

int64_t encoder_batch(const encoder *e) { return e->o.batch; }

int64_t encoder_width(const encoder *e, encoder_output what, bool text)
{
    if (what != ENCODE_FEATURES) return e->p->config.embed;
    return text ? e->p->config.text_width : tower_image_features(&e->p->config);
}

/* What kernels kept of the old weights goes with the executors. */
void encoder_weights_changed(encoder *e) { drop_executors(e); }

static cloob_status make_graph(cloob_ctx *ctx, const params *p, int64_t batch, int kind, graph *g)
{
    tower_options o = { .batch = batch,
                        .float_images = kind == FLOATS,
                        .features = true,
                        .padded_input = p->dev->backend == BACKEND_CUDA,
                        .tokens = kind > TOKENS ? (kind - TOKENS) * STEP : 0 };
    return kind >= TOKENS ? tower_text(ctx, p, &o, g) : tower_image(ctx, p, &o, g);
}

cloob_status encoder_measure(cloob_ctx *ctx, const params *p, const encoder_options *o, size_t *bytes)
{
    static const int kinds[] = { BYTES, TOKENS };
    *bytes = 0;
    for (int i = 0; i < 2; i++) {
        graph g;
        exec_memory m = { 0 };
        cloob_status status = make_graph(ctx, p, o->invariant ? 1 : o->batch, kinds[i], &g);
        if (status == CLOOB_OK) status = exec_measure(ctx, &g, p->dev, &m);
        graph_release(&g);
        CLOOB_TRY(status);
        *bytes += m.arena_bytes + m.input_bytes;
    }
    return CLOOB_OK;
}

static cloob_status get_exec(cloob_ctx *ctx, encoder *e, int kind, exec **out)
{
    graph g;
    cloob_status status = CLOOB_OK;
    if (!e->kept && !(e->kept = weight_cache_create())) return ctx_no_memory(ctx, 64, "an encoder");
    exec_bindings b = {
        .param = e->p->compute_view, .master = e->p->master_view, .frozen_weights = true, .kept = e->kept
    };
    if (!e->exec[kind]) {
        CLOOB_TRY(bind_tower(ctx, e, kind >= TOKENS));
        status = make_graph(ctx, e->p, e->o.batch, kind, &g);
        if (status == CLOOB_OK) status = exec_create(ctx, &g, e->p->dev, &b, &e->exec[kind]);
        graph_release(&g);
    }
    if (status == CLOOB_OK) exec_set_ctx(*out = e->exec[kind], ctx);
    return status;
}

/* The first run loads what libraries load and folds weights; the second is recorded. */
static cloob_status record(cloob_ctx *ctx, encoder *e, int kind)
{
    device *d = e->p->dev;
    CLOOB_TRY(d->record_begin(ctx, d));
    cloob_status status = exec_forward(e->exec[kind]);
    CLOOB_TRY(d->record_end(ctx, d, &e->recording[kind]));
    if (status == CLOOB_OK || !e->recording[kind]) return CLOOB_OK;
    d->forget(d, e->recording[kind]);
    e->recording[kind] = NULL;
    return CLOOB_OK;
}

static cloob_status forward(cloob_ctx *ctx, encoder *e, int kind)
{
    device *d = e->p->dev;
    if (d->record_begin && e->runs[kind] == 1) CLOOB_TRY(record(ctx, e, kind));
    if (e->runs[kind] < 2) e->runs[kind]++;
    return e->recording[kind] ? d->replay(ctx, d, e->recording[kind]) : exec_forward(e->exec[kind]);
}

static cloob_status take_host(cloob_ctx *ctx, encoder *e, size_t bytes)
{
    if (bytes <= e->host_bytes) return CLOOB_OK;
    void *more = realloc(e->host, bytes);
    if (!more) return ctx_no_memory(ctx, bytes, "a batch");
    e->host = more;
    e->host_bytes = bytes;
    return CLOOB_OK;
}

/* n rows, `stride` bytes apart, of which the input takes the beginning. */
static cloob_status put_rows(cloob_ctx *ctx, encoder *e, const tensor *in, const char *rows, size_t stride, int64_t n)
{
    device *d = e->p->dev;
    size_t row = tensor_bytes(in) / (size_t)in->dim[0];
    if (row < stride) {
        CLOOB_TRY(take_host(ctx, e, (size_t)n * row));
        for (int64_t i = 0; i < n; i++) memcpy((char *)e->host + (size_t)i * row, rows + (size_t)i * stride, row);
        rows = e->host;
    }
    CLOOB_TRY(d->copy(ctx, d, in->data, rows, (size_t)n * row)); /* rows are read before to_host returns */
    if (n < in->dim[0]) CLOOB_TRY(d->zero(ctx, d, (char *)in->data + (size_t)n * row, (size_t)(in->dim[0] - n) * row));
    return row < stride ? d->sync(ctx, d) : CLOOB_OK; /* the copy may read e->host, which the results overwrite */
}

static cloob_status get_rows(cloob_ctx *ctx, encoder *e, const tensor *result, int64_t n, float *out)
{
    device *d = e->p->dev;
    int64_t width = tensor_cols(result);
    CLOOB_TRY(take_host(ctx, e, (size_t)(n * width) * sizeof(float)));
    CLOOB_TRY(d->to_host(ctx, d, e->host, result->data, (size_t)(n * width) * dtype_size(result->dtype)));
    dtype_convert(CLOOB_F32, out, result->dtype, e->host, n * width);
    return CLOOB_OK;
}

/* At most one batch. */
static cloob_status encode_batch(cloob_ctx *ctx, encoder *e, int kind, const void *rows, size_t stride, int64_t n,
                                 encoder_output what, float *out)
{
    static const char *const inputs[] = { "images", "images", "tokens" }, *const results[] = { "output", "raw",
                                                                                               "features" };
    exec *x = NULL;
    CLOOB_TRY(get_exec(ctx, e, kind, &x));
    CLOOB_TRY(put_rows(ctx, e, exec_tensor(x, inputs[kind < TOKENS ? kind : TOKENS]), rows, stride, n));
    CLOOB_TRY(forward(ctx, e, kind));
    const tensor *result = exec_tensor(x, results[what]);
    return get_rows(ctx, e, result ? result : exec_tensor(x, "raw"), n, out); /* no projection: features are raw */
}

static cloob_status encode_images(cloob_ctx *ctx, encoder *e, int kind, const void *images, size_t stride, int64_t n,
                                  encoder_output what, float *out)
{
    int64_t B = e->o.batch, width = encoder_width(e, what, false);
    for (int64_t i = 0; i < n; i += B)
        CLOOB_TRY(encode_batch(ctx, e, kind, (const char *)images + (size_t)i * stride, stride, n - i < B ? n - i : B,
                               what, out + i * width));
    return CLOOB_OK;
}

cloob_status encoder_images(cloob_ctx *ctx, encoder *e, const uint8_t *images, int64_t n, encoder_output what,
                            float *out)
{
    int64_t S = e->p->config.image_size;
    return encode_images(ctx, e, BYTES, images, (size_t)(3 * S * S), n, what, out);
}

cloob_status encoder_float_images(cloob_ctx *ctx, encoder *e, const float *images, int64_t n, encoder_output what,
                                  float *out)
{
    int64_t S = e->p->config.image_size;
    return encode_images(ctx, e, FLOATS, images, (size_t)(3 * S * S) * sizeof(float), n, what, out);
}

/* ---- texts --------------------------------------------------------------------------------------- */

/* The shortest executor that the longest of n texts fits in; on other devices than the CPU all run at full length. */
static int text_kind(const encoder *e, const int32_t *tokens, int64_t n)
{
    int64_t T = e->p->config.context, most = 1;
    if (e->p->dev->backend != BACKEND_CPU) return TOKENS;
    for (int64_t i = 0; i < n; i++) {
        int64_t length = tower_text_length(&e->p->config, tokens + i * T, T);
        if (length > most) most = length;
    }
    int64_t steps = (most + STEP - 1) / STEP;
    return steps * STEP >= T || steps >= LENGTHS ? TOKENS : TOKENS + (int)steps;
}

cloob_status encoder_texts(cloob_ctx *ctx, encoder *e, const int32_t *tokens, int64_t n, encoder_output what,
                           float *out)
{
    int64_t T = e->p->config.context, vocab = e->p->config.vocab, B = e->o.batch, width = encoder_width(e, what, true);
    for (int64_t i = 0; i < n * T; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "text %lld: token %d is outside the vocabulary of %lld",
                            (long long)(i / T), tokens[i], (long long)vocab);
    for (int64_t i = 0; i < n; i += B) {
        int64_t rows = n - i < B ? n - i : B;
        int kind = text_kind(e, tokens + i * T, rows);
        CLOOB_TRY(encode_batch(ctx, e, kind, tokens + i * T, (size_t)T * sizeof *tokens, rows, what, out + i * width));
    }
    return CLOOB_OK;
}
