/* Ops: what one is, and the table of them all.
 *
 * An op is a row: a name, a shape rule, a backward rule, and kernels per backend (ref: plain C, the definition; cpu;
 * cuda). Ops know tensors, not graphs. Kernels overwrite their outputs; they never add to them and never allocate.
 * Activations are (N, H, W, C), convolution weights (O, kh, kw, C), whatever the backend; sums run in float or wider.
 *
 * To add one: a line in op_list.h, its shape and backward rule in a file here, its loop in ref/, and a row in the
 * tests; fast kernels follow when they are worth it (docs/ops.md). */
#ifndef NN_OP_H
#define NN_OP_H

#include <math.h>

#include "tensor/device.h"

typedef enum op_id {
#define OP(id, name, shape, grad) OP_##id,
#include "nn/op_list.h"
#undef OP
    OP_COUNT
} op_id;

enum { OP_INPUTS = 8, OP_OUTPUTS = 6, OP_STEPS = 4 };
enum { OP_RESIDUAL = 3 }; /* input of conv2d that is added to output 0 */

/* int8 on a CPU (exec_create): output OP_ROUNDED_OUT of an op is output 0 in 8 bits, op_rounded_bytes of groups with
 * scales; input OP_ROUNDED_IN of linear and conv2d is such a copy of input 0. attr.rounded_out and attr.rounded_in mark
 * the op that writes them and those that read them. Where no op reads output 0 in its own type there is no copy: the
 * groups are stored in place of output 0. */
enum { OP_ROUNDED_IN = 4, OP_ROUNDED_OUT = 5 };

/* In inference, linear's factors rounded to e4m3, every row of both under a scale of its own, where the backend has
 * such GEMMs: never; where that was timed as faster; always. */
typedef enum op_fp8 { OP_FP8_NEVER, OP_FP8_FASTER, OP_FP8_ALWAYS } op_fp8;

typedef enum op_act { OP_ACT_NONE, OP_ACT_QUICKGELU, OP_ACT_GELU, OP_ACT_GELU_TANH } op_act;

/* Every op's settings in one struct; an op reads the fields its line in op_list.h names. */
typedef struct op_attr {
    int64_t stride, pad;   /* conv2d; dwconv: stride */
    int64_t heads;         /* attention ops */
    int64_t channels;      /* image_input: channels of the output, 3 or more; the rest is 0 */
    int64_t patch;         /* image_input: side of the windows that become rows; 0: none do; patch_rows */
    int64_t rows;          /* pack_texts, repeat_row: of the result; mean_rows, rope: left out in front; patch_rows: the
                            * most of one image */
    int64_t tokens;        /* packed attention: the most of one sequence; text_position: the place; rope: columns */
    int64_t token;         /* text_position: the id that is looked for; 0: none, the place is `tokens` */
    bool swapped, inverse; /* rope */
    bool unlike;           /* text_position: the last token that is not `token` */
    bool causal;           /* attention: query t sees keys 0..t */
    bool relu, pool;       /* bn_apply, conv2d: clamp at 0; then average 2 x 2 */
    bool transposed;       /* linear: the weight is stored (in, out) */
    bool sums;             /* act_bwd, layernorm_bwd, attention_bwd: also the sums of dx over its rows */
    bool rounded_in, rounded_out; /* 8-bit input 0, output 0 (OP_ROUNDED_IN) */
    bool keep_stats;              /* bn_stats: leave the running statistics alone (a second pass over the same batch) */
    op_act act;
    op_fp8 fp8;        /* linear; the CPU keeps 16 bits */
    cloob_dtype dtype; /* image_input, embed, repeat_row: element type of the output */
    float eps, momentum, scale;
    float offset;          /* rope */
    float mean[3], std[3]; /* image_input on bytes */
} op_attr;

/* Data that kernels derive from frozen weights, shared by executors of the same weights; the key is the weight's
 * address. */
typedef struct weight_cache weight_cache;
weight_cache *weight_cache_create(void); /* NULL when out of memory */
void weight_cache_destroy(weight_cache *k);
/* Memory that belongs to k, 256-aligned; *fresh: not filled yet, the caller does it now. NULL when out of memory, and
 * for k NULL. */
void *weight_cache_get(weight_cache *k, const void *weight, size_t bytes, bool *fresh);
/* The same where it is there already; NULL otherwise. */
void *weight_cache_find(const weight_cache *k, const void *weight);

/* Called with a weight that a kernel has packed into the cache and does not read again. */
void weight_cache_on_packed(weight_cache *k, void (*fn)(void *user, const void *weight, size_t bytes), void *user);
void weight_cache_packed(const weight_cache *k, const void *weight, size_t bytes);

/* A part of a batch: of tensors whose first dimension is `of`, only the first `live` places hold something. */
typedef struct op_live {
    int64_t of, live;
} op_live;

/* What all nodes of a run share. */
typedef struct op_env {
    cloob_ctx *ctx;
    device *dev;
    void *stream;
    /* Adds n floats of device memory over all ranks, in place, for batch statistics across ranks; NULL: one rank. */
    cloob_status (*sum_ranks)(void *user, float *values, int64_t n);
    void *sum_user;
    int ranks;
    bool frozen_weights; /* inference: a kernel may keep what it derives from weights between runs */
    weight_cache *cache; /* and share it here; NULL: not */
    bool invariant;      /* kernels choose by the shape of one row: a row has the same bytes in any batch */
    bool int8;           /* frozen matrices (out, in) are multiplied in 8 bits (cpu) */
    bool int8_fast;      /* all of them by activations of 7 bits instead of 13, where that is faster */
    bool keep_stats;     /* every bn_stats leaves the running statistics alone */
    op_live part[2];     /* kernels may leave the rest of a batch as it is; `of` 0: there is none */
} op_env;

/* One call of an op. An absent optional input or an output that is not read has data NULL when run, ndim -1 when
 * planned. */
typedef struct op_args {
    op_id op; /* for code that processes several calls */
    tensor in[OP_INPUTS], out[OP_OUTPUTS];
    op_attr attr;
    void *scratch; /* scratch_bytes of device memory, undefined content */
    size_t scratch_bytes;
    void *state; /* what prepare made */
} op_args;

/* ---- kernels ------------------------------------------------------------------------------------- */

typedef struct op_kernel {
    cloob_status (*run)(const op_env *env, const op_args *a);
    /* Optional, once per plan, with shapes but without data: sets a->scratch_bytes, may set a->state. */
    cloob_status (*prepare)(const op_env *env, op_args *a);
    void (*release)(const op_env *env, op_args *a);
    /* Output `in_place_out` may replace input 0 in memory if they have the same size and no op reads that input
     * later. */
    bool in_place;
    int in_place_out;
    bool adds_in_place; /* the same of input OP_RESIDUAL, unless another input is the same tensor */
} op_kernel;

/* One table per backend, indexed by op_id; run NULL: not there. cpu falls back to ref. */
extern const op_kernel op_kernels_ref[OP_COUNT];
extern const op_kernel op_kernels_cpu[OP_COUNT];
extern const op_kernel op_kernels_cuda[OP_COUNT];

/* The kernel to use; NULL when the backend has none. */
const op_kernel *op_find_kernel(backend_kind b, op_id op);

/* int8 on this CPU: whether a call reads input 0 in 8 bits, whether it can write output 0 in 8 bits, and the bytes of t
 * in 8 bits, at most those of t itself. */
bool op_reads_rounded(const op_env *env, const op_args *a);
bool op_writes_rounded(const op_env *env, const op_args *a);
int64_t op_rounded_bytes(const tensor *t);

/* The most scratch the cuda kernel of an op asks for in prepare, from shapes alone. */
size_t op_scratch_bound(op_id op, const op_args *a);

/* ---- backward rules ------------------------------------------------------------------------------ */

/* A backward rule lists the ops that compute the gradients of an op's inputs. Their operands are named by
 * reference: IN(k), OUT(k) of the forward op, G(k) the gradient of its output k, D(k) the gradient of its input k
 * (as an output), T(k) a temporary. A step whose op is OP_COUNT makes D(k) another name for its first operand. */
typedef int16_t op_ref;
enum { REF_NONE = -1, REF_IN = 0, REF_OUT = 32, REF_G = 64, REF_D = 96, REF_T = 128, REF_STEP = 32 };
#define IN(k)  (op_ref)(REF_IN + (k))
#define OUT(k) (op_ref)(REF_OUT + (k))
#define G(k)   (op_ref)(REF_G + (k))
#define D(k)   (op_ref)(REF_D + (k))
#define T(k)   (op_ref)(REF_T + (k))

typedef struct op_step {
    op_id op;
    op_attr attr;
    op_ref in[OP_INPUTS], out[OP_OUTPUTS]; /* REF_NONE where absent */
} op_step;

/* Fills steps for an op called with these attributes; bit k of `inputs`: input k is present. Returns how many
 * steps. */
typedef int op_grad_fn(const op_attr *attr, unsigned inputs, op_step step[OP_STEPS]);

/* A step with all references absent, and the given ones filled in: the way rules are written. */
void op_step_set(op_step *s, op_id op, const op_attr *attr, const op_ref *in, int n_in, const op_ref *out, int n_out);
#define STEP(s, op, attr, inputs, outputs)                                                                             \
    op_step_set(s, op, attr, (op_ref[])UNPACK inputs, (int)(sizeof((op_ref[])UNPACK inputs) / sizeof(op_ref)),         \
                (op_ref[])UNPACK outputs, (int)(sizeof((op_ref[])UNPACK outputs) / sizeof(op_ref)))
#define UNPACK(...)                                                                                                    \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* The forward call behind a backward call's `recomputed` output (op_list.h), for kernels that compute it by a separate
 * pass at the end: it uses the same scratch, which is large enough. */
op_args bn_recompute(const op_args *reduce);
op_args act_recompute(const op_args *backward);
op_args layernorm_recompute(const op_args *backward);

/* ---- the table ----------------------------------------------------------------------------------- */

/* Checks the inputs' shapes and types and fills out[].{dtype, ndim, dim}. */
typedef cloob_status op_shape_fn(cloob_ctx *ctx, op_args *a);

typedef struct op_row {
    const char *name;
    op_shape_fn *shape;
    op_grad_fn *grad; /* NULL: no gradient flows through */
} op_row;

extern const op_row op_table[OP_COUNT];

/* True for an input that lends its shape alone ("for its shape" in op_list.h): its content need not exist when the op
 * runs. */
bool op_lends_shape(op_id op, int k);

/* "conv2d: what went wrong", for shape rules. */
cloob_status op_refuse(cloob_ctx *ctx, op_id op, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define ABSENT ((tensor){ .ndim = -1 })
static inline bool op_has(const tensor *t) { return t->ndim >= 0; } /* while planning */

/* Rows of a tensor seen as a matrix whose columns are its last dimension. */
static inline int64_t tensor_rows(const tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < t->ndim; i++) n *= t->dim[i];
    return n;
}
static inline int64_t tensor_cols(const tensor *t) { return t->ndim ? t->dim[t->ndim - 1] : 1; }

/* Places of the first dimension, and rows, that are worked on. */
static inline int64_t op_live_places(const op_env *env, const tensor *t)
{
    for (int i = 0; i < 2; i++)
        if (t->ndim > 0 && env->part[i].of && env->part[i].of == t->dim[0]) return env->part[i].live;
    return t->ndim > 0 ? t->dim[0] : 1;
}
static inline int64_t op_live_rows(const op_env *env, const tensor *t)
{
    return t->ndim > 1 && t->dim[0] ? tensor_rows(t) / t->dim[0] * op_live_places(env, t) : tensor_rows(t);
}

/* patch_rows: h and w of a record, or the largest square of at most `most` patches. */
static inline void op_record_grid(const uint8_t *record, int64_t bytes, int64_t most, int32_t cells[2])
{
    const uint8_t *end = record + bytes - 4;
    cells[0] = end[0] | end[1] << 8;
    cells[1] = end[2] | end[3] << 8;
    if (cells[0] > 0 && cells[1] > 0 && (int64_t)cells[0] * cells[1] <= most) return;
    cells[0] = 1;
    while ((int64_t)(cells[0] + 1) * (cells[0] + 1) <= most) cells[0]++;
    cells[1] = cells[0];
}

enum { OP_GRID_SIDE = 128 }; /* grid_positions: the largest G */

/* image_input: the side of its windows, 1 where every position is its own. */
static inline int64_t image_patch(const op_attr *attr) { return attr->patch > 1 ? attr->patch : 1; }

/* bias: the element that column c of C gets, of a bias of n; -1: none (the keys' columns, where n is 2C/3). */
static inline int64_t op_bias_of(int64_t c, int64_t C, int64_t n)
{
    if (n == C || c < C / 3) return c;
    return c < C / 3 * 2 ? -1 : c - C / 3;
}

/* rope: the angle by which pair p of a head of e columns turns at place t behind the tokens left out. */
static inline double op_rope_angle(const op_attr *attr, int64_t t, int64_t p, int64_t e)
{
    int64_t bands = e / 4, row = t / attr->tokens, column = t % attr->tokens;
    bool first = p < bands;
    double at = (double)(first != attr->swapped ? row : column) + (double)attr->offset;
    double angle = at * (double)attr->scale * pow(10000.0, -(double)(p % bands) / (double)bands);
    return attr->inverse ? -angle : angle;
}

/* ---- sequences ----------------------------------------------------------------------------------- */

/* N sequences one after the other: of T rows each, or packed, by a table of their first rows. */
typedef struct op_sequences {
    int64_t N, T;         /* packed: T is the most of one */
    int64_t rows;         /* in all; packed: rows after the last sequence are padding */
    const int32_t *start; /* packed: (N + 1); NULL: not, or while planning */
} op_sequences;

static inline op_sequences op_sequences_of(const op_attr *attr, const tensor *x, const tensor *start)
{
    op_sequences even = { x->dim[0], tensor_rows(x) / x->dim[0], tensor_rows(x), NULL };
    op_sequences packed = { start->dim[0] - 1, attr->tokens, x->dim[0], (const int32_t *)start->data };
    return op_has(start) ? packed : even;
}

static inline int64_t op_first_row(const op_sequences *s, int64_t n) { return s->start ? s->start[n] : n * s->T; }
static inline int64_t op_row_count(const op_sequences *s, int64_t n)
{
    return s->start ? s->start[n + 1] - s->start[n] : s->T;
}

/* Where head h of H of sequence n begins in (N, H, T), or packed (H, rows). */
static inline int64_t op_head_at(const op_sequences *s, int64_t H, int64_t n, int64_t h)
{
    return s->start ? h * s->rows + s->start[n] : (n * H + h) * s->T;
}

#endif
