/* The table of ops, the choice of a kernel, and helpers of the rules. */
#include <stdarg.h>
#include <stdio.h>

#include "nn/rules.h"

const op_row op_table[OP_COUNT] = {
#define OP(id, name, shape, grad) [OP_##id] = { #name, shape, grad },
#include "nn/op_list.h"
#undef OP
};

bool op_lends_shape(op_id op, int k)
{
    switch (op) {
    case OP_CONV2D_DX:
    case OP_CONV2D_DW:
    case OP_DWCONV_DX:
    case OP_DWCONV_DW:
    case OP_LINEAR_DX:
    case OP_LINEAR_DW:
    case OP_HEADS_DW:
    case OP_TAKE_ROWS_BWD: return k == 2;
    case OP_EMBED_BWD: return k == 2 || k == 3;
    case OP_PACK_TEXTS:
    case OP_BIAS_BWD:
    case OP_GRID_POSITIONS_BWD:
    case OP_MEAN_ROWS_BWD:
    case OP_AVGPOOL2_BWD: return k == 1;
    case OP_MEAN_TOKENS_BWD:
    case OP_GRID_TOKENS_BWD:
    case OP_CLASS_TOKENS_BWD: return k >= 1;
    case OP_L2NORM_BWD: return k == 3;
    default: return false;
    }
}

const op_kernel *op_find_kernel(backend_kind b, op_id op)
{
    const op_kernel *k = b == BACKEND_CUDA  ? &op_kernels_cuda[op]
                         : b == BACKEND_CPU ? &op_kernels_cpu[op]
                                            : &op_kernels_ref[op];
    if (!k->run && b == BACKEND_CPU) k = &op_kernels_ref[op];
    return k->run ? k : NULL;
}

cloob_status op_refuse(cloob_ctx *ctx, op_id op, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %s", op_table[op].name, text);
}

void op_step_set(op_step *s, op_id op, const op_attr *attr, const op_ref *in, int n_in, const op_ref *out, int n_out)
{
    *s = (op_step){ .op = op };
    if (attr) s->attr = *attr;
    for (int i = 0; i < OP_INPUTS; i++) s->in[i] = i < n_in ? in[i] : REF_NONE;
    for (int i = 0; i < OP_OUTPUTS; i++) s->out[i] = i < n_out ? out[i] : REF_NONE;
}

void rule_like(op_args *a, int k, const tensor *t)
{
    a->out[k] = *t;
    a->out[k].data = NULL;
}

static cloob_status like(op_args *a, int count)
{
    for (int k = 0; k < count; k++) rule_like(a, k, &a->in[k + 1]);
    return CLOOB_OK;
}

/* Gradients of what forward read: the first outputs are like inputs 1, 2 and 3. */
cloob_status shape_like_one(cloob_ctx *ctx, op_args *a) { return (void)ctx, like(a, 1); }
cloob_status shape_like_two(cloob_ctx *ctx, op_args *a) { return (void)ctx, like(a, 2); }
cloob_status shape_like_three(cloob_ctx *ctx, op_args *a) { return (void)ctx, like(a, 3); }

cloob_status rule_dims(cloob_ctx *ctx, op_id op, const op_args *a, int k, int ndim)
{
    char shape[SHAPE_TEXT];
    if (op_has(&a->in[k]) && a->in[k].ndim == ndim) return CLOOB_OK;
    return op_refuse(ctx, op, "input %d needs %d dimensions, has %s", k, ndim,
                     op_has(&a->in[k]) ? tensor_shape_text(&a->in[k], shape) : "none");
}

cloob_status rule_sequences(cloob_ctx *ctx, op_id op, const op_args *a, int k, const tensor *start)
{
    if (!op_has(start)) return rule_dims(ctx, op, a, k, 3);
    if (start->ndim != 1 || start->dtype != CLOOB_I32 || start->dim[0] < 2 || a->attr.tokens < 1)
        return op_refuse(ctx, op, "packed rows need their starts, (N + 1) I32, and the most tokens of a sequence");
    return rule_dims(ctx, op, a, k, 2);
}

cloob_status rule_vector(cloob_ctx *ctx, op_id op, const op_args *a, int k, int64_t n)
{
    char shape[SHAPE_TEXT];
    const tensor *t = &a->in[k];
    bool real = t->dtype == CLOOB_F32 || t->dtype == CLOOB_F64;
    if (!op_has(t) || (real && t->ndim == 1 && t->dim[0] == n)) return CLOOB_OK;
    return op_refuse(ctx, op, "input %d needs (%lld) F32, has %s %s", k, (long long)n, tensor_shape_text(t, shape),
                     dtype_name(t->dtype));
}
