/* Rules of batch norm. Training needs four passes over memory: statistics, apply, the backward reduction and the
 * backward apply; each is an op, so that relu, residual add and pooling can be folded into them and so that apply,
 * which is cheap, can be recomputed instead of stored. */
#include "nn/rules.h"

cloob_status shape_bn_stats(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_BN_STATS, a, 0, 4));
    int64_t C = a->in[0].dim[3];
    for (int k = 1; k < 3; k++) CLOOB_TRY(rule_vector(ctx, OP_BN_STATS, a, k, C));
    for (int k = 0; k < 2; k++) RULE_OUT(a, k, CLOOB_F32, C);
    return CLOOB_OK;
}

cloob_status shape_bn_running(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_BN_RUNNING, a, 0, 1));
    for (int k = 0; k < 2; k++) rule_like(a, k, &a->in[k]);
    return CLOOB_OK;
}

cloob_status shape_bn_apply(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0];
    CLOOB_TRY(rule_dims(ctx, OP_BN_APPLY, a, 0, 4));
    for (int k = 1; k < 5; k++) CLOOB_TRY(rule_vector(ctx, OP_BN_APPLY, a, k, x->dim[3]));
    if (op_has(&a->in[5]) && (!tensor_same_shape(x, &a->in[5]) || a->attr.pool))
        return op_refuse(ctx, OP_BN_APPLY, "a residual needs the shape of x and no pool");
    rule_like(a, 0, x);
    if (a->attr.pool) a->out[0].dim[1] /= 2, a->out[0].dim[2] /= 2;
    return CLOOB_OK;
}

/* With a residual, the gradient before relu is also the residual's, so the reduction writes it once and apply reads
 * it; without one, both passes compute it from dy. */
int grad_bn_apply(const op_attr *attr, unsigned inputs, op_step *s)
{
    if (!(inputs & 1u << 5)) {
        STEP(&s[0], OP_BN_BWD_REDUCE, attr, (G(0), REF_NONE, IN(0), IN(1), IN(2), IN(3), IN(4), REF_NONE),
             (D(3), D(4), T(0)));
        STEP(&s[1], OP_BN_BWD_APPLY, attr, (G(0), IN(0), IN(1), IN(2), IN(3), IN(4), T(0), REF_NONE), (D(0)));
        return 2;
    }
    op_attr plain = *attr;
    plain.relu = plain.pool = false;
    STEP(&s[0], OP_BN_BWD_REDUCE, attr,
         (G(0), REF_NONE, IN(0), IN(1), IN(2), IN(3), IN(4), attr->relu ? OUT(0) : REF_NONE), (D(3), D(4), T(0), T(1)));
    STEP(&s[1], OP_COUNT, NULL, (T(1)), (D(5)));
    STEP(&s[2], OP_BN_BWD_APPLY, &plain, (T(1), IN(0), IN(1), IN(2), IN(3), IN(4), T(0), REF_NONE), (D(0)));
    return 3;
}

cloob_status shape_bn_bwd_reduce(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_BN_BWD_REDUCE, a, 2, 4));
    int64_t C = a->in[2].dim[3];
    for (int k = 0; k < 2; k++) RULE_OUT(a, k, CLOOB_F32, C);
    RULE_OUT(a, 2, CLOOB_F32, 2, C);
    rule_like(a, 3, &a->in[2]);
    rule_like(a, 4, &a->in[2]);
    if (a->attr.pool) a->out[4].dim[1] /= 2, a->out[4].dim[2] /= 2;
    return CLOOB_OK;
}

op_args bn_recompute(const op_args *reduce)
{
    op_args a = { .attr = reduce->attr, .out = { reduce->out[4] }, .scratch = reduce->scratch };
    for (int k = 0; k < 5; k++) a.in[k] = reduce->in[k + 2];
    return a;
}

cloob_status shape_bn_bwd_apply(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_BN_BWD_APPLY, a, 1, 4));
    rule_like(a, 0, &a->in[1]);
    return CLOOB_OK;
}

cloob_status shape_fold_bn(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_FOLD_BN, a, 0, 4));
    for (int k = 1; k < 5; k++) CLOOB_TRY(rule_vector(ctx, OP_FOLD_BN, a, k, a->in[0].dim[0]));
    rule_like(a, 0, &a->in[0]);
    RULE_OUT(a, 1, CLOOB_F32, a->in[0].dim[0]);
    return CLOOB_OK;
}
