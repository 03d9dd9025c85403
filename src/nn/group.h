/* Groups: calls that a backend may compute by one kernel.
 *
 * graph_fuse_gemm (graph/fuse_gemm.c) puts calls that belong together next to each other. Each stays an ordinary call
 * with its ordinary operands, and the members run one after the other are the definition. A backend lists kernels with
 * the pattern of ops that each computes; a kernel claims members in `prepare`, once per plan. Members that no kernel
 * claims run by themselves. A new fusion is a row of group_kernels_cuda (cuda/groups.c) and its functions. */
#ifndef NN_GROUP_H
#define NN_GROUP_H

#include "nn/op.h"

enum { GROUP_MEMBERS = 5 };

typedef struct group_kernel group_kernel;

/* Members of a group that run together. */
typedef struct op_group {
    const group_kernel *kernel;     /* NULL: a single member, by its op's own kernel */
    op_args *member[GROUP_MEMBERS]; /* in their order */
    int members;
    /* inner[i] bit k: these members read output k of member i, and no other op does. A kernel does not write such an
     * output: it has no memory, and `data` is NULL when the kernel runs. */
    unsigned inner[GROUP_MEMBERS];
    float ms; /* prepare: first the time of the members without this kernel, then the time of the kernel */
    void *scratch;
    size_t scratch_bytes;
    void *state;
} op_group;

/* Reports a call that is about to run. name: that of the op, or of the kernel that computes several of the members. */
typedef void op_call_fn(void *user, const char *name, const op_group *call);

struct group_kernel {
    const char *name;
    int pattern[GROUP_MEMBERS], length; /* by GROUP_PATTERN: ops in the order of the members; others may be between */
    /* Sets *claims when the kernel computes these members, and then ms, scratch_bytes and state. The members' own
     * kernels are prepared. Operands that are the same tensor have the same `data`, which is not an address yet. */
    cloob_status (*prepare)(const op_env *env, op_group *g, bool *claims);
    cloob_status (*run)(const op_env *env, const op_group *g);
    void (*release)(const op_env *env, op_group *g); /* optional */
    bool in_place; /* a member may store its result in place of an operand as its own kernel may (op_kernel.in_place) */
};

#define GROUP_PATTERN(...)                                                                                             \
    .pattern = { __VA_ARGS__ }, .length = (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))
#define GROUP_MAYBE(op) (-(int)(op)-1) /* in a pattern: an op that may be missing */

typedef struct group_table {
    const group_kernel *kernel; /* tried in this order: a later one replaces claims on parts of its members */
    int count;
    float (*ms)(const op_args *a); /* time of a prepared call by itself */
} group_table;

extern const group_table group_kernels_cuda; /* empty in a build without CUDA */

/* The kernels of a backend; an empty table where it has none. */
const group_table *group_table_of(backend_kind b);

/* Divides prepared members among the kernels of t: fills `part` in the order in which the parts run. read_outside[i]
 * bit k: output k of member i has readers outside the group. The caller releases each part's kernel. */
cloob_status group_plan(const op_env *env, const group_table *t, op_args *member, int members,
                        const unsigned *read_outside, op_group part[GROUP_MEMBERS], int *parts);

/* After planning: sets `data` of every operand of g that is an inner output to `mark`. */
void group_mark_inner(op_group *g, void *mark);

/* The first member of this op; NULL: none. */
static inline op_args *group_find(const op_group *g, op_id op)
{
    for (int i = 0; i < g->members; i++)
        if (g->member[i]->op == op) return g->member[i];
    return NULL;
}

/* Whether output 0 of member `of` is inner; true where `of` is NULL. A kernel declines a group in which an output that
 * it cannot write is not inner, or one that it must write is. */
static inline bool group_inner(const op_group *g, const op_args *of)
{
    for (int i = 0; i < g->members; i++)
        if (g->member[i] == of) return g->inner[i] & 1;
    return !of;
}

/* Whether an operand of a while planning is the tensor t. */
bool group_reads(const op_args *a, const tensor *t);

#endif
