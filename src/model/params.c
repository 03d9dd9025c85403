/* Memory of parameters, and conversion between the file and memory layouts of convolution weights. */
#include "model/params.h"

#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "core/text.h"
#include "tensor/bf16_copy.h"
#include "tensor/cpu/bf16.h"

enum { START = 64 };

/* ---- the table ----------------------------------------------------------------------------------- */

/* Whether weight decay applies: to matrices and convolutions, and to the class embedding, but not to other vectors
 * (gains and biases). */
static bool decays(const char *name, int ndim) { return ndim > 1 || text_ends_with(name, "class_embedding"); }

static bool is_matrix(const char *name, int ndim) { return ndim > 1 && !strstr(name, "embedding"); }

/* Whether this is the bias of a transformer's GEMM (not of a layer norm). */
static bool is_gemm_bias(const char *name, int ndim)
{
    return ndim == 1 && strstr(name, ".resblocks.") && !strstr(name, ".ln_") && text_ends_with(name, "bias") &&
           !text_ends_with(name, "qv_bias"); /* qv_bias is added by a separate op */
}

bool params_locks(const params_training *t, const model_config *c, const char *name)
{
    int count, group = model_group(c, name, &count);
    bool image = model_is_image(name);
    if (!(image ? t->lock_image : t->lock_text)) return false;
    return group < count - (image ? t->unlocked_image : t->unlocked_text);
}

bool params_trains(const params *p, bool text)
{
    for (int i = 0; i < p->count; i++)
        if (!p->row[i].frozen && !p->row[i].buffer && model_is_image(p->row[i].name) != text) return true;
    return false;
}

static bool is_frozen(const params *p, const char *name)
{
    lora_part part = lora_part_of(name);
    if (part != LORA_NONE) return part == LORA_SCALES;
    return p->training.lora > 0 || params_locks(&p->training, &p->config, name);
}

static void fill_row(const params *owner, param *p, const st_entry *e)
{
    bool buffer = text_ends_with(e->name, "running_mean") || text_ends_with(e->name, "running_var");
    *p = (param){ .name = e->name,
                  .file = e->t,
                  .count = tensor_count(&e->t),
                  .buffer = buffer,
                  .frozen = is_frozen(owner, e->name),
                  .adapter = -1,
                  .decay = !buffer && decays(e->name, e->t.ndim),
                  .matrix = is_matrix(e->name, e->t.ndim),
                  .gemm_bias = is_gemm_bias(e->name, e->t.ndim) };
}

static void assign_offsets(params *p)
{
    enum { TRAINED, FROZEN, BUFFERS };
    int64_t at = 0, *end[] = { &p->trainable, &p->learned, &p->total };
    for (int pass = TRAINED; pass <= BUFFERS; pass++) {
        for (int i = 0; i < p->count; i++) {
            const param *r = &p->row[i];
            if ((r->buffer ? BUFFERS : r->frozen ? FROZEN : TRAINED) != pass) continue;
            p->row[i].offset = at;
            at += (r->count + START - 1) / START * START;
        }
        *end[pass] = at;
    }
}

static tensor engine_shape(const param *r)
{
    const int64_t *d = r->file.dim;
    if (r->file.ndim == 4) return TENSOR(CLOOB_F32, NULL, d[0], d[2], d[3], d[1]);
    return r->file;
}

static void make_views(params *p)
{
    for (int i = 0; i < p->count; i++) {
        const param *r = &p->row[i];
        tensor t = engine_shape(r);
        bool half = p->compute == CLOOB_BF16 && (r->matrix || (r->gemm_bias && p->dev->backend == BACKEND_CUDA));
        p->master_view[i] = p->grad_view[i] = p->compute_view[i] = t;
        if (half) p->compute_view[i].dtype = CLOOB_BF16;
        if (!p->master) continue;
        p->master_view[i].data = p->master + r->offset;
        p->grad_view[i].data = p->grad && !r->buffer && !r->frozen ? p->grad + r->offset : NULL;
        p->compute_view[i].data = half ? (void *)(p->shadow + r->offset) : p->master + r->offset;
    }
}

/* Sets `adapter` of every adapted row; adapter pairs are stored in the order of these rows. */
static void find_adapters(params *p, int64_t first)
{
    int at = (int)first;
    for (int i = 0; i < first && p->training.lora > 0; i++) {
        const st_entry e = { p->row[i].name, p->row[i].file };
        if (!lora_adapts(&p->training, &p->config, &e)) continue;
        p->row[i].adapter = at;
        at += 2;
    }
}

static cloob_status make_table(cloob_ctx *ctx, params *p)
{
    st_entry *rows;
    int64_t count, own;
    CLOOB_TRY(model_shapes(ctx, &p->names, &p->config, &rows, &count));
    own = count;
    CLOOB_TRY(lora_append(ctx, &p->names, &p->config, &p->training, &rows, &count));
    p->count = (int)count;
    p->row = arena_push(&p->names, (size_t)count * sizeof *p->row);
    p->master_view = arena_push(&p->names, (size_t)count * 3 * sizeof(tensor));
    if (!p->row || !p->master_view) return ctx_no_memory(ctx, (size_t)count * sizeof *p->row, "the parameter table");
    p->grad_view = p->master_view + count;
    p->compute_view = p->grad_view + count;
    for (int i = 0; i < p->count; i++) fill_row(p, &p->row[i], &rows[i]);
    find_adapters(p, own);
    assign_offsets(p);
    return CLOOB_OK;
}

static cloob_status take_memory(cloob_ctx *ctx, params *p, params_use use)
{
    device *d = p->dev;
    if (use != PARAMS_TABLE)
        CLOOB_TRY(d->alloc(ctx, d, (size_t)p->total * sizeof(float), "parameters", (void **)&p->master));
    if (use == PARAMS_TRAIN)
        CLOOB_TRY(d->alloc(ctx, d, (size_t)p->trainable * sizeof(float), "gradients", (void **)&p->grad));
    if (p->compute == CLOOB_BF16 && use != PARAMS_TABLE)
        CLOOB_TRY(d->alloc(ctx, d, (size_t)p->learned * sizeof(uint16_t), "bf16 parameters", (void **)&p->shadow));
    make_views(p);
    return CLOOB_OK;
}

cloob_status params_create(cloob_ctx *ctx, const model_config *c, device *dev, cloob_dtype compute, params_use use,
                           params **out)
{
    return params_create_training(ctx, c, dev, compute, use, NULL, out);
}

cloob_status params_create_training(cloob_ctx *ctx, const model_config *c, device *dev, cloob_dtype compute,
                                    params_use use, const params_training *t, params **out)
{
    params *p = calloc(1, sizeof *p);
    if (!p) return ctx_no_memory(ctx, sizeof *p, "parameters");
    p->config = *c;
    if (t) p->training = *t;
    p->dev = dev;
    p->compute = compute;
    cloob_status status = make_table(ctx, p);
    if (status == CLOOB_OK) status = take_memory(ctx, p, use);
    if (status != CLOOB_OK) {
        params_destroy(p);
        return status;
    }
    *out = p;
    return CLOOB_OK;
}

void params_destroy(params *p)
{
    if (!p) return;
    if (p->master) p->dev->free(p->dev, p->master);
    if (p->grad) p->dev->free(p->dev, p->grad);
    if (p->shadow) p->dev->free(p->dev, p->shadow);
    arena_release(&p->names);
    free(p);
}

int params_find(const params *p, const char *name)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->row[i].name, name) == 0) return i;
    return -1;
}

/* ---- copying values in and out --------------------------------------------------------------------- */

typedef struct relayout_job {
    const float *from;
    float *to;
    int64_t C, K;
    bool to_engine;
} relayout_job;

static void relayout_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const relayout_job *t = arg;
    (void)thread;
    for (int64_t o = begin; o < end; o++)
        for (int64_t k = 0; k < t->K; k++)
            for (int64_t c = 0; c < t->C; c++) {
                int64_t file = (o * t->C + c) * t->K + k, engine = (o * t->K + k) * t->C + c;
                if (t->to_engine) t->to[engine] = t->from[file];
                else t->to[file] = t->from[engine];
            }
}

/* Whether elements have the same order in files and in memory. */
static bool same_order(const param *r)
{
    return r->file.ndim != 4 || r->file.dim[2] * r->file.dim[3] == 1 || r->file.dim[1] == 1;
}

/* Converts (O, C, k, k) of files to (O, k, k, C) of memory, or back. */
static void relayout(cloob_ctx *ctx, const param *r, const float *from, float *to, bool to_engine)
{
    if (same_order(r)) {
        memcpy(to, from, (size_t)r->count * sizeof *to);
        return;
    }
    relayout_job t = { from, to, r->file.dim[1], r->file.dim[2] * r->file.dim[3], to_engine };
    pool_for(ctx, r->file.dim[0], 1 + 65536 / (t.C * t.K), relayout_range, &t);
}

cloob_status params_get(cloob_ctx *ctx, const params *p, int row, bool gradient, float *out)
{
    const param *r = &p->row[row];
    float *host = malloc((size_t)r->count * sizeof *host);
    if (!host) return ctx_no_memory(ctx, (size_t)r->count * sizeof *host, r->name);
    cloob_status status = p->dev->to_host(ctx, p->dev, host, gradient ? p->grad + r->offset : p->master_view[row].data,
                                          (size_t)r->count * sizeof *host);
    if (status == CLOOB_OK) relayout(ctx, r, host, out, false);
    free(host);
    return status;
}

/* Converts *from to the memory order. If the order is the same (all but convolutions), *from is unchanged and *copy
 * is NULL; else *copy is a new copy, which the caller frees. */
static cloob_status engine_order(cloob_ctx *ctx, const param *r, const float **from, float **copy)
{
    *copy = NULL;
    if (same_order(r)) return CLOOB_OK;
    *copy = malloc((size_t)r->count * sizeof **copy);
    if (!*copy) return ctx_no_memory(ctx, (size_t)r->count * sizeof **copy, r->name);
    relayout(ctx, r, *from, *copy, true);
    *from = *copy;
    return CLOOB_OK;
}

cloob_status params_set(cloob_ctx *ctx, params *p, int row, const float *from)
{
    const param *r = &p->row[row];
    float *copy;
    CLOOB_TRY(engine_order(ctx, r, &from, &copy));
    cloob_status status = p->dev->to_device(ctx, p->dev, p->master + r->offset, from, (size_t)r->count * sizeof *from);
    if (status == CLOOB_OK)
        status = p->dev->sync(ctx, p->dev); /* the copy is asynchronous and may read host memory
                                                                 * after the call returns */
    free(copy);
    return status;
}

static cloob_status find_row(cloob_ctx *ctx, const params *p, const weights *w, int row, const tensor **out)
{
    *out = weights_find(w, p->row[row].name);
    if (*out && tensor_count(*out) == p->row[row].count) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: missing from the weights or of another size", p->row[row].name);
}

typedef cloob_status set_row(cloob_ctx *ctx, params *p, int row, const float *from);

/* Rounds a matrix into its bf16 copy on the host, without an F32 copy. */
static cloob_status set_bf16(cloob_ctx *ctx, params *p, int row, const float *from)
{
    const param *r = &p->row[row];
    float *copy;
    CLOOB_TRY(engine_order(ctx, r, &from, &copy));
    bf16_round(p->shadow + r->offset, from, r->count);
    free(copy);
    return CLOOB_OK;
}

static cloob_status load_row(cloob_ctx *ctx, params *p, int row, const tensor *t, set_row *set)
{
    const param *r = &p->row[row];
    float *converted = NULL;
    if (t->dtype == CLOOB_F32) return set(ctx, p, row, t->data);
    converted = malloc((size_t)r->count * sizeof *converted);
    if (!converted) return ctx_no_memory(ctx, (size_t)r->count * sizeof *converted, r->name);
    cloob_status status =
        dtype_is_float(t->dtype) && dtype_convert(CLOOB_F32, converted, t->dtype, t->data, r->count)
            ? set(ctx, p, row, converted)
            : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: element type %s is not supported", r->name, dtype_name(t->dtype));
    free(converted);
    return status;
}

cloob_status params_load(cloob_ctx *ctx, params *p, const weights *w)
{
    for (int i = 0; i < p->count; i++) {
        const tensor *t;
        if (lora_part_of(p->row[i].name) != LORA_NONE) continue;
        CLOOB_TRY(find_row(ctx, p, w, i, &t));
        CLOOB_TRY(load_row(ctx, p, i, t, params_set));
    }
    return params_refresh(ctx, p);
}

static bool can_view(const params *p, int row, const tensor *t)
{
    return p->dev->backend != BACKEND_CUDA && t->dtype == p->compute_view[row].dtype && same_order(&p->row[row]) &&
           (uintptr_t)t->data % dtype_size(t->dtype) == 0;
}

cloob_status params_bind(cloob_ctx *ctx, params *p, const weights *w, bool text)
{
    for (int i = 0; i < p->count; i++) {
        const tensor *t;
        bool half = p->compute_view[i].dtype == CLOOB_BF16;
        if ((strncmp(p->row[i].name, "visual.", 7) != 0) != text) continue;
        CLOOB_TRY(find_row(ctx, p, w, i, &t));
        if (half) p->master_view[i].data = NULL;
        if (can_view(p, i, t)) {
            p->compute_view[i].data = t->data;
            if (!half) p->master_view[i].data = t->data;
            continue;
        }
        CLOOB_TRY(load_row(ctx, p, i, t, half ? set_bf16 : params_set));
        weights_forget(w, t); /* only the converted copy is read from here on */
    }
    return CLOOB_OK;
}

cloob_status params_store(cloob_ctx *ctx, const params *p, weights *w)
{
    w->config = p->config;
    for (int i = 0; i < p->count; i++) {
        tensor t = p->row[i].file;
        if (lora_part_of(p->row[i].name) != LORA_NONE) continue;
        t.data = arena_push(&w->a, tensor_bytes(&t));
        if (!t.data) return ctx_no_memory(ctx, tensor_bytes(&t), p->row[i].name);
        CLOOB_TRY(params_get(ctx, p, i, false, t.data));
        CLOOB_TRY(lora_merge(ctx, p, i, t.data));
        CLOOB_TRY(weights_add(ctx, w, p->row[i].name, &t));
    }
    return CLOOB_OK;
}

cloob_status params_refresh(cloob_ctx *ctx, params *p)
{
    if (!p->shadow) return CLOOB_OK;
    CLOOB_TRY(bf16_copy(ctx, p->dev, p->shadow, p->master, p->learned));
    return p->dev->sync(ctx, p->dev);
}
