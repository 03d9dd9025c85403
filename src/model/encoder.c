/* Inference with one executor per kind of input. If the kernels accept any part of a batch, this executor serves all
 * batches. Otherwise there is one executor per kind, number of rows and, for texts, length, and batches are padded with
 * zeros. In invariant mode on a GPU all batches have the same number of rows, so that a row's result does not depend on
 * the other rows of its batch. */
#include "model/encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/rng.h"
#include "graph/exec.h"
#include "model/tower.h"
#include "tensor/cpu/gemm_packed.h"
#include "tensor/device.h"

/* Kinds of executors: images as bytes or floats, and texts by length: TOKENS is for the full context, TOKENS + i for
 * texts of at most i STEP tokens. */
enum { BYTES, FLOATS, TOKENS, STEP = 8, LENGTHS = 32, KINDS = TOKENS + LENGTHS };
/* Executor i of a kind has the batch size divided by 2^i rows, rounded up. */
enum { SIZES = 12 };

typedef struct slot {
    exec *x;
    void *recording; /* captured forward pass of a GPU, made in the second run; NULL: not captured (yet) */
    int runs;        /* number of runs, not counted beyond 2 */
} slot;

struct encoder {
    params *p;
    bool owns_params;
    weights w;     /* the parameters are views of these; empty if the caller owns the parameters */
    bool bound[2]; /* image tower, text tower: whether the parameters have been bound to w, which happens on first
                    * use */
    encoder_options o;
    slot slot[KINDS][SIZES];
    /* For invariant mode on a GPU, by kind: whether probe ran; and whether it found that a row's bytes depend on its
     * position in the batch, so that rows of this kind are encoded one at a time. */
    bool probed[KINDS], row_by_row[KINDS];
    int64_t rows_run;                /* rows computed, including padding rows */
    lanes *lanes;                    /* for images of a small model in invariant mode */
    bool use_lanes, use_lanes_known; /* cached result of lanes_apply */
    weight_cache *cache;             /* weights in the kernels' formats (packed, quantised), shared by the executors */
    op_call_fn *on_call;
    void *call_user;
    void *host; /* staging buffer: one batch of inputs or results in the device's format */
    size_t host_bytes;
};

static const char *const result_names[] = { "output", "raw", "features" }; /* indexed by cloob_output */

void encoder_options_init(encoder_options *o)
{
    *o = (encoder_options){ .compute = CLOOB_F32, .invariant = true, .batch = 32 };
}

cloob_status encoder_create_on(cloob_ctx *ctx, params *p, const encoder_options *o, encoder **out)
{
    if (o->int8 && p->dev->backend != BACKEND_CPU)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "precision int8 is not supported on %s; use device cpu or precision bf16", p->dev->name);
    if (o->fp8 && !p->dev->fp8)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "precision fp8 is not supported on %s (it needs a GPU of compute capability 9.0 or higher); "
                        "use precision %s",
                        p->dev->name, p->dev->backend == BACKEND_CPU ? "int8" : "bf16");
    encoder *e = calloc(1, sizeof *e);
    if (!e) return ctx_no_memory(ctx, sizeof *e, "an encoder");
    e->p = p;
    e->o = *o;
    if (e->o.batch < 1) e->o.batch = 1;
    *out = e;
    return CLOOB_OK;
}

/* In bf16 on a GPU, copies all weights now. Otherwise bind_tower reads a tower's weights on its first use. */
static cloob_status take_weights(cloob_ctx *ctx, encoder *e)
{
    if (e->p->compute == CLOOB_F32 || e->p->dev->backend != BACKEND_CUDA) return CLOOB_OK;
    e->bound[0] = e->bound[1] = true;
    cloob_status status = params_load(ctx, e->p, &e->w);
    weights_release(&e->w); /* not used any more */
    return status;
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

/* ---- how rows are batched ------------------------------------------------------------------------- */

/* Whether a tower's kernels accept any part of a batch and compute each row independently of the others: texts and
 * vision transformers on a CPU with a packed GEMM of the compute type. One executor then serves any number of rows. */
static bool any_rows(const params *p, bool text)
{
    gemm_kind kind = p->compute == CLOOB_F32 ? GEMM_F32 : GEMM_BF16;
    return p->dev->backend == BACKEND_CPU && gemm_is_fast(kind) && (text || p->config.family == MODEL_VIT);
}

/* Rows of every batch in invariant mode on a GPU. */
enum { GPU_ROWS = 32 };
static bool fixed_batch(const params *p, const encoder_options *o)
{
    return o->invariant && p->dev->backend == BACKEND_CUDA;
}

/* The number of images whose activations fit the caches of a CPU. Convolutional networks have large activations, and
 * reading the weights for every few images costs less than reading activations from memory. */
static int64_t rows_in_caches(const model_config *c)
{
    enum { PIXELS = 4 * 224 * 224 };
    int64_t rows = PIXELS / max64(1, c->image_size * c->image_size);
    return max64(1, rows);
}

/* The largest number of rows of an executor. */
static int64_t max_rows(const params *p, const encoder_options *o, bool text)
{
    if (fixed_batch(p, o)) return GPU_ROWS;
    if (any_rows(p, text)) return o->batch;
    if (o->invariant) return 1;
    bool few = p->dev->backend == BACKEND_CPU && !text && p->config.family != MODEL_VIT;
    return few ? min64(o->batch, rows_in_caches(&p->config)) : o->batch;
}

bool encoder_packs_texts(const encoder *e) { return any_rows(e->p, true) && model_config_text_ends(&e->p->config); }

static void drop_slot(device *d, slot *at)
{
    if (at->recording) d->forget(d, at->recording);
    exec_destroy(at->x);
    *at = (slot){ 0 };
}

static void drop_executors(encoder *e)
{
    for (int k = 0; k < KINDS * SIZES; k++) drop_slot(e->p->dev, &e->slot[k / SIZES][k % SIZES]);
    lanes_destroy(e->lanes);
    e->lanes = NULL;
    weight_cache_destroy(e->cache);
    e->cache = NULL;
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

int64_t encoder_batch(const encoder *e)
{
    int64_t images = max_rows(e->p, &e->o, false), texts = max_rows(e->p, &e->o, true);
    return images > texts ? images : texts;
}

int64_t encoder_rows_run(const encoder *e) { return e->rows_run; }

int64_t encoder_width(const encoder *e, cloob_output what, bool text)
{
    if (what != CLOOB_FEATURES) return e->p->config.embed;
    return text ? e->p->config.text_width : model_config_image_features(&e->p->config);
}

static cloob_status make_graph(cloob_ctx *ctx, const params *p, bool fp8, int64_t batch, int kind, graph *g)
{
    tower_options o = { .batch = batch,
                        .float_images = kind == FLOATS,
                        .features = true,
                        .gpu_input = p->dev->backend == BACKEND_CUDA,
                        .fp8 = fp8 ? OP_FP8_FASTER : OP_FP8_NEVER,
                        .tokens = kind > TOKENS ? (kind - TOKENS) * STEP : 0 };
    if (any_rows(p, true) && model_config_text_ends(&p->config)) o.rows = batch * p->config.context;
    return kind >= TOKENS ? tower_text(ctx, p, &o, g) : tower_image(ctx, p, &o, g);
}

/* Lengths of text executors on a GPU, besides the context. There are few, because each has to choose its kernels and
 * capture its forward pass. */
enum { GPU_LENGTHS = 2 };
static const int gpu_lengths[GPU_LENGTHS] = { 16, 32 };

cloob_status encoder_measure(cloob_ctx *ctx, const params *p, const encoder_options *o, size_t *bytes)
{
    const int kinds[] = { BYTES, TOKENS, TOKENS + gpu_lengths[0] / STEP, TOKENS + gpu_lengths[1] / STEP };
    *bytes = 0;
    for (int i = 0; i < (p->dev->backend == BACKEND_CUDA ? 4 : 2); i++) {
        if (kinds[i] > TOKENS && (kinds[i] - TOKENS) * STEP >= p->config.context) continue;
        graph g;
        exec_memory m = { 0 };
        cloob_status status = make_graph(ctx, p, o->fp8, max_rows(p, o, kinds[i] >= TOKENS), kinds[i], &g);
        if (status == CLOOB_OK) status = exec_measure(ctx, &g, p->dev, &m);
        graph_release(&g);
        CLOOB_TRY(status);
        *bytes += m.arena_bytes + m.input_bytes;
    }
    return CLOOB_OK;
}

static int64_t rows_of(const encoder *e, int kind, int size)
{
    if (e->row_by_row[kind]) return 1;
    return (max_rows(e->p, &e->o, kind >= TOKENS) + ((int64_t)1 << size) - 1) >> size;
}

/* Index of the smallest executor that holds n rows. On a GPU, whose memory is planned, the full-batch executor is used
 * once it exists. */
static int size_for(const encoder *e, int kind, int64_t n)
{
    int size = 0;
    if (fixed_batch(e->p, &e->o)) return 0;
    if (any_rows(e->p, kind >= TOKENS) || (e->p->dev->backend == BACKEND_CUDA && e->slot[kind][0].x)) return 0;
    while (size + 1 < SIZES && rows_of(e, kind, size + 1) >= n && rows_of(e, kind, size + 1) < rows_of(e, kind, size))
        size++;
    return size;
}

/* Called after a kernel packed a weight: releases the memory of the unpacked weight. */
static void drop_packed(void *user, const void *weight, size_t bytes)
{
    const encoder *e = user;
    tensor t = { .dtype = CLOOB_U8, .ndim = 1, .dim = { (int64_t)bytes }, .data = (void *)(uintptr_t)weight };
    bool read_again = !any_rows(e->p, false) || !any_rows(e->p, true); /* executors of few rows use the unpacked
                                                                        * weight */
    if (read_again) weights_drop_pages(&e->w, &t);
    else weights_forget(&e->w, &t);
    /* a weight converted on loading is only read in its packed form from here on */
    if (e->o.int8 && e->owns_params)
        host_memory_drop(weight, bytes, e->p->master, (size_t)e->p->total * sizeof *e->p->master);
    if (e->p->shadow && e->owns_params)
        host_memory_drop(weight, bytes, e->p->shadow, (size_t)e->p->learned * sizeof *e->p->shadow);
}

static cloob_status take_cache(cloob_ctx *ctx, encoder *e)
{
    if (e->cache) return CLOOB_OK;
    if (!(e->cache = weight_cache_create())) return ctx_no_memory(ctx, 64, "an encoder");
    weight_cache_on_packed(e->cache, drop_packed, e);
    return CLOOB_OK;
}

static exec_bindings bindings(const encoder *e, bool text)
{
    return (exec_bindings){ .param = e->p->compute_view,
                            .master = e->p->master_view,
                            .frozen_weights = true,
                            .cache = e->cache,
                            .int8 = e->o.int8,
                            .int8_fast = !text, /* text embeddings lose more accuracy */
                            .invariant = any_rows(e->p, text) };
}

void encoder_on_call(encoder *e, op_call_fn *fn, void *user)
{
    e->on_call = fn;
    e->call_user = user;
}

static cloob_status get_slot(cloob_ctx *ctx, encoder *e, int kind, int64_t n, slot **out)
{
    graph g;
    int size = size_for(e, kind, n);
    slot *at = *out = &e->slot[kind][size];
    cloob_status status = CLOOB_OK;
    CLOOB_TRY(take_cache(ctx, e));
    exec_bindings b = bindings(e, kind >= TOKENS);
    if (!at->x) {
        CLOOB_TRY(bind_tower(ctx, e, kind >= TOKENS));
        status = make_graph(ctx, e->p, e->o.fp8, rows_of(e, kind, size), kind, &g);
        if (status == CLOOB_OK) status = exec_create(ctx, &g, e->p->dev, &b, &at->x);
        graph_release(&g);
    }
    if (status == CLOOB_OK) exec_set_ctx(at->x, ctx), exec_on_call(at->x, e->on_call, e->call_user);
    e->rows_run += any_rows(e->p, kind >= TOKENS) ? n : rows_of(e, kind, size);
    return status;
}

/* Captures the second forward pass. The first one loads libraries and folds weights, which cannot be captured. */
static cloob_status record(cloob_ctx *ctx, device *d, slot *at)
{
    CLOOB_TRY(d->record_begin(ctx, d));
    cloob_status status = exec_forward(at->x);
    CLOOB_TRY(d->record_end(ctx, d, &at->recording));
    if (status == CLOOB_OK || !at->recording) return CLOOB_OK;
    d->forget(d, at->recording);
    at->recording = NULL;
    return CLOOB_OK;
}

static cloob_status forward(cloob_ctx *ctx, const encoder *e, slot *at)
{
    device *d = e->p->dev;
    if (e->on_call) return exec_forward(at->x);
    if (d->record_begin && at->runs == 1) CLOOB_TRY(record(ctx, d, at));
    if (at->runs < 2) at->runs++;
    return at->recording ? d->replay(ctx, d, at->recording) : exec_forward(at->x);
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

/* Copies n rows, `stride` bytes apart, to the input; the start of each row is used if the input's rows are shorter.
 * Rows of the input beyond n are zeroed, unless the executor ignores them (`part`). */
static cloob_status put_rows(cloob_ctx *ctx, encoder *e, const tensor *in, const char *rows, size_t stride, int64_t n,
                             bool part)
{
    device *d = e->p->dev;
    size_t row = tensor_bytes(in) / (size_t)in->dim[0];
    if (row < stride) {
        CLOOB_TRY(take_host(ctx, e, (size_t)n * row));
        for (int64_t i = 0; i < n; i++) memcpy((char *)e->host + (size_t)i * row, rows + (size_t)i * stride, row);
        rows = e->host;
    }
    CLOOB_TRY(d->copy(ctx, d, in->data, rows, (size_t)n * row)); /* asynchronous; `rows` stays valid until to_host
                                                                  * returns */
    if (n < in->dim[0] && !part)
        CLOOB_TRY(d->zero(ctx, d, (char *)in->data + (size_t)n * row, (size_t)(in->dim[0] - n) * row));
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

/* Number of patches in n records (io/image/image_view.h). */
static int64_t count_patches(const model_config *c, const uint8_t *records, int64_t n)
{
    int64_t bytes = 3 * c->image_size * c->image_size, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t grid[2];
        op_record_grid(records + i * bytes, bytes, c->view.patches, grid);
        sum += (int64_t)grid[0] * grid[1];
    }
    return sum;
}

/* Tells the executor how many of its sequences and packed rows the n inputs occupy. */
static void set_part(const encoder *e, exec *x, int kind, const tensor *in, const void *rows, int64_t n)
{
    op_live sequences = { in->dim[0], n }, packed = { 0, 0 };
    int64_t T = e->p->config.context;
    if (kind >= TOKENS && encoder_packs_texts(e)) {
        packed.of = in->dim[0] * T;
        for (int64_t i = 0; i < n; i++)
            packed.live += tower_text_length(&e->p->config, (const int32_t *)rows + i * T, T);
    }
    if (kind < TOKENS && e->p->config.position_side)
        packed = (op_live){ in->dim[0] * e->p->config.view.patches, count_patches(&e->p->config, rows, n) };
    exec_set_part(x, sequences, packed);
}

/* Encodes at most one batch. */
static cloob_status encode_batch(cloob_ctx *ctx, encoder *e, int kind, const void *rows, size_t stride, int64_t n,
                                 cloob_output what, float *out)
{
    static const char *const inputs[] = { "images", "images", "tokens" };
    slot *at;
    bool part = any_rows(e->p, kind >= TOKENS);
    CLOOB_TRY(get_slot(ctx, e, kind, n, &at));
    const tensor *in = exec_tensor(at->x, inputs[kind < TOKENS ? kind : TOKENS]);
    CLOOB_TRY(put_rows(ctx, e, in, rows, stride, n, part));
    if (part) set_part(e, at->x, kind, in, rows, n);
    CLOOB_TRY(forward(ctx, e, at));
    const tensor *result = exec_tensor(at->x, result_names[what]);
    /* without a projection, the features are "raw" */
    return get_rows(ctx, e, result ? result : exec_tensor(at->x, "raw"), n, out);
}

/* ---- whether a row's result depends on its position in a batch ------------------------------------- */

/* Fills rows with random bytes, floats in [-1, 1), or token ids. */
static void fill_rows(const encoder *e, int kind, void *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (kind == BYTES) ((uint8_t *)rows)[i] = (uint8_t)rng_below(1, (uint64_t)i, 256);
        else if (kind == FLOATS) ((float *)rows)[i] = (float)(2 * rng_uniform(1, (uint64_t)i) - 1);
        else ((int32_t *)rows)[i] = (int32_t)rng_below(1, (uint64_t)i, (uint64_t)e->p->config.vocab);
    }
}

/* Reverses the order of the rows. */
static void reverse_rows(char *rows, size_t bytes, int64_t n)
{
    for (int64_t i = 0; i < n / 2; i++)
        for (size_t k = 0; k < bytes; k++) {
            char *a = rows + (size_t)i * bytes + k, *b = rows + (size_t)(n - 1 - i) * bytes + k, c = *a;
            *a = *b, *b = c;
        }
}

/* Checks that a row's result does not depend on its position in a batch: libraries do not guarantee that a GEMM sums
 * all rows in the same order, although they usually do. Embeds a random batch in both orders; if any byte differs, rows
 * of this kind are encoded one at a time. */
static cloob_status probe(cloob_ctx *ctx, encoder *e, int kind, size_t stride)
{
    enum { N = GPU_ROWS };
    size_t elements = kind == BYTES ? stride : stride / 4, width = (size_t)e->p->config.embed;
    float *out[2] = { malloc(N * width * sizeof(float)), malloc(N * width * sizeof(float)) };
    char *rows = malloc(N * stride);
    cloob_status status = CLOOB_OK;
    if (!rows || !out[0] || !out[1]) status = ctx_no_memory(ctx, N * stride, "a batch");
    if (status == CLOOB_OK) fill_rows(e, kind, rows, (int64_t)(N * elements));
    for (int i = 0; i < 2 && status == CLOOB_OK; i++) {
        status = encode_batch(ctx, e, kind, rows, stride, N, CLOOB_RAW, out[i]);
        reverse_rows(rows, stride, N);
    }
    if (status == CLOOB_OK) {
        reverse_rows((char *)out[1], width * sizeof(float), N);
        e->probed[kind] = true;
        e->row_by_row[kind] = memcmp(out[0], out[1], N * width * sizeof(float)) != 0;
        if (e->row_by_row[kind]) drop_slot(e->p->dev, &e->slot[kind][0]);
    }
    free(rows), free(out[0]), free(out[1]);
    return status;
}

/* The largest number of rows of this kind in one batch. */
static cloob_status batch_of(cloob_ctx *ctx, encoder *e, int kind, size_t stride, int64_t *rows)
{
    if (fixed_batch(e->p, &e->o) && !e->probed[kind]) CLOOB_TRY(probe(ctx, e, kind, stride));
    *rows = rows_of(e, kind, 0);
    return CLOOB_OK;
}

/* Encodes images of a small model, each by one thread. */
static cloob_status encode_in_lanes(cloob_ctx *ctx, encoder *e, const lane_rows *rows)
{
    CLOOB_TRY(take_cache(ctx, e));
    CLOOB_TRY(bind_tower(ctx, e, false));
    if (!e->lanes) CLOOB_TRY(lanes_create(ctx, e->p, e->cache, &e->lanes));
    e->rows_run += rows->n;
    return lanes_run(ctx, e->lanes, rows);
}

/* Index of the first row that contains NaN or infinity; n if there is none. */
static int64_t first_not_finite(const float *rows, int64_t n, int64_t each)
{
    for (int64_t i = 0; i < n; i++) {
        float zero = 0; /* x * 0 is 0 for finite x and NaN otherwise, so one sum detects both */
#pragma omp simd reduction(+ : zero)
        for (int64_t k = i * each; k < (i + 1) * each; k++) zero += rows[k] * 0.0f;
        if (zero != 0.0f || isnan(zero)) return i;
    }
    return n;
}

/* Fails if an embedding is not finite: it must not be stored or ranked. */
static cloob_status check_result(cloob_ctx *ctx, const float *rows, int64_t n, int64_t width, const char *input)
{
    int64_t i = first_not_finite(rows, n, width);
    if (i == n) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_NUMERIC,
                    "the embedding of %s %lld is not finite: the weights are damaged or their training diverged; use "
                    "an earlier checkpoint",
                    input, (long long)i);
}

static cloob_status encode_images(cloob_ctx *ctx, encoder *e, int kind, const void *images, size_t stride, int64_t n,
                                  cloob_output what, float *out)
{
    int64_t B, width = encoder_width(e, what, false);
    if (!e->use_lanes_known && e->o.invariant && !(e->o.int8 && e->p->config.family == MODEL_VIT)) {
        CLOOB_TRY(lanes_apply(ctx, e->p, &e->use_lanes));
        e->use_lanes_known = true;
    }
    if (e->use_lanes && n > 0) {
        CLOOB_TRY(
            encode_in_lanes(ctx, e, &(lane_rows){ images, stride, n, kind == FLOATS, result_names[what], out, width }));
        return check_result(ctx, out, n, width, "image");
    }
    CLOOB_TRY(batch_of(ctx, e, kind, stride, &B));
    for (int64_t i = 0; i < n; i += B)
        CLOOB_TRY(encode_batch(ctx, e, kind, (const char *)images + (size_t)i * stride, stride, n - i < B ? n - i : B,
                               what, out + i * width));
    return check_result(ctx, out, n, width, "image");
}

cloob_status encoder_images(cloob_ctx *ctx, encoder *e, const uint8_t *images, int64_t n, cloob_output what, float *out)
{
    int64_t S = e->p->config.image_size;
    return encode_images(ctx, e, BYTES, images, (size_t)(3 * S * S), n, what, out);
}

cloob_status encoder_float_images(cloob_ctx *ctx, encoder *e, const float *images, int64_t n, cloob_output what,
                                  float *out)
{
    int64_t S = e->p->config.image_size;
    int64_t bad = first_not_finite(images, n, 3 * S * S); /* checked here because relu and normalisation may turn NaN
                                                           * into finite numbers */
    if (bad < n)
        return ctx_fail(ctx, CLOOB_ERR_NUMERIC,
                        "image %lld contains NaN or infinity; check how the pixels were normalised", (long long)bad);
    return encode_images(ctx, e, FLOATS, images, (size_t)(3 * S * S) * sizeof(float), n, what, out);
}

/* ---- texts --------------------------------------------------------------------------------------- */

int encoder_text_steps(const model_config *c, const int32_t *tokens)
{
    return (int)((tower_text_length(c, tokens, c->context) + STEP - 1) / STEP);
}

/* The executor kind for texts of at most `longest` tokens. The reference backend always runs the full context. */
static int kind_for(const encoder *e, int64_t longest)
{
    int64_t T = e->p->config.context, steps = (longest + STEP - 1) / STEP;
    if (e->p->dev->backend == BACKEND_REF || any_rows(e->p, true)) return TOKENS;
    if (e->p->dev->backend == BACKEND_CUDA) {
        int i = 0;
        while (i < GPU_LENGTHS && gpu_lengths[i] < longest) i++;
        steps = i < GPU_LENGTHS ? gpu_lengths[i] / STEP : LENGTHS;
    }
    return steps * STEP >= T || steps >= LENGTHS ? TOKENS : TOKENS + (int)steps;
}

/* The kind of the shortest executor that holds the longest of n texts. */
static int text_kind(const encoder *e, const int32_t *tokens, int64_t n)
{
    int64_t T = e->p->config.context, longest = 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t length = tower_text_length(&e->p->config, tokens + i * T, T);
        if (length > longest) longest = length;
    }
    return kind_for(e, longest);
}

/* The number of rows and the kind of the next batch of texts. With a fixed batch size the kind of a text
 * depends on nothing else, so a batch only takes texts of one kind. */
static cloob_status next_texts(cloob_ctx *ctx, encoder *e, const int32_t *tokens, int64_t n, int *kind, int64_t *rows)
{
    int64_t T = e->p->config.context, B = max_rows(e->p, &e->o, true);
    *rows = n < B ? n : B;
    *kind = text_kind(e, tokens, fixed_batch(e->p, &e->o) ? 1 : *rows);
    if (!fixed_batch(e->p, &e->o)) return CLOOB_OK;
    CLOOB_TRY(batch_of(ctx, e, *kind, (size_t)T * sizeof *tokens, &B));
    for (*rows = 1; *rows < B && *rows < n && text_kind(e, tokens + *rows * T, 1) == *kind;) ++*rows;
    return CLOOB_OK;
}

static cloob_status check_tokens(cloob_ctx *ctx, const model_config *c, const int32_t *tokens, int64_t n)
{
    for (int64_t i = 0; i < n * c->context; i++)
        if (tokens[i] < 0 || tokens[i] >= c->vocab)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "text %lld: token %d is outside the vocabulary of %lld; use the model's tokenizer",
                            (long long)(i / c->context), tokens[i], (long long)c->vocab);
    return CLOOB_OK;
}

cloob_status encoder_texts(cloob_ctx *ctx, encoder *e, const int32_t *tokens, int64_t n, cloob_output what, float *out)
{
    int64_t T = e->p->config.context, width = encoder_width(e, what, true);
    CLOOB_TRY(check_tokens(ctx, &e->p->config, tokens, n));
    for (int64_t i = 0, rows; i < n; i += rows) {
        int kind;
        CLOOB_TRY(next_texts(ctx, e, tokens + i * T, n - i, &kind, &rows));
        CLOOB_TRY(encode_batch(ctx, e, kind, tokens + i * T, (size_t)T * sizeof *tokens, rows, what, out + i * width));
    }
    return check_result(ctx, out, n, width, "text");
}

/* An executor for the embedding of every token of one text: the text is repeated `length` times and row i is pooled at
 * token i. Packed, copy i ends at its token, so that no unused token is computed. Weights are bound as in
 * encoder_texts, so the packed weights are shared. */
static cloob_status make_token_rows(cloob_ctx *ctx, encoder *e, int64_t length, exec **x)
{
    graph g;
    bool packs = encoder_packs_texts(e);
    tower_options o = { .batch = length,
                        .index_given = true,
                        .tokens = packs ? 0 : length,
                        .rows = packs ? length * (length + 1) / 2 : 0 };
    CLOOB_TRY(take_cache(ctx, e));
    CLOOB_TRY(bind_tower(ctx, e, true));
    exec_bindings b = bindings(e, true);
    cloob_status status = tower_text(ctx, e->p, &o, &g);
    if (status == CLOOB_OK) status = exec_create(ctx, &g, e->p->dev, &b, x);
    graph_release(&g);
    return status;
}

static cloob_status run_token_rows(cloob_ctx *ctx, encoder *e, exec *x, const int32_t *tokens, int64_t length,
                                   float *out)
{
    int64_t T = exec_tensor(x, "tokens")->dim[1];
    int32_t *in = malloc((size_t)(length * (T + 1)) * sizeof *in), *index = in ? in + length * T : NULL;
    if (!in) return ctx_no_memory(ctx, (size_t)(length * (T + 1)) * sizeof *in, "tokens");
    for (int64_t i = 0; i < length; i++) {
        memcpy(in + i * T, tokens, (size_t)T * sizeof *in);
        index[i] = (int32_t)i;
    }
    exec_set_ctx(x, ctx);
    cloob_status status =
        put_rows(ctx, e, exec_tensor(x, "tokens"), (const char *)in, (size_t)T * sizeof *in, length, false);
    if (status == CLOOB_OK)
        status = put_rows(ctx, e, exec_tensor(x, "index"), (const char *)index, sizeof *index, length, false);
    if (status == CLOOB_OK) status = exec_forward(x);
    if (status == CLOOB_OK) status = get_rows(ctx, e, exec_tensor(x, "raw"), length, out);
    free(in);
    return status;
}

cloob_status encoder_text_tokens(cloob_ctx *ctx, encoder *e, const int32_t *tokens, float *out)
{
    const model_config *c = &e->p->config;
    int64_t length = tower_text_length(c, tokens, c->context);
    exec *x = NULL;
    if (c->bert.positions)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "embeddings of single tokens are not supported for BERT text towers");
    CLOOB_TRY(check_tokens(ctx, c, tokens, 1));
    cloob_status status = make_token_rows(ctx, e, length, &x);
    if (status == CLOOB_OK) status = run_token_rows(ctx, e, x, tokens, length, out);
    exec_destroy(x);
    return status;
}
