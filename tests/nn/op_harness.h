/* One op at a time: made-up inputs, the forward op, its backward rule step by step, on any backend. */
#ifndef TESTS_OP_HARNESS_H
#define TESTS_OP_HARNESS_H

#include "nn/op.h"

typedef enum input_kind {
    INPUT_ABSENT,
    INPUT_VALUES,   /* numbers near 1 in the compute type */
    INPUT_VECTOR,   /* F32: gain, bias, statistic */
    INPUT_POSITIVE, /* F32, positive */
    INPUT_TABLE,    /* F32 */
    INPUT_BYTES,
    INPUT_TOKENS,   /* below the bound */
    INPUT_INDEX,    /* rows below the bound */
    INPUT_DISTINCT, /* rows below the bound, different in each list */
    INPUT_STARTS,   /* rising starts of sequences of 1 to attr.tokens rows, all below the bound */
} input_kind;

typedef struct op_input {
    input_kind kind;
    int64_t dim[TENSOR_DIMS]; /* 0 ends; the bound is dim[7] */
} op_input;

/* clang-format off */
#define NO_INPUT              { INPUT_ABSENT }
#define VALUES(...)           { INPUT_VALUES, { __VA_ARGS__ } }
#define VECTOR(n)             { INPUT_VECTOR, { n } }
#define POSITIVE(n)           { INPUT_POSITIVE, { n } }
#define TABLE(...)            { INPUT_TABLE, { __VA_ARGS__ } }
#define BYTES(...)            { INPUT_BYTES, { __VA_ARGS__ } }
#define TOKENS(n, t, bound)   { INPUT_TOKENS, { n, t, [7] = bound } }
#define INDEX(n, bound)       { INPUT_INDEX, { n, [7] = bound } }
#define DISTINCT(n, k, bound) { INPUT_DISTINCT, { n, k, [7] = bound } }
#define STARTS(n, rows)       { INPUT_STARTS, { n, [7] = rows } }
#define ATTR(...)             { __VA_ARGS__ }
/* clang-format on */

typedef struct op_case {
    const char *name;
    op_id op;
    op_attr attr;
    op_input in[OP_INPUTS];
} op_case;

extern const op_case op_cases[], gpu_op_cases[];
extern const int op_case_count, gpu_op_case_count;

/* A case of gpu_op_cases with fewer rows, for compute-sanitizer. */
op_case op_case_small(const op_case *c);

/* Tensors of one pass over an op and its backward rule, all in host memory. */
typedef struct op_pass {
    op_args forward;
    op_args step[OP_STEPS];
    op_step rule[OP_STEPS];
    int steps;
    tensor g, d[OP_INPUTS];  /* gradient of output 0; gradients of the inputs, data NULL where there is none */
    void *before[OP_INPUTS]; /* the forward op's inputs as they were (running statistics change in place) */
    void *owned[160];
    int owned_count;
} op_pass;

/* Fills the inputs from a seed in the given compute type and runs forward and backward on ref. */
bool op_pass_run(cloob_ctx *ctx, const op_case *c, cloob_dtype type, uint64_t seed, op_pass *p);
/* Runs the forward op again on ref, as the inputs are now; batch norm takes its statistics again. */
bool op_pass_forward(cloob_ctx *ctx, const op_case *c, op_pass *p);
void op_pass_release(op_pass *p);

/* Runs one call on a device, with guard bytes around every tensor and poisoned outputs, and compares with what the
 * expected call holds. before: the inputs' content, NULL: as in expected. Returns the largest norm-wise relative error,
 * or -1 after saying what went wrong. *ran is false when the backend has no such kernel. */
double op_compare(cloob_ctx *ctx, device *dev, op_id op, const op_args *expected, void *const *before, bool *ran);

/* ---- pieces that group_harness.c shares ---------------------------------------------------------- */

enum { GUARD_BYTES = 256 };

typedef struct guarded_bytes {
    char *on_device, *host; /* the content is behind GUARD_BYTES bytes */
    size_t bytes;
} guarded_bytes;

/* Memory for t on a device, with guard bytes around it; content NULL: poisoned. Sets t->data. */
cloob_status guard_up(cloob_ctx *ctx, device *dev, const void *content, guarded_bytes *g, tensor *t);
/* Copies the bytes back; false when a guard was written. The caller frees both. */
bool guard_down(cloob_ctx *ctx, device *dev, guarded_bytes *g);

void harness_draw(const tensor *t, input_kind kind, uint64_t key); /* kinds without a bound */
bool harness_run_ref(cloob_ctx *ctx, op_id op, op_args *a);
/* From now on harness_run_ref computes convolutions, GEMMs and attention with this cpu device, in F32 and on all cores;
 * test_ops compares that backend with ref. NULL: always ref. */
void harness_use_cpu(device *cpu);
double harness_error(const tensor *got, const tensor *want); /* norm of the difference over that of `want` */

#endif
