/* How members of a group are divided among kernels, by a table of made-up kernels: no GPU is needed. */
#include "check.h"

#include "nn/group.h"

static cloob_ctx *ctx;
static int asked, released;
static float offered[8]; /* ms that each kernel was asked to beat, in order */

static float ms_of(const op_args *a) { return a->op == OP_CONV2D ? 10.0f : 1.0f; }

/* Claims what it is faster at: its name's length is its time. */
static cloob_status prepare(const op_env *env, op_group *g, bool *claims)
{
    (void)env;
    offered[asked++] = g->ms;
    float ms = (float)strlen(g->kernel->name);
    *claims = ms < g->ms;
    if (*claims) g->ms = ms;
    g->state = &released;
    return CLOOB_OK;
}

static void release(const op_env *env, op_group *g)
{
    (void)env;
    CHECK(g->state == &released);
    released++;
}

static cloob_status fail(const op_env *env, op_group *g, bool *claims)
{
    (void)g, (void)claims;
    return ctx_fail(env->ctx, CLOOB_ERR_DEVICE, "out of order");
}

#define FUNCTIONS .prepare = prepare, .release = release

/* bn_apply, avgpool2, conv2d, bn_stats: y = conv(applied). Data: 1 x, 2 applied, 3 pooled, 4 w, 5 y, 6 mean. */
static void make_members(op_args *m)
{
    static const op_id op[] = { OP_BN_APPLY, OP_AVGPOOL2, OP_CONV2D, OP_BN_STATS };
    static const intptr_t in[][2] = { { 1, 0 }, { 2, 0 }, { 2, 4 }, { 5, 0 } }, out[] = { 2, 3, 5, 6 };
    for (int i = 0; i < 4; i++) {
        m[i] = (op_args){ .op = op[i] };
        for (int k = 0; k < OP_INPUTS; k++) m[i].in[k] = ABSENT;
        for (int k = 0; k < OP_OUTPUTS; k++) m[i].out[k] = ABSENT;
        for (int k = 0; k < 2 && in[i][k]; k++) m[i].in[k] = TENSOR(CLOOB_F32, (void *)in[i][k], 1);
        m[i].out[0] = TENSOR(CLOOB_F32, (void *)out[i], 1);
    }
}

static int plan(const group_kernel *kernel, int kernels, op_args *m, const unsigned *read, op_group *part)
{
    device dev = { .backend = BACKEND_REF };
    op_env env = { .ctx = ctx, .dev = &dev, .ranks = 1 };
    group_table t = { kernel, kernels, ms_of };
    int parts = 0;
    asked = released = 0;
    make_members(m);
    CHECK_OK(ctx, group_plan(&env, &t, m, 4, read, part, &parts));
    return parts;
}

/* Without a kernel the members run by themselves in their order. */
static void members_run_alone(void)
{
    op_args m[4];
    op_group part[GROUP_MEMBERS];
    CHECK(plan(NULL, 0, m, (unsigned[]){ 1, 1, 1, 1 }, part) == 4);
    for (int i = 0; i < 4; i++) CHECK(!part[i].kernel && part[i].members == 1 && part[i].member[0] == &m[i]);
    CHECK(group_table_of(BACKEND_CPU)->count == 0 && group_table_of(BACKEND_REF)->count == 0);
}

/* A longer pattern is compared with the shorter one that was claimed before, and replaces it. The member between that
 * it does not name runs behind it. */
static void a_faster_kernel_takes_over(void)
{
    const group_kernel kernels[] = {
        { .name = "nine ms..", GROUP_PATTERN(OP_CONV2D, OP_BN_STATS), FUNCTIONS },
        { .name = "8 ms....", GROUP_PATTERN(GROUP_MAYBE(OP_BN_APPLY), OP_BN_APPLY, OP_CONV2D, OP_BN_STATS), FUNCTIONS },
        { .name = "slower than that", GROUP_PATTERN(OP_BN_APPLY, OP_AVGPOOL2, OP_CONV2D, OP_BN_STATS), FUNCTIONS },
        { .name = "x", GROUP_PATTERN(OP_CONV2D, OP_ADD), FUNCTIONS },
    };
    op_args m[4];
    op_group part[GROUP_MEMBERS];
    CHECK(plan(kernels, 4, m, (unsigned[]){ 0, 1, 1, 1 }, part) == 2);
    CHECK(asked == 3 && offered[0] == 11.0f && offered[1] == 10.0f && offered[2] == 9.0f);
    CHECK(released == 2); /* the first when it was replaced, the third when it declined */
    CHECK(part[0].kernel == &kernels[1] && part[0].members == 3 && part[0].ms == 8.0f);
    CHECK(part[0].member[0] == &m[0] && part[0].member[1] == &m[2] && part[0].member[2] == &m[3]);
    CHECK(!part[1].kernel && part[1].member[0] == &m[1]);
    CHECK(group_find(&part[0], OP_BN_STATS) == &m[3] && !group_find(&part[0], OP_AVGPOOL2));
}

/* What other members, or others outside, read is written; the rest has no memory. */
static void inner_values_are_not_written(void)
{
    const group_kernel three = { .name = "x", GROUP_PATTERN(OP_BN_APPLY, OP_CONV2D, OP_BN_STATS), FUNCTIONS };
    const group_kernel four = { .name = "x",
                                GROUP_PATTERN(OP_BN_APPLY, OP_AVGPOOL2, OP_CONV2D, OP_BN_STATS),
                                FUNCTIONS };
    op_args m[4];
    op_group part[GROUP_MEMBERS];
    plan(&three, 1, m, (unsigned[]){ 0, 1, 1, 1 }, part);
    CHECK(!group_inner(&part[0], &m[0])); /* the pool reads it */
    plan(&four, 1, m, (unsigned[]){ 1, 1, 1, 1 }, part);
    CHECK(!group_inner(&part[0], &m[0])); /* somebody outside does */
    CHECK(plan(&four, 1, m, (unsigned[]){ 0, 1, 1, 0 }, part) == 1);
    CHECK(group_inner(&part[0], &m[0]) && !group_inner(&part[0], &m[2]) && group_inner(&part[0], NULL));
    CHECK(!group_inner(&part[0], &m[3])); /* nobody reads it: it is written all the same */
    group_mark_inner(&part[0], NULL);
    CHECK(!m[0].out[0].data && !m[1].in[0].data && !m[2].in[0].data && m[0].in[0].data && m[2].in[1].data);
}

static void claims_do_not_overlap(void)
{
    const group_kernel kernels[] = { { .name = "x", GROUP_PATTERN(OP_BN_APPLY, OP_CONV2D), FUNCTIONS },
                                     { .name = "y", GROUP_PATTERN(OP_CONV2D, OP_BN_STATS), FUNCTIONS } };
    op_args m[4];
    op_group part[GROUP_MEMBERS];
    CHECK(plan(kernels, 2, m, (unsigned[]){ 1, 1, 1, 1 }, part) == 3 && asked == 1);
}

static void failures_release_claims(void)
{
    const group_kernel kernels[] = { { .name = "x", GROUP_PATTERN(OP_CONV2D, OP_BN_STATS), FUNCTIONS },
                                     { .name = "y", GROUP_PATTERN(OP_AVGPOOL2), .prepare = fail } };
    device dev = { .backend = BACKEND_REF };
    op_env env = { .ctx = ctx, .dev = &dev, .ranks = 1 };
    group_table t = { kernels, 2, ms_of };
    op_args m[4];
    op_group part[GROUP_MEMBERS];
    int parts;
    asked = released = 0;
    make_members(m);
    CHECK(group_plan(&env, &t, m, 4, (unsigned[]){ 1, 1, 1, 1 }, part, &parts) != CLOOB_OK && released == 1);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(members_run_alone);
    RUN(a_faster_kernel_takes_over);
    RUN(inner_values_are_not_written);
    RUN(claims_do_not_overlap);
    RUN(failures_release_claims);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
