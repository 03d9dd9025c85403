/* Convolutions in F32 by oneDNN. Each primitive is made once, at planning; where it wants another layout than a tensor
 * has, the tensor is reordered through planned scratch. Weights are reordered in every call, or once when they are
 * frozen. */
#include <stdlib.h>
#include <string.h>

#include "nn/cpu/conv_winograd.h"
#include "nn/cpu/cpu.h"
#include "tensor/cpu/onednn.h"

/* One operand: as the engine keeps it, and as the primitive wants it. */
typedef struct side {
    dnnl_memory_t have, want; /* equal when no reorder is needed */
    dnnl_primitive_t reorder;
    dnnl_primitive_t before; /* of an output that is added to: what is there, as the primitive wants it */
    size_t offset;           /* of the reordered copy in scratch */
    dnnl_memory_t middle;    /* Winograd's weights are made from (O, C, kh, kw) only: reordered to that first */
    dnnl_primitive_t to_middle;
} side;

enum { SRC, WEI, DST, SIDES };

typedef struct conv_state {
    dnnl_primitive_t conv;
    side side[SIDES];
    dnnl_memory_t bias, scratchpad;
    size_t scratchpad_offset;
    int output;          /* which side is written */
    void *frozen_weight; /* reordered once */
    bool frozen_ready;
    conv_winograd *winograd; /* not NULL: it does all the work, and the rest is empty */
    bool winograd_dw;        /* likewise */
} conv_state;

/* ---- preparing ----------------------------------------------------------------------------------- */

static dnnl_status_t weight_desc(const tensor *w, dnnl_format_tag_t tag, dnnl_memory_desc_t *md)
{
    dnnl_dims_t dims = { w->dim[0], w->dim[3], w->dim[1], w->dim[2] };
    return dnnl.memory_desc_init_by_tag(md, 4, dims, dnnl_f32, tag);
}

static dnnl_status_t make_reorder(onednn *o, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                  dnnl_primitive_t *out)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t st = dnnl.reorder_primitive_desc_create(&pd, from, o->engine, to, o->engine, NULL);
    if (st != dnnl_success) return st;
    st = dnnl.primitive_create(out, pd);
    dnnl.primitive_desc_destroy(pd);
    return st;
}

static dnnl_status_t make_detour(onednn *o, side *s, const dnnl_memory_desc_t *have, const dnnl_memory_desc_t *want)
{
    dnnl_memory_desc_t plain;
    dnnl_status_t st = dnnl.memory_desc_init_by_tag(&plain, 4, have->dims, dnnl_f32, dnnl_oihw);
    if (st == dnnl_success) st = dnnl.memory_create(&s->middle, &plain, o->engine, DNNL_MEMORY_NONE);
    if (st == dnnl_success) st = make_reorder(o, have, &plain, &s->to_middle);
    if (st == dnnl_success) st = make_reorder(o, &plain, want, &s->reorder);
    return st;
}

static dnnl_status_t make_side(onednn *o, side *s, const dnnl_memory_desc_t *have, const dnnl_memory_desc_t *want,
                               bool output, size_t *scratch)
{
    dnnl_status_t st = dnnl.memory_create(&s->have, have, o->engine, DNNL_MEMORY_NONE);
    if (st != dnnl_success || dnnl.memory_desc_equal(have, want)) {
        s->want = s->have;
        return st;
    }
    st = dnnl.memory_create(&s->want, want, o->engine, DNNL_MEMORY_NONE);
    if (st != dnnl_success) return st;
    if (want->format_kind == dnnl_format_kind_wino) return make_detour(o, s, have, want); /* frozen: needs no scratch */
    s->offset = *scratch;
    *scratch += (dnnl.memory_desc_get_size(want) + 255) / 256 * 256;
    return output ? make_reorder(o, want, have, &s->reorder) : make_reorder(o, have, want, &s->reorder);
}

typedef struct descs {
    dnnl_memory_desc_t have[SIDES], any[SIDES], bias;
    dnnl_dims_t stride, dilate, pad_low, pad_high;
    bool has_bias;
    bool winograd; /* may be computed by fewer products; where oneDNN has no such kernel it is not */
} descs;

/* A blocked tensor is taken as it is; a plain one may be reordered if another layout is faster. */
static dnnl_status_t describe(const tensor *x, const tensor *w, const tensor *y, const op_attr *at, descs *d)
{
    dnnl_status_t s = onednn_image(x, &d->have[SRC]);
    if (s == dnnl_success) s = onednn_image(y, &d->have[DST]);
    if (s == dnnl_success) s = weight_desc(w, dnnl_ohwi, &d->have[WEI]);
    if (s == dnnl_success) s = weight_desc(w, dnnl_format_tag_any, &d->any[WEI]);
    if (s == dnnl_success) s = onednn_image_any(x, &d->any[SRC]);
    if (s == dnnl_success) s = onednn_image_any(y, &d->any[DST]);
    if (x->block) d->any[SRC] = d->have[SRC];
    if (y->block) d->any[DST] = d->have[DST];
    for (int i = 0; i < 2; i++) {
        d->stride[i] = at->stride;
        d->dilate[i] = 0;
        d->pad_low[i] = at->pad;
        /* what the kernel reaches beyond the image at the far side, which may be less than at the near one */
        d->pad_high[i] = (y->dim[1 + i] - 1) * at->stride + w->dim[1 + i] - x->dim[1 + i] - at->pad;
    }
    return s;
}

static dnnl_status_t attributes(const op_args *a, bool residual, dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t ops;
    dnnl_status_t s = dnnl.primitive_attr_create(attr);
    if (s == dnnl_success) s = dnnl.primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (s != dnnl_success || (!residual && !a->attr.relu)) return s;
    s = dnnl.post_ops_create(&ops);
    if (s == dnnl_success && residual) s = dnnl.post_ops_append_sum(ops, 1.0f);
    if (s == dnnl_success && a->attr.relu) s = dnnl.post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (s == dnnl_success) s = dnnl.primitive_attr_set_post_ops(*attr, ops);
    dnnl.post_ops_destroy(ops);
    return s;
}

static dnnl_status_t forward_desc(const descs *d, dnnl_prop_kind_t kind, dnnl_alg_kind_t how,
                                  dnnl_convolution_desc_t *c)
{
    return dnnl.dilated_convolution_forward_desc_init(c, kind, how, &d->any[SRC], &d->any[WEI],
                                                      d->has_bias ? &d->bias : NULL, &d->any[DST], d->stride, d->dilate,
                                                      d->pad_low, d->pad_high);
}

static dnnl_status_t make_desc(onednn *o, const descs *d, int output, const op_args *a, dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t c;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s = attributes(a, output == DST && op_has(&a->in[3]), &attr);
    dnnl_prop_kind_t kind =
        output == DST && (d->has_bias || d->winograd) ? dnnl_forward_inference : dnnl_forward_training;
    if (s == dnnl_success && d->winograd && forward_desc(d, kind, dnnl_convolution_winograd, &c) == dnnl_success &&
        dnnl.primitive_desc_create(pd, &c, attr, o->engine, NULL) == dnnl_success) {
        dnnl.primitive_attr_destroy(attr);
        return dnnl_success;
    }
    if (s == dnnl_success) s = forward_desc(d, kind, dnnl_convolution_direct, &c);
    if (s == dnnl_success && output != DST) {
        s = dnnl.primitive_desc_create(&hint, &c, NULL, o->engine, NULL);
        if (s == dnnl_success && output == SRC)
            s = dnnl.dilated_convolution_backward_data_desc_init(&c, dnnl_convolution_direct, &d->any[SRC],
                                                                 &d->any[WEI], &d->any[DST], d->stride, d->dilate,
                                                                 d->pad_low, d->pad_high);
        else if (s == dnnl_success)
            s = dnnl.dilated_convolution_backward_weights_desc_init(&c, dnnl_convolution_direct, &d->any[SRC],
                                                                    &d->any[WEI], NULL, &d->any[DST], d->stride,
                                                                    d->dilate, d->pad_low, d->pad_high);
    }
    if (s == dnnl_success) s = dnnl.primitive_desc_create(pd, &c, attr, o->engine, hint);
    if (hint) dnnl.primitive_desc_destroy(hint);
    if (attr) dnnl.primitive_attr_destroy(attr);
    return s;
}

/* Some combinations of layouts have no fast kernel (few channels on one side, blocks on the other). */
static bool is_slow(dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl.primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success && name &&
           strncmp(name, "ref", 3) == 0;
}

/* Takes tensors as they are laid out; where that is slow, lets oneDNN choose every layout and reorders. */
static dnnl_status_t best_desc(onednn *o, descs *d, int output, const op_args *a, const tensor *x, const tensor *y,
                               dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_desc_t other = NULL;
    dnnl_status_t s = make_desc(o, d, output, a, pd);
    if (s != dnnl_success || !is_slow(*pd)) return s;
    descs free_choice = *d;
    onednn_image_any(x, &free_choice.any[SRC]);
    onednn_image_any(y, &free_choice.any[DST]);
    if (make_desc(o, &free_choice, output, a, &other) != dnnl_success) return s;
    dnnl.primitive_desc_destroy(*pd);
    *pd = other;
    return s;
}

static dnnl_query_t query_of(int which, int output)
{
    static const dnnl_query_t plain[] = { dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md };
    static const dnnl_query_t diff[] = { dnnl_query_diff_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md };
    if (output == DST) return plain[which];
    return which == output || which == DST ? diff[which] : plain[which];
}

static dnnl_status_t make_state(onednn *o, descs *d, int output, op_args *a, const tensor *x, const tensor *y,
                                conv_state *st)
{
    dnnl_primitive_desc_t pd = NULL;
    size_t scratch = 0;
    dnnl_status_t s = best_desc(o, d, output, a, x, y, &pd);
    st->output = output;
    if (s == dnnl_success) s = dnnl.primitive_create(&st->conv, pd);
    for (int i = 0; i < SIDES && s == dnnl_success; i++)
        s = make_side(o, &st->side[i], &d->have[i], dnnl.primitive_desc_query_md(pd, query_of(i, output), 0),
                      i == output, &scratch);
    if (s == dnnl_success && output == DST && op_has(&a->in[3]) && st->side[DST].reorder)
        s = make_reorder(o, &d->have[DST], dnnl.primitive_desc_query_md(pd, dnnl_query_dst_md, 0),
                         &st->side[DST].before);
    if (s == dnnl_success) {
        const dnnl_memory_desc_t *pad = dnnl.primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        st->scratchpad_offset = scratch;
        scratch += (dnnl.memory_desc_get_size(pad) + 255) / 256 * 256;
        s = dnnl.memory_create(&st->scratchpad, pad, o->engine, DNNL_MEMORY_NONE);
    }
    if (s == dnnl_success && d->has_bias) s = dnnl.memory_create(&st->bias, &d->bias, o->engine, DNNL_MEMORY_NONE);
    if (pd) dnnl.primitive_desc_destroy(pd);
    a->scratch_bytes = scratch;
    return s;
}

/* Inputs with more channels than the weight are left to the definition. */
static bool ours(const tensor *x, const tensor *w) { return x->dtype == CLOOB_F32 && x->dim[3] == w->dim[3]; }

/* Winograd's algorithm takes 4 (tiles of 4 x 4) or 2.25 times fewer products for a 3 x 3 kernel, at the price of larger
 * weights and of rounding (about 1e-6 of a row). oneDNN makes such weights slowly: its kernels serve where they are
 * frozen and made once. */
static bool may_winograd(const op_args *a, const tensor *x, const tensor *w, const tensor *y)
{
    return w->dim[1] == 3 && w->dim[2] == 3 && a->attr.stride == 1 && a->attr.pad == 1 && x->block && y->block &&
           !op_has(&a->in[3]);
}

static void release(const op_env *env, op_args *a)
{
    conv_state *st = a->state;
    (void)env;
    if (!st) return;
    conv_winograd_destroy(st->winograd);
    if (st->conv) dnnl.primitive_destroy(st->conv);
    for (int i = 0; i < SIDES; i++) {
        side *s = &st->side[i];
        if (s->reorder) dnnl.primitive_destroy(s->reorder);
        if (s->before) dnnl.primitive_destroy(s->before);
        if (s->to_middle) dnnl.primitive_destroy(s->to_middle);
        if (s->middle) dnnl.memory_destroy(s->middle);
        if (s->want && s->want != s->have) dnnl.memory_destroy(s->want);
        if (s->have) dnnl.memory_destroy(s->have);
    }
    if (st->bias) dnnl.memory_destroy(st->bias);
    if (st->scratchpad) dnnl.memory_destroy(st->scratchpad);
    free(st->frozen_weight);
    free(st);
    a->state = NULL;
}

static cloob_status prepare(const op_env *env, op_args *a, const tensor *x, const tensor *w, const tensor *y,
                            int output)
{
    onednn *o;
    descs d = { .has_bias = output == DST && op_has(&a->in[2]) };
    bool winograd = may_winograd(a, x, w, y);
    d.winograd = winograd && env->frozen_weights && output == DST;
    if (!ours(x, w)) return CLOOB_OK;
    CLOOB_TRY(onednn_get(env->ctx, &o));
    conv_state *st = calloc(1, sizeof *st);
    if (!st) return ctx_no_memory(env->ctx, sizeof *st, "a convolution");
    a->state = st;
    if (winograd && output != WEI) CLOOB_TRY(conv_winograd_create(env, a, output == SRC, &st->winograd));
    if (winograd && output == WEI) st->winograd_dw = conv_winograd_dw_prepare(env, a);
    if (st->winograd || st->winograd_dw) return CLOOB_OK;
    dnnl_status_t s = describe(x, w, y, &a->attr, &d);
    dnnl_dims_t channels = { w->dim[0] };
    if (s == dnnl_success && d.has_bias) s = dnnl.memory_desc_init_by_tag(&d.bias, 1, channels, dnnl_f32, dnnl_a);
    if (output == DST && op_has(&a->in[3]))
        d.any[DST] = d.have[DST]; /* it adds to what is there: no detour unless slow */
    if (s == dnnl_success) s = make_state(o, &d, output, a, x, y, st);
    if (s == dnnl_success) return CLOOB_OK;
    release(env, a);
    return onednn_status(env->ctx, s, "preparing a convolution");
}

static cloob_status prepare_forward(const op_env *env, op_args *a)
{
    return prepare(env, a, &a->in[0], &a->in[1], &a->out[0], DST);
}

static cloob_status prepare_dx(const op_env *env, op_args *a)
{
    return prepare(env, a, &a->out[0], &a->in[1], &a->in[0], SRC);
}

static cloob_status prepare_dw(const op_env *env, op_args *a)
{
    tensor w = a->out[0];
    return prepare(env, a, &a->in[1], &w, &a->in[0], WEI);
}

/* ---- running ------------------------------------------------------------------------------------- */

static dnnl_status_t reorder(onednn *o, dnnl_primitive_t how, dnnl_memory_t from, dnnl_memory_t to)
{
    dnnl_exec_arg_t args[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } };
    return dnnl.primitive_execute(how, o->stream, 2, args);
}

static dnnl_status_t reorder_weight(onednn *o, cloob_ctx *ctx, const side *s)
{
    const dnnl_memory_desc_t *md;
    void *from, *to;
    if (!s->middle) return reorder(o, s->reorder, s->have, s->want);
    dnnl.memory_get_data_handle(s->have, &from);
    dnnl.memory_get_data_handle(s->want, &to);
    dnnl.memory_get_memory_desc(s->want, &md);
    if (winograd_weights(ctx, md, from, to)) return dnnl_success;
    dnnl.memory_get_memory_desc(s->middle, &md);
    void *plain = malloc(dnnl.memory_desc_get_size(md));
    if (!plain) return dnnl_out_of_memory;
    dnnl.memory_set_data_handle(s->middle, plain);
    dnnl_status_t st = reorder(o, s->to_middle, s->have, s->middle);
    if (st == dnnl_success) st = reorder(o, s->reorder, s->middle, s->want);
    if (st == dnnl_success) st = dnnl.stream_wait(o->stream);
    free(plain);
    return st;
}

/* Frozen weights are reordered into memory of their own, once; this is the one allocation outside the plan, made in the
 * first call. */
static dnnl_status_t place_frozen(onednn *o, cloob_ctx *ctx, conv_state *st, side *s)
{
    if (!st->frozen_weight) {
        const dnnl_memory_desc_t *md;
        dnnl.memory_get_memory_desc(s->want, &md);
        st->frozen_weight = aligned_alloc(64, (dnnl.memory_desc_get_size(md) + 63) / 64 * 64);
        if (!st->frozen_weight) return dnnl_out_of_memory;
    }
    dnnl.memory_set_data_handle(s->want, st->frozen_weight);
    if (st->frozen_ready) return dnnl_success;
    st->frozen_ready = true;
    return reorder_weight(o, ctx, s);
}

static dnnl_status_t bring(onednn *o, const op_env *env, const op_args *a, conv_state *st, int i, void *data)
{
    side *s = &st->side[i];
    dnnl.memory_set_data_handle(s->have, data);
    if (!s->reorder) return dnnl_success;
    if (i == WEI && env->frozen_weights && st->output == DST) return place_frozen(o, env->ctx, st, s);
    dnnl.memory_set_data_handle(s->want, (char *)a->scratch + s->offset);
    if (i != st->output) return reorder(o, s->reorder, s->have, s->want);
    return s->before ? reorder(o, s->before, s->have, s->want) : dnnl_success;
}

static cloob_status execute(const op_env *env, const op_args *a, void *x, void *w, void *y)
{
    conv_state *st = a->state;
    onednn *o;
    static const int plain[] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST };
    static const int diff[] = { DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST };
    void *data[SIDES] = { x, w, y };
    dnnl_exec_arg_t args[5];
    dnnl_status_t s = dnnl_success;
    int n = 0;
    CLOOB_TRY(onednn_get(env->ctx, &o));
    for (int i = 0; i < SIDES && s == dnnl_success; i++) {
        s = bring(o, env, a, st, i, data[i]);
        bool is_diff = st->output != DST && (i == st->output || i == DST);
        args[n++] = (dnnl_exec_arg_t){ is_diff ? diff[i] : plain[i], st->side[i].want };
    }
    if (st->bias) {
        dnnl.memory_set_data_handle(st->bias, a->in[2].data);
        args[n++] = (dnnl_exec_arg_t){ DNNL_ARG_BIAS, st->bias };
    }
    dnnl.memory_set_data_handle(st->scratchpad, a->scratch_bytes ? (char *)a->scratch + st->scratchpad_offset : NULL);
    args[n++] = (dnnl_exec_arg_t){ DNNL_ARG_SCRATCHPAD, st->scratchpad };
    if (s == dnnl_success) s = dnnl.primitive_execute(st->conv, o->stream, n, args);
    side *out = &st->side[st->output];
    if (s == dnnl_success && out->reorder) {
        dnnl_exec_arg_t back[] = { { DNNL_ARG_FROM, out->want }, { DNNL_ARG_TO, out->have } };
        s = dnnl.primitive_execute(out->reorder, o->stream, 2, back);
    }
    if (s == dnnl_success) s = dnnl.stream_wait(o->stream);
    return onednn_status(env->ctx, s, "a convolution");
}

static cloob_status run_forward(const op_env *env, const op_args *a)
{
    const conv_state *st = a->state;
    if (!st) return conv2d_ref(env, a);
    if (st->winograd) return conv_winograd_run(env, a, st->winograd);
    if (a->in[3].data && a->in[3].data != a->out[0].data)
        memcpy(a->out[0].data, a->in[3].data, tensor_bytes(&a->out[0]));
    return execute(env, a, a->in[0].data, a->in[1].data, a->out[0].data);
}

static cloob_status run_dx(const op_env *env, const op_args *a)
{
    const conv_state *st = a->state;
    if (!st) return conv2d_dx_ref(env, a);
    if (st->winograd) return conv_winograd_run(env, a, st->winograd);
    return execute(env, a, a->out[0].data, a->in[1].data, a->in[0].data);
}

static cloob_status run_dw(const op_env *env, const op_args *a)
{
    const conv_state *st = a->state;
    if (!st) return conv2d_dw_ref(env, a);
    if (st->winograd_dw) {
        conv_winograd_dw_run(env, a);
        return CLOOB_OK;
    }
    return execute(env, a, a->in[1].data, a->out[0].data, a->in[0].data);
}

const conv_loops conv_onednn = { .prepare = prepare_forward,
                                 .dx_prepare = prepare_dx,
                                 .dw_prepare = prepare_dw,
                                 .run = run_forward,
                                 .dx = run_dx,
                                 .dw = run_dw,
                                 .release = release };
