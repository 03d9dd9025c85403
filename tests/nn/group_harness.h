/* Groups of calls (nn/group.h), wired as graph_fuse_gemm wires them: the members run by ref one after the other against
 * what a backend makes of the group.
 *
 * A case is a row of group_cases: what kind of group, the sizes of its convolution or GEMM, and flags. */
#ifndef TESTS_GROUP_HARNESS_H
#define TESTS_GROUP_HARNESS_H

#include "nn/group.h"
#include "op_harness.h"

typedef enum group_kind {
    CONV_STATS,    /* C to O channels */
    APPLY_STATS,   /* bn_apply before it */
    APPLY_BOTH,    /* bn_apply whose residual is a bn_apply, C channels */
    IMAGE_STATS,   /* images in bytes, stride 2, to O channels */
    IMAGE_DW,      /* the weight gradient of that convolution */
    DX_REDUCE,     /* the gradient of a convolution of C to O channels, then bn_bwd_reduce of C channels */
    BWD_DX,        /* bn_bwd_apply of O channels, then the gradient of a convolution of C to O channels */
    LINEAR_ACT,    /* rows of C to O columns */
    LINEAR_DX_ACT, /* the gradient of a GEMM of C to O columns, then act_bwd of C columns */
} group_kind;

enum {
    K3 = 1,                         /* 3 x 3 instead of 1 x 1 */
    STRIDE = 2,                     /* 2 */
    KEEP_STATS = 4,                 /* running statistics stay */
    RES = 8,                        /* apply_stats: with a residual */
    BOTH = 16,                      /* apply_stats: the residual is a bn_apply */
    POOL = 32,                      /* apply_stats: what was applied is pooled, too; dx_reduce: y is */
    READ = 64,                      /* somebody else reads what the members have between them */
    NO_RELU = 128,                  /* apply_both */
    DW = 512,                       /* dx_reduce, bwd_dx: the weight's gradient, too */
    SPREAD = 1024,                  /* dx_reduce: the other gradient comes from behind a 2 x 2 pool */
    SECOND = 2048,                  /* dx_reduce: dx is the reduction's second gradient */
    APPLY = 4096,                   /* bwd_dx with DW: the other factor is a bn_apply of x2 */
    REDUCE = 8192,                  /* bwd_dx with APPLY: and that batch norm's reduction */
    BIAS = 16384,                   /* of the activation */
    SUMS = 32768,                   /* linear_dx_act: the bias's gradient */
    RECOMPUTE = 65536,              /* linear_dx_act: the activation is recomputed */
    QUICK = OP_ACT_QUICKGELU << 20, /* the activation */
    GELU = OP_ACT_GELU << 20,
    TANH = OP_ACT_GELU_TANH << 20,
};

typedef struct group_case {
    const char *name;
    group_kind kind;
    int64_t N, H, W; /* images; linear: N rows */
    int64_t C, O;
    int flags;
} group_case;

extern const group_case group_cases[], gpu_group_cases[];
extern const int group_case_count, gpu_group_case_count;

enum { GROUP_BUFFERS = 64 };

/* The members of one group in host memory, and what ref made of them. */
typedef struct group_pass {
    op_args member[GROUP_MEMBERS];
    int members;
    unsigned read_outside[GROUP_MEMBERS];
    tensor buffer[GROUP_BUFFERS]; /* inputs first; every operand is one of them */
    void *before[GROUP_BUFFERS];  /* the inputs' content before ref ran (running statistics change in place) */
    int buffers;
    uint64_t seed;
    cloob_dtype type;
} group_pass;

/* With fewer positions and rows where `small`, for compute-sanitizer. */
bool group_pass_run(cloob_ctx *ctx, const group_case *c, cloob_dtype type, bool small, group_pass *p);
void group_pass_release(group_pass *p);

/* Plans and runs the group on a device, with guard bytes around every tensor and poisoned outputs. Returns the largest
 * norm-wise relative error, or -1 after saying what went wrong. *claimed: the members that a group's kernel computed;
 * used, unless NULL: counts up the kernels of t. */
double group_compare(cloob_ctx *ctx, device *dev, const group_table *t, const group_case *c, const group_pass *p,
                     int *claimed, int *used);

#endif
