/* Chooses the fastest kernel for a small convolution. */
#include "nn/cuda/stem/conv_small.h"

#include <stdio.h>
#include <stdlib.h>

#include "tensor/cuda/tune.h"

enum { VERSION = 10 }; /* part of the cache's key: raise when a list changes */

struct small_plan {
    const small_kernel *kernel;
    dnn_shape shape;
    int64_t c;
    int blocks;
    size_t workspace;
    float ms;
};

typedef struct choice {
    int32_t index; /* -1: no kernel */
    float ms;
} choice;

/* Bulk copies of bytes require rows of a multiple of 16 bytes. */
static bool takes(const small_kernel *k, const dnn_shape *s, int64_t c, int with)
{
    return s->dtype == CLOOB_BF16 && s->K == 3 && s->pad == 1 && k->kind == s->kind && k->with == with &&
           k->C == s->C && k->O == s->O && k->stride == s->stride && c <= s->C &&
           (!(with & SMALL_BYTES) || (c == 3 && s->W % 16 == 0));
}

/* Tile counts and coordinates of copies are int. */
static bool countable(const dnn_shape *s)
{
    return s->H < 1 << 20 && s->W < 1 << 20 && s->N * ((s->H + 3) / 4) * ((s->W + 3) / 4) < INT32_MAX;
}

static const small_kernel *nth_kernel(const device *d, const dnn_shape *s, int64_t c, int with, int i)
{
    const small_kernel *lists[] = { small_forward_kernels, small_dw_kernels, small_first_kernels };
    if (!countable(s) || !cuda_has_hopper(d)) return NULL;
    for (int l = 0; l < 3; l++)
        for (const small_kernel *k = lists[l]; k->name; k++)
            if (takes(k, s, c, with) && i-- == 0) return k;
    return NULL;
}

static int64_t tiles_of(const dnn_shape *s, int tile_rows)
{
    return s->N * ((s->Ho + tile_rows - 1) / tile_rows) * ((s->Wo + SMALL_TILE - 1) / SMALL_TILE);
}

cloob_status small_plan_nth(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with, int i,
                            small_plan **out)
{
    cuda_state *s = cuda_use(d);
    const small_kernel *k = nth_kernel(d, shape, c, with, i);
    int per_sm = 0;
    *out = NULL;
    if (!k) return CLOOB_OK;
    CLOOB_TRY(cuda_check(ctx, k->ready(&per_sm), k->name));
    if (per_sm < 1) return ctx_fail(ctx, CLOOB_ERR_DEVICE, "%s: no block fits a multiprocessor", k->name);
    small_plan *p = malloc(sizeof *p);
    if (!p) return ctx_no_memory(ctx, sizeof *p, "a convolution's plan");
    int64_t tiles = tiles_of(shape, k->tile_rows);
    int blocks = tiles < per_sm * s->sms ? (int)tiles : per_sm * s->sms;
    *p = (small_plan){ k, *shape, c, blocks, (size_t)blocks * k->block_bytes, 0.0f };
    *out = p;
    return CLOOB_OK;
}

void small_plan_destroy(small_plan *p) { free(p); }

void small_plan_narrow(small_plan *p, int blocks)
{
    if (blocks < p->blocks) p->blocks = blocks;
}

size_t small_plan_workspace(const small_plan *p) { return p ? p->workspace : 0; }
int small_plan_parts(const small_plan *p) { return p->blocks; }
float small_plan_ms(const small_plan *p) { return p->ms; }
const char *small_plan_name(const small_plan *p) { return p->kernel->name; }

cloob_status small_run(cloob_ctx *ctx, device *d, const small_plan *p, void *stream, const small_data *data)
{
    small_call c = { p->shape, p->c, p->blocks, *data, stream };
    cuda_use(d);
    return cuda_check(ctx, p->kernel->run(&c), "small convolution");
}

/* ---- timing -------------------------------------------------------------------------------------- */

typedef struct trial {
    cloob_ctx *ctx;
    device *d;
    small_plan *p;
    small_data data;
    void *pivot;
} trial;

static cloob_status trial_run(void *user)
{
    trial *t = user;
    return small_run(t->ctx, t->d, t->p, t->d->stream, &t->data);
}

static cloob_status take(trial *t, void **out, cloob_dtype type, int64_t n)
{
    return cuda_trial_noise(t->ctx, t->d, type, n, out);
}

static cloob_status trial_open(trial *t, const dnn_shape *s, int64_t c, int with)
{
    int64_t positions = s->N * s->H * s->W;
    CLOOB_TRY(take(t, &t->data.x, CLOOB_BF16, with & SMALL_BYTES ? 2 * positions : positions * s->C));
    CLOOB_TRY(take(t, &t->data.w, s->kind == DNN_DW ? CLOOB_F32 : CLOOB_BF16, s->O * 9 * c));
    CLOOB_TRY(take(t, &t->pivot, CLOOB_F32, 2 * (s->O + s->C)));
    t->data.pivot = t->pivot;
    for (int i = 0; i < 4; i++) t->data.norm[i] = t->pivot;
    for (int i = 0; i < 3; i++) t->data.mean[i] = 0.5f, t->data.std[i] = 0.25f;
    return take(t, &t->data.y, CLOOB_BF16, s->N * s->Ho * s->Wo * s->O);
}

static void trial_close(trial *t)
{
    void *all[] = { t->data.x, t->data.w, t->data.y, t->pivot };
    for (int i = 0; i < 4; i++) cuda_trial_free(t->d, all[i]);
}

static cloob_status try_kernel(trial *t, float *ms)
{
    CLOOB_TRY(cuda_trial_room(t->ctx, t->d, t->p->workspace, &t->data.workspace));
    cloob_status status = cuda_time(t->ctx, t->d, trial_run, t, ms);
    cuda_trial_free(t->d, t->data.workspace);
    return status;
}

/* A kernel that fails here is skipped; finding none is not an error. */
static choice choose(cloob_ctx *ctx, device *d, const dnn_shape *s, int64_t c, int with)
{
    trial t = { .ctx = ctx, .d = d };
    choice best = { -1, 1e30f };
    bool room = trial_open(&t, s, c, with) == CLOOB_OK;
    for (int i = 0; room && nth_kernel(d, s, c, with, i); i++) {
        float ms = 1e30f;
        if (small_plan_nth(ctx, d, s, c, with, i, &t.p) != CLOOB_OK || !t.p) continue;
        cloob_status status = try_kernel(&t, &ms);
        ctx_log(ctx, CLOOB_LOG_DEBUG, "small convolution %s: %.4f ms", t.p->kernel->name, (double)ms);
        if (status == CLOOB_OK && ms < best.ms) best = (choice){ i, ms };
        small_plan_destroy(t.p);
    }
    trial_close(&t);
    return best;
}

cloob_status small_plan_create(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with, small_plan **out)
{
    const dnn_shape *s = shape;
    tune_cache *tune = cuda_use(d)->tune;
    char key[TUNE_KEY];
    choice best;
    *out = NULL;
    if (!nth_kernel(d, s, c, with, 0)) return CLOOB_OK;
    snprintf(key, sizeof key, "small%d-%d-%d-%lldx%lldx%lldx%lld-%lld-%lld-%lld", (int)VERSION, (int)s->kind, with,
             (long long)s->N, (long long)s->H, (long long)s->W, (long long)s->C, (long long)s->O, (long long)s->stride,
             (long long)c);
    if (!tune_get(tune, key, &best, sizeof best)) {
        best = choose(ctx, d, s, c, with);
        tune_put(tune, key, &best, sizeof best);
    }
    if (best.index < 0) return CLOOB_OK;
    CLOOB_TRY(small_plan_nth(ctx, d, s, c, with, best.index, out));
    if (*out) (*out)->ms = best.ms;
    return CLOOB_OK;
}

cloob_status small_plan_better(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with, float *ms,
                               small_plan **out)
{
    fused_gemm_choice asked = ctx->kernels.fused_gemm;
    *out = NULL;
    if (asked == FUSED_GEMM_NEVER) return CLOOB_OK;
    if (asked != FUSED_GEMM_AUTO) /* a different kernel for each choice, if there are several */
        return small_plan_nth(ctx, d, shape, c, with, asked == FUSED_GEMM_2_CONSUMERS ? 1 : 0, out);
    CLOOB_TRY(small_plan_create(ctx, d, shape, c, with, out));
    if (!*out) return CLOOB_OK;
    ctx_log(ctx, CLOOB_LOG_DEBUG, "small convolution %lld->%lld with %d: %.4f ms, one after the other %.4f",
            (long long)shape->C, (long long)shape->O, with, (double)(*out)->ms, (double)*ms);
    if ((*out)->ms >= *ms) small_plan_destroy(*out), *out = NULL;
    else *ms = (*out)->ms;
    return CLOOB_OK;
}

dnn_shape conv_shape(dnn_kind kind, const tensor *x, const tensor *w, const tensor *y, const op_attr *attr)
{
    return (dnn_shape){ kind,      x->dim[0], x->dim[1],    x->dim[2], x->dim[3], w->dim[0], w->dim[1],
                        y->dim[1], y->dim[2], attr->stride, attr->pad, y->dtype,  y->dtype };
}
