/* A convolution as a one-node cuDNN graph: descriptors, the heuristics' engine list, timing, execution. */
#include "tensor/cuda/dnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "tensor/cuda/libraries.h"
#include "tensor/cuda/tune.h"

/* Supported releases require the handle attribute, although the newest mark it deprecated. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

typedef cudnnBackendDescriptor_t desc;

enum { ENGINES = 12, UID_X = 'x', UID_W = 'w', UID_Y = 'y' };
#define DNN_WORKSPACE ((int64_t)256 << 20)
#define TRY_SECONDS   1.5 /* engines compiled at run time can take a second each */

typedef struct choice {
    int32_t mode, index; /* place in that heuristic's list, which is fixed for a library version */
    int64_t engine;      /* the engine expected there */
    float ms;
    int32_t none; /* cuDNN has nothing */
} choice;

/* Layers of one shape share a plan; the device lists those alive. */
struct dnn_plan {
    dnn_shape shape;
    char key[TUNE_KEY];
    choice choice;
    int users;
    dnn_plan **list, *next;
    desc x, w, y, conv, op, graph;
    desc plan; /* made for a plan that will run, by dnn_plan_ready */
    int64_t workspace;
};

static bool set(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                const void *value)
{
    return cuda_lib.cudnnBackendSetAttribute(d, name, type, n, value) == CUDNN_STATUS_SUCCESS;
}

static bool finish(desc d) { return cuda_lib.cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS; }

static bool make(desc *d, cudnnBackendDescriptorType_t type)
{
    return cuda_lib.cudnnBackendCreateDescriptor(type, d) == CUDNN_STATUS_SUCCESS;
}

static void drop(desc *d)
{
    if (*d) cuda_lib.cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

/* Dimensions are given as (n, c, h, w); by the strides c is contiguous. */
static bool make_tensor(desc *t, int64_t uid, cloob_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    int64_t dim[4] = { n, c, h, w }, stride[4] = { h * w * c, 1, w * c, c }, align = 16;
    cudnnDataType_t type = dtype == CLOOB_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    return make(t, CUDNN_BACKEND_TENSOR_DESCRIPTOR) &&
           set(*t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) &&
           set(*t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim) &&
           set(*t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride) &&
           set(*t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid) &&
           set(*t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align) && finish(*t);
}

static bool make_conv(dnn_plan *p)
{
    const dnn_shape *s = &p->shape;
    int64_t dims = 2, pad[2] = { s->pad, s->pad }, stride[2] = { s->stride, s->stride }, dilation[2] = { 1, 1 };
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    return make(&p->conv, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) &&
           set(p->conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute) &&
           set(p->conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
           set(p->conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims) &&
           set(p->conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad) &&
           set(p->conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad) &&
           set(p->conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation) &&
           set(p->conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride) && finish(p->conv);
}

/* Attribute names of the three operations, in the order alpha, beta, convolution, x, w, y. */
typedef struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
} operation;

static const operation operations[] = {
    [DNN_FORWARD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y },
    [DNN_DX] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY },
    [DNN_DW] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY },
};

static bool make_graph(dnn_plan *p, cudnnHandle_t handle)
{
    const dnn_shape *s = &p->shape;
    const operation *o = &operations[s->kind];
    float alpha = 1.0f, beta = 0.0f;
    return make_tensor(&p->x, UID_X, s->dtype, s->N, s->C, s->H, s->W) &&
           make_tensor(&p->w, UID_W, s->w_dtype, s->O, s->C, s->K, s->K) &&
           make_tensor(&p->y, UID_Y, s->dtype, s->N, s->O, s->Ho, s->Wo) && make_conv(p) && make(&p->op, o->type) &&
           set(p->op, o->alpha, CUDNN_TYPE_FLOAT, 1, &alpha) && set(p->op, o->beta, CUDNN_TYPE_FLOAT, 1, &beta) &&
           set(p->op, o->conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->conv) &&
           set(p->op, o->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->x) &&
           set(p->op, o->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->w) &&
           set(p->op, o->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->y) && finish(p->op) &&
           make(&p->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) &&
           set(p->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) &&
           set(p->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->op) && finish(p->graph);
}

/* ---- engines ------------------------------------------------------------------------------------- */

typedef struct engine_list {
    desc config[ENGINES];
    int count;
} engine_list;

static void engines_close(engine_list *l)
{
    for (int i = 0; i < ENGINES; i++) drop(&l->config[i]);
    l->count = 0;
}

static void engines_open(const dnn_plan *p, cudnnBackendHeurMode_t mode, engine_list *l)
{
    desc heur = NULL;
    int64_t count = 0;
    *l = (engine_list){ .count = 0 };
    bool ok = make(&heur, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) &&
              set(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->graph) &&
              set(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) && finish(heur);
    for (int i = 0; ok && i < ENGINES; i++) ok = make(&l->config[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (ok && cuda_lib.cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                ENGINES, &count, l->config) == CUDNN_STATUS_SUCCESS)
        l->count = count < ENGINES ? (int)count : ENGINES;
    drop(&heur);
}

/* The engine of a configuration, whether it is deterministic and accurate enough, and whether it is compiled at run
 * time. */
static bool acceptable(const dnn_shape *s, desc config, int64_t *index, bool *compiles)
{
    desc engine = NULL;
    int64_t got = 0, notes = 0, behaviours = 0;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    bool ok = make(&engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR) &&
              cuda_lib.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                &got, &engine) == CUDNN_STATUS_SUCCESS &&
              cuda_lib.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got,
                                                index) == CUDNN_STATUS_SUCCESS &&
              cuda_lib.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &notes, note) == CUDNN_STATUS_SUCCESS;
    *compiles = false;
    if (ok && cuda_lib.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &behaviours,
                                                behaviour) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < behaviours; i++) *compiles |= behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    for (int64_t i = 0; ok && i < notes; i++) {
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
            ok = false;
        if (note[i] == CUDNN_NUMERICAL_NOTE_FFT ||
            (note[i] >= CUDNN_NUMERICAL_NOTE_WINOGRAD && note[i] <= CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13))
            ok = false;
        if (s->dtype == CLOOB_F32 &&
            (note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
            ok = false;
    }
    drop(&engine);
    return ok;
}

static bool make_plan(dnn_plan *p, cudnnHandle_t handle, desc config)
{
    int64_t got = 0;
    drop(&p->plan);
    return make(&p->plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) &&
           set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) &&
           set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) &&
           finish(p->plan) &&
           cuda_lib.cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                             &got, &p->workspace) == CUDNN_STATUS_SUCCESS &&
           p->workspace <= DNN_WORKSPACE;
}

/* ---- timing -------------------------------------------------------------------------------------- */

typedef struct trial {
    cloob_ctx *ctx;
    device *d;
    dnn_plan *p;
    void *x, *w, *y, *workspace;
    desc best; /* the fastest plan so far, and what it needs */
    int64_t best_workspace;
} trial;

static cloob_status trial_run(void *user)
{
    trial *t = user;
    return dnn_run(t->ctx, t->d, t->p, t->d->stream, t->x, t->w, t->y, t->workspace);
}

/* Noise in what the convolution reads, memory for what it writes. */
static cloob_status take(trial *t, void **out, cloob_dtype type, int64_t n, bool written)
{
    if (written) return cuda_trial_room(t->ctx, t->d, (size_t)n * dtype_size(type), out);
    return cuda_trial_noise(t->ctx, t->d, type, n, out);
}

static cloob_status trial_open(trial *t)
{
    const dnn_shape *s = &t->p->shape;
    CLOOB_TRY(take(t, &t->x, s->dtype, s->N * s->H * s->W * s->C, s->kind == DNN_DX));
    CLOOB_TRY(take(t, &t->w, s->w_dtype, s->O * s->K * s->K * s->C, s->kind == DNN_DW));
    CLOOB_TRY(take(t, &t->y, s->dtype, s->N * s->Ho * s->Wo * s->O, s->kind == DNN_FORWARD));
    return cuda_trial_room(t->ctx, t->d, (size_t)DNN_WORKSPACE, &t->workspace);
}

static void trial_close(trial *t)
{
    void *all[] = { t->x, t->w, t->y, t->workspace };
    for (int i = 0; i < 4; i++) cuda_trial_free(t->d, all[i]);
}

static void key_of(const dnn_shape *s, char key[TUNE_KEY])
{
    snprintf(key, TUNE_KEY, "conv%d-%lldx%lldx%lldx%lld-%lldx%lld-%lld,%lld-%d%d", (int)s->kind, (long long)s->N,
             (long long)s->H, (long long)s->W, (long long)s->C, (long long)s->O, (long long)s->K, (long long)s->stride,
             (long long)s->pad, (int)s->dtype, (int)s->w_dtype);
}

/* Times engine i of a list; best is what is known so far. */
static void try_engine(trial *t, bool room, cudnnBackendHeurMode_t mode, desc config, int i, int64_t engine,
                       choice *best)
{
    dnn_plan *p = t->p;
    float ms = 1e9f;
    char key[TUNE_KEY];
    if (!make_plan(p, cuda_use(t->d)->dnn, config)) return;
    if (room && cuda_time_against(t->ctx, t->d, trial_run, t, best->ms, &ms) != CLOOB_OK) return;
    key_of(&p->shape, key);
    ctx_log(t->ctx, CLOOB_LOG_DEBUG, "%s: list %d engine %lld: %.4f ms, %lld MiB", key, (int)mode, (long long)engine,
            (double)ms, (long long)(p->workspace >> 20));
    if (!best->none && ms >= best->ms) return;
    *best = (choice){ (int32_t)mode, i, engine, ms, 0 };
    drop(&t->best);
    t->best = p->plan, t->best_workspace = p->workspace;
    p->plan = NULL;
}

/* Engines that are compiled at run time (a second each, and never faster in a ResNet) are tried where nothing else
 * runs. */
static void try_list(trial *t, bool room, cudnnBackendHeurMode_t mode, choice *best)
{
    const dnn_shape *s = &t->p->shape;
    engine_list l;
    double begin = clock_seconds();
    engines_open(t->p, mode, &l);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < l.count; i++) {
            int64_t engine = -1;
            bool compiles;
            if (!acceptable(s, l.config[i], &engine, &compiles) || compiles != (pass == 1)) continue;
            if (!best->none && (compiles || !room || clock_seconds() - begin > TRY_SECONDS)) continue;
            try_engine(t, room, mode, l.config[i], i, engine, best);
        }
    engines_close(&l);
}

/* The fastest engine of the heuristics' list, or of the fallback list when none of the first runs; its plan is the
 * plan's own. */
static choice choose(cloob_ctx *ctx, device *d, dnn_plan *p)
{
    trial t = { .ctx = ctx, .d = d, .p = p };
    choice best = { .none = 1, .ms = 1e30f };
    bool room = trial_open(&t) == CLOOB_OK;
    try_list(&t, room, CUDNN_HEUR_MODE_A, &best);
    if (best.none) try_list(&t, room, CUDNN_HEUR_MODE_FALLBACK, &best);
    trial_close(&t);
    drop(&p->plan);
    p->plan = t.best, p->workspace = t.best_workspace;
    return best;
}

/* Makes the chosen plan; false if the list no longer has that engine at its place. */
static bool remake_plan(device *d, dnn_plan *p)
{
    const choice *c = &p->choice;
    engine_list l;
    int64_t engine = -1;
    bool compiles;
    engines_open(p, (cudnnBackendHeurMode_t)c->mode, &l);
    bool ok = c->index >= 0 && c->index < l.count && acceptable(&p->shape, l.config[c->index], &engine, &compiles) &&
              engine == c->engine && make_plan(p, cuda_use(d)->dnn, l.config[c->index]);
    engines_close(&l);
    if (!ok) drop(&p->plan);
    return ok;
}

static dnn_plan *find_plan(dnn_plan *list, const char *key)
{
    while (list && strcmp(list->key, key) != 0) list = list->next;
    return list;
}

/* Times engines and keeps the choice; false: none runs. */
static bool choose_by_timing(cloob_ctx *ctx, device *d, dnn_plan *p)
{
    cuda_state *s = cuda_use(d);
    p->choice = (choice){ .none = 1 };
    if (!p->graph && !make_graph(p, s->dnn)) return false;
    choice own = p->choice = choose(ctx, d, p);
    tune_put(s->tune, p->key, &p->choice, sizeof p->choice);
    if (memcmp(&own, &p->choice, sizeof own) != 0) drop(&p->plan); /* another process has chosen */
    return !p->choice.none && (p->plan || remake_plan(d, p));
}

cloob_status dnn_plan_create(cloob_ctx *ctx, device *d, const dnn_shape *shape, dnn_plan **out)
{
    cuda_state *s = cuda_use(d);
    char key[TUNE_KEY];
    key_of(shape, key);
    if ((*out = find_plan(s->dnn_plans, key))) return (*out)->users++, CLOOB_OK;
    dnn_plan *p = calloc(1, sizeof *p);
    if (!p) return ctx_no_memory(ctx, sizeof *p, "a convolution's plan");
    p->shape = *shape;
    memcpy(p->key, key, sizeof key);
    p->users = 1;
    p->list = &s->dnn_plans, p->next = s->dnn_plans, s->dnn_plans = p;
    if (!tune_get(s->tune, key, &p->choice, sizeof p->choice)) choose_by_timing(ctx, d, p);
    if (p->choice.none) dnn_plan_destroy(p);
    else *out = p;
    return CLOOB_OK;
}

bool dnn_plan_ready(cloob_ctx *ctx, device *d, dnn_plan *p)
{
    if (p->plan) return true;
    if (!p->graph && !make_graph(p, cuda_use(d)->dnn)) return false;
    return remake_plan(d, p) || choose_by_timing(ctx, d, p);
}

void dnn_plan_destroy(dnn_plan *p)
{
    if (!p || --p->users > 0) return;
    for (dnn_plan **at = p->list; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    desc *all[] = { &p->plan, &p->graph, &p->op, &p->conv, &p->x, &p->w, &p->y };
    for (int i = 0; i < 7; i++) drop(all[i]);
    free(p);
}

size_t dnn_plan_workspace(const dnn_plan *p) { return p ? (size_t)p->workspace : 0; }
float dnn_plan_ms(const dnn_plan *p) { return p->choice.ms; }

cloob_status dnn_run(cloob_ctx *ctx, device *d, const dnn_plan *p, void *stream, void *x, void *w, void *y,
                     void *workspace)
{
    static const int64_t uid[3] = { UID_X, UID_W, UID_Y };
    cuda_state *s = cuda_use(d);
    void *data[3] = { x, w, y };
    desc pack = NULL;
    cudnnStatus_t st = cuda_lib.cudnnSetStream(s->dnn, stream);
    bool ok = st == CUDNN_STATUS_SUCCESS && make(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) &&
              set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data) &&
              set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uid) &&
              set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace) && finish(pack);
    if (ok) st = cuda_lib.cudnnBackendExecute(s->dnn, p->plan, pack);
    drop(&pack);
    if (ok && st == CUDNN_STATUS_SUCCESS) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_DEVICE, "convolution: cuDNN: %s",
                    ok ? cuda_lib.cudnnGetErrorString(st) : "arguments refused");
}
