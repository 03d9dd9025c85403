/* Builds the members of a group, runs them by ref, and compares a backend's plan of the group with that. */
#include "group_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

/* ---- tensors ------------------------------------------------------------------------------------- */

static tensor own(group_pass *p, tensor t)
{
    t.data = calloc(1, tensor_bytes(&t) + 64);
    p->buffer[p->buffers++] = t;
    return t;
}

static tensor input(group_pass *p, input_kind kind, tensor t)
{
    t = own(p, t);
    harness_draw(&t, kind, rng_key(p->seed, "group") + 1000 * (uint64_t)p->buffers);
    return t;
}

static tensor image(group_pass *p, int64_t N, int64_t H, int64_t W, int64_t C)
{
    return input(p, INPUT_VALUES, TENSOR(p->type, NULL, N, H, W, C));
}

static tensor matrix(group_pass *p, int64_t R, int64_t C)
{
    return input(p, INPUT_VALUES, TENSOR(p->type, NULL, R, C));
}
static tensor vector(group_pass *p, input_kind kind, int64_t n) { return input(p, kind, TENSOR(CLOOB_F32, NULL, n)); }

/* Mean, rstd, gain and bias into in[0..3]. */
static void norm(group_pass *p, tensor *in, int64_t C)
{
    for (int k = 0; k < 4; k++) in[k] = vector(p, k == 1 ? INPUT_POSITIVE : INPUT_VECTOR, C);
}

/* ---- members ------------------------------------------------------------------------------------- */

static op_args *member(group_pass *p, op_id op, op_attr attr, int n_in, const tensor *in)
{
    op_args *a = &p->member[p->members++];
    *a = (op_args){ .op = op, .attr = attr };
    for (int k = 0; k < OP_INPUTS; k++) a->in[k] = k < n_in ? in[k] : ABSENT;
    for (int k = 0; k < OP_OUTPUTS; k++) a->out[k] = ABSENT;
    return a;
}

/* Shapes and memory of the outputs in `want`, of which those in `read` are read outside. All inputs were made
 * before. */
static cloob_status finish(cloob_ctx *ctx, group_pass *p, op_args *a, unsigned want, unsigned read)
{
    CLOOB_TRY(op_table[a->op].shape(ctx, a));
    for (int k = 0; k < OP_OUTPUTS; k++) a->out[k] = want & 1u << k && op_has(&a->out[k]) ? own(p, a->out[k]) : ABSENT;
    p->read_outside[a - p->member] = read;
    return CLOOB_OK;
}

static const op_attr statistics = { .stride = 1, .eps = 1e-5f, .momentum = .1f };

static cloob_status conv_stats(cloob_ctx *ctx, group_pass *p, const group_case *c, tensor x, const tensor *w,
                               const tensor *running)
{
    op_attr attr = { .stride = c->flags & STRIDE ? 2 : 1, .pad = w->dim[1] / 2 }, at = statistics;
    at.keep_stats = c->flags & KEEP_STATS;
    op_args *conv = member(p, OP_CONV2D, attr, 2, (tensor[]){ x, *w });
    CLOOB_TRY(finish(ctx, p, conv, 1, 1));
    op_args *stats = member(p, OP_BN_STATS, at, 3, (tensor[]){ conv->out[0], running[0], running[1] });
    return finish(ctx, p, stats, 3, 3);
}

static cloob_status make_stats(cloob_ctx *ctx, group_pass *p, const group_case *c)
{
    int64_t k = c->flags & K3 ? 3 : 1, narrow = c->flags & STRIDE ? 3 : c->C; /* the stem: channels past 3 are 0 */
    tensor x = c->kind == IMAGE_STATS ? input(p, INPUT_BYTES, TENSOR(CLOOB_U8, NULL, c->N, c->H, c->W, 3))
                                      : image(p, c->N, c->H, c->W, c->C);
    tensor w = image(p, c->O, k, k, narrow),
           running[] = { vector(p, INPUT_VECTOR, c->O), vector(p, INPUT_POSITIVE, c->O) };
    tensor in[6] = { x }, residual[5] = { ABSENT };
    norm(p, &in[1], c->C);
    in[5] = c->flags & (RES | POOL) ? image(p, c->N, c->H, c->W, c->C) : ABSENT;
    if (c->flags & BOTH) residual[0] = image(p, c->N, c->H, c->W, c->C), norm(p, &residual[1], c->C);
    if (c->kind == IMAGE_STATS) {
        op_attr pixels = {
            .channels = c->C, .mean = { .48f, .46f, .41f }, .std = { .27f, .26f, .28f }, .dtype = p->type
        };
        op_args *a = member(p, OP_IMAGE_INPUT, pixels, 1, &x);
        CLOOB_TRY(finish(ctx, p, a, 1, 0));
        x = a->out[0];
    }
    if (c->flags & BOTH) {
        op_args *a = member(p, OP_BN_APPLY, (op_attr){ 0 }, 5, residual);
        CLOOB_TRY(finish(ctx, p, a, 1, 0));
        in[5] = a->out[0];
    }
    if (c->kind == APPLY_STATS || c->kind == APPLY_BOTH) {
        bool read = c->flags & (READ | POOL) || c->kind == APPLY_BOTH;
        op_args *a = member(p, OP_BN_APPLY, (op_attr){ .relu = !(c->flags & NO_RELU) }, 6, in);
        CLOOB_TRY(finish(ctx, p, a, 1, read));
        x = a->out[0];
    }
    if (c->flags & POOL) CLOOB_TRY(finish(ctx, p, member(p, OP_AVGPOOL2, (op_attr){ 0 }, 1, &x), 1, 1));
    return c->kind == APPLY_BOTH ? CLOOB_OK : conv_stats(ctx, p, c, x, &w, running);
}

static cloob_status make_image_dw(cloob_ctx *ctx, group_pass *p, const group_case *c)
{
    op_attr pixels = { .channels = c->C, .mean = { .48f, .46f, .41f }, .std = { .27f, .26f, .28f }, .dtype = p->type };
    int64_t H = (c->H + 1) / 2, W = (c->W + 1) / 2;
    tensor bytes = input(p, INPUT_BYTES, TENSOR(CLOOB_U8, NULL, c->N, c->H, c->W, 3)), w = image(p, c->O, 3, 3, 3);
    tensor dy = image(p, c->N, H, W, c->O);
    op_args *image_of = member(p, OP_IMAGE_INPUT, pixels, 1, &bytes);
    CLOOB_TRY(finish(ctx, p, image_of, 1, 0));
    op_attr conv = { .stride = 2, .pad = 1 };
    return finish(ctx, p, member(p, OP_CONV2D_DW, conv, 3, (tensor[]){ dy, image_of->out[0], w }), 1, 1);
}

static cloob_status make_dx_reduce(cloob_ctx *ctx, group_pass *p, const group_case *c)
{
    const op_attr conv = { .stride = 1 };
    tensor dy = image(p, c->N, c->H, c->W, c->O), w = image(p, c->O, 1, 1, c->C), y = image(p, c->N, c->H, c->W, c->C);
    tensor x = image(p, c->N, c->H, c->W, c->C), numbers[4];
    tensor other = c->flags & SPREAD ? image(p, c->N, c->H / 2, c->W / 2, c->C) : image(p, c->N, c->H, c->W, c->C);
    norm(p, numbers, c->C);
    if (c->flags & POOL) CLOOB_TRY(finish(ctx, p, member(p, OP_AVGPOOL2, (op_attr){ 0 }, 1, &y), 1, 1));
    if (c->flags & DW) CLOOB_TRY(finish(ctx, p, member(p, OP_CONV2D_DW, conv, 3, (tensor[]){ dy, y, w }), 1, 1));
    if (c->flags & SPREAD) {
        op_args *spread = member(p, OP_AVGPOOL2_BWD, (op_attr){ 0 }, 2, (tensor[]){ other, x });
        CLOOB_TRY(finish(ctx, p, spread, 1, c->flags & READ ? 1 : 0));
        other = spread->out[0];
    }
    op_args *dx = member(p, OP_CONV2D_DX, conv, 3, (tensor[]){ dy, w, x });
    CLOOB_TRY(finish(ctx, p, dx, 1, 0));
    tensor d[] = { dx->out[0], other };
    bool second = c->flags & SECOND;
    tensor in[] = { d[second], d[!second], x, numbers[0], numbers[1], numbers[2], numbers[3], y };
    return finish(ctx, p, member(p, OP_BN_BWD_REDUCE, (op_attr){ .relu = true }, 8, in), 15, 15);
}

static cloob_status make_bwd_dx(cloob_ctx *ctx, group_pass *p, const group_case *c)
{
    const op_attr conv = { .stride = 1 }, relu = { .relu = true };
    tensor w = image(p, c->O, 1, 1, c->C), x2[5] = { image(p, c->N, c->H, c->W, c->C) }, a2 = x2[0];
    tensor in[7] = { image(p, c->N, c->H, c->W, c->O), image(p, c->N, c->H, c->W, c->O) };
    bool read = c->flags & READ || !(c->flags & DW);
    norm(p, &in[2], c->O);
    norm(p, &x2[1], c->C);
    in[6] = input(p, INPUT_VECTOR, TENSOR(CLOOB_F32, NULL, 2, c->O));
    op_args *back = member(p, OP_BN_BWD_APPLY, (op_attr){ 0 }, 7, in);
    CLOOB_TRY(finish(ctx, p, back, 1, read));
    op_args *dx = member(p, OP_CONV2D_DX, conv, 3, (tensor[]){ back->out[0], w, x2[0] });
    CLOOB_TRY(finish(ctx, p, dx, 1, 1));
    if (c->flags & APPLY) {
        op_args *apply = member(p, OP_BN_APPLY, relu, 5, x2);
        CLOOB_TRY(finish(ctx, p, apply, 1, read));
        a2 = apply->out[0];
    }
    if (c->flags & REDUCE) {
        tensor of[] = { dx->out[0], ABSENT, x2[0], x2[1], x2[2], x2[3], x2[4] };
        CLOOB_TRY(finish(ctx, p, member(p, OP_BN_BWD_REDUCE, relu, 7, of), 7, 7));
    }
    if (!(c->flags & DW)) return CLOOB_OK;
    return finish(ctx, p, member(p, OP_CONV2D_DW, conv, 3, (tensor[]){ back->out[0], a2, w }), 1, 1);
}

static cloob_status make_linear(cloob_ctx *ctx, group_pass *p, const group_case *c)
{
    bool back = c->kind == LINEAR_DX_ACT;
    op_attr act = { .act = (op_act)(c->flags >> 20), .sums = c->flags & SUMS };
    tensor w = matrix(p, c->O, c->C), x = matrix(p, c->N, back ? c->O : c->C);
    tensor pre = back ? matrix(p, c->N, c->C) : ABSENT;
    tensor bias = c->flags & BIAS ? input(p, INPUT_VALUES, TENSOR(p->type, NULL, back ? c->C : c->O)) : ABSENT;
    op_args *gemm = back ? member(p, OP_LINEAR_DX, (op_attr){ 0 }, 3, (tensor[]){ x, w, pre })
                         : member(p, OP_LINEAR, (op_attr){ 0 }, 2, (tensor[]){ x, w });
    CLOOB_TRY(finish(ctx, p, gemm, 1, c->flags & READ ? 1 : 0));
    if (!back) return finish(ctx, p, member(p, OP_ACT, act, 2, (tensor[]){ gemm->out[0], bias }), 1, 1);
    unsigned want = 1u | (c->flags & RECOMPUTE ? 2u : 0u) | (c->flags & SUMS ? 4u : 0u);
    return finish(ctx, p, member(p, OP_ACT_BWD, act, 3, (tensor[]){ gemm->out[0], pre, bias }), want, want);
}

/* ---- ref ----------------------------------------------------------------------------------------- */

/* Channels and neighbours stay, since they choose kernels and tiles. */
static group_case fewer(const group_case *c)
{
    enum { HEIGHT = 10, WIDTH = 26, ROWS = 137 };
    group_case s = *c;
    bool linear = c->kind == LINEAR_ACT || c->kind == LINEAR_DX_ACT,
         images = c->kind == IMAGE_STATS || c->kind == IMAGE_DW;
    if (linear && s.N > ROWS) s.N = ROWS;
    if (linear) return s;
    if (s.N > (c->H > 16 ? 1 : 2)) s.N = c->H > 16 ? 1 : 2;
    if (c->H > 16) s.H = HEIGHT + c->H % 2;
    if (c->W > WIDTH && !images && !(c->flags & K3)) s.W = WIDTH + c->W % 2;
    return s;
}

bool group_pass_run(cloob_ctx *ctx, const group_case *c, cloob_dtype type, bool small, group_pass *p)
{
    static cloob_status (*const make[])(cloob_ctx *, group_pass *, const group_case *) = {
        [CONV_STATS] = make_stats,  [APPLY_STATS] = make_stats, [APPLY_BOTH] = make_stats,
        [IMAGE_STATS] = make_stats, [IMAGE_DW] = make_image_dw, [DX_REDUCE] = make_dx_reduce,
        [BWD_DX] = make_bwd_dx,     [LINEAR_ACT] = make_linear, [LINEAR_DX_ACT] = make_linear,
    };
    group_case reduced = small ? fewer(c) : *c;
    *p = (group_pass){ .seed = rng_key(3, c->name), .type = type };
    if (make[c->kind](ctx, p, &reduced) != CLOOB_OK) {
        printf("  %s: %s\n", c->name, cloob_error(ctx));
        return false;
    }
    for (int i = 0; i < p->buffers; i++) {
        p->before[i] = malloc(tensor_bytes(&p->buffer[i]) + 1);
        memcpy(p->before[i], p->buffer[i].data, tensor_bytes(&p->buffer[i]));
    }
    for (int i = 0; i < p->members; i++)
        if (!harness_run_ref(ctx, p->member[i].op, &p->member[i])) return false;
    return true;
}

void group_pass_release(group_pass *p)
{
    for (int i = 0; i < p->buffers; i++) free(p->buffer[i].data), free(p->before[i]);
    p->buffers = 0;
}

/* ---- a device ------------------------------------------------------------------------------------ */

static tensor *operand(op_args *a, int k) { return k < OP_INPUTS ? &a->in[k] : &a->out[k - OP_INPUTS]; }

static bool is_output(const group_pass *p, const void *data)
{
    for (int i = 0; i < p->members * OP_OUTPUTS; i++) {
        const tensor *t = &p->member[i / OP_OUTPUTS].out[i % OP_OUTPUTS];
        if (op_has(t) && t->data == data) return true;
    }
    return false;
}

static cloob_status prepare(const op_env *env, op_args *a)
{
    const op_kernel *kernel = op_find_kernel(env->dev->backend, a->op);
    op_args bare = *a;
    for (int k = 0; k < OP_INPUTS + OP_OUTPUTS; k++) operand(&bare, k)->data = NULL;
    if (kernel->prepare) CLOOB_TRY(kernel->prepare(env, &bare));
    a->scratch_bytes = bare.scratch_bytes;
    a->state = bare.state;
    return CLOOB_OK;
}

static cloob_status run_part(const op_env *env, op_group *g)
{
    op_args *first = g->member[0];
    size_t bytes = g->kernel ? g->scratch_bytes : first->scratch_bytes;
    void **scratch = g->kernel ? &g->scratch : &first->scratch;
    if (bytes) CLOOB_TRY(env->dev->alloc(env->ctx, env->dev, bytes, "scratch", scratch));
    cloob_status status =
        g->kernel ? g->kernel->run(env, g) : op_find_kernel(env->dev->backend, first->op)->run(env, first);
    if (status == CLOOB_OK) status = env->dev->sync(env->ctx, env->dev);
    if (bytes) env->dev->free(env->dev, *scratch);
    return status;
}

/* Addresses on the device instead of those on the host. */
static void place(op_args *a, const group_pass *p, const guarded_bytes *on_device)
{
    for (int k = 0; k < OP_INPUTS + OP_OUTPUTS; k++) {
        tensor *t = operand(a, k);
        for (int i = 0; i < p->buffers && t->data; i++)
            if (t->data == p->buffer[i].data) {
                t->data = on_device[i].on_device + GUARD_BYTES;
                break;
            }
    }
}

static cloob_status run_group(const op_env *env, const group_table *t, const group_pass *p, op_args *member,
                              const guarded_bytes *on_device, bool *written, int *claimed, int *used)
{
    op_group part[GROUP_MEMBERS];
    int parts = 0;
    cloob_status status = CLOOB_OK;
    for (int i = 0; i < p->members && status == CLOOB_OK; i++) status = prepare(env, &member[i]);
    if (status == CLOOB_OK) status = group_plan(env, t, member, p->members, p->read_outside, part, &parts);
    for (int i = 0; i < parts; i++) {
        if (part[i].kernel) *claimed += part[i].members;
        if (part[i].kernel && used) used[part[i].kernel - t->kernel]++;
        group_mark_inner(&part[i], NULL);
    }
    for (int i = 0; i < p->buffers; i++) { /* what has no operand left is written by nobody */
        written[i] = false;
        for (int k = 0; k < p->members * (OP_INPUTS + OP_OUTPUTS); k++) {
            const tensor *o = operand(&member[k / (OP_INPUTS + OP_OUTPUTS)], k % (OP_INPUTS + OP_OUTPUTS));
            if (op_has(o) && o->data == p->buffer[i].data) written[i] = true;
        }
    }
    for (int i = 0; i < p->members; i++) place(&member[i], p, on_device);
    for (int i = 0; i < parts && status == CLOOB_OK; i++) status = run_part(env, &part[i]);
    for (int i = 0; i < parts; i++)
        if (part[i].kernel && part[i].kernel->release) part[i].kernel->release(env, &part[i]);
    for (int i = 0; i < p->members; i++) {
        const op_kernel *kernel = op_find_kernel(env->dev->backend, member[i].op);
        if (kernel->release) kernel->release(env, &member[i]);
    }
    return status;
}

double group_compare(cloob_ctx *ctx, device *dev, const group_table *t, const group_case *c, const group_pass *p,
                     int *claimed, int *used)
{
    op_env env = { .ctx = ctx, .dev = dev, .stream = dev->stream, .ranks = 1 };
    op_args member[GROUP_MEMBERS];
    guarded_bytes on_device[GROUP_BUFFERS] = { { 0 } };
    bool written[GROUP_BUFFERS] = { false };
    double worst = 0;
    cloob_status status = CLOOB_OK;
    memcpy(member, p->member, sizeof member);
    *claimed = 0;
    for (int i = 0; i < p->buffers && status == CLOOB_OK; i++) {
        tensor copy = p->buffer[i];
        bool output = is_output(p, p->buffer[i].data);
        status = guard_up(ctx, dev, output ? NULL : p->before[i], &on_device[i], &copy);
    }
    if (status == CLOOB_OK) status = run_group(&env, t, p, member, on_device, written, claimed, used);
    if (status != CLOOB_OK) printf("  %s: %s\n", c->name, cloob_error(ctx));
    for (int i = 0; i < p->buffers; i++) {
        tensor got = p->buffer[i];
        if (!on_device[i].host) continue;
        if (status == CLOOB_OK && !guard_down(ctx, dev, &on_device[i])) {
            printf("  %s: wrote outside tensor %d\n", c->name, i);
            worst = INFINITY;
        }
        got.data = on_device[i].host + GUARD_BYTES;
        if (status == CLOOB_OK && written[i]) worst = fmax(worst, harness_error(&got, &p->buffer[i]));
        dev->free(dev, on_device[i].on_device);
        free(on_device[i].host);
    }
    return status != CLOOB_OK || worst == INFINITY ? -1 : worst;
}
