/* A graph made ready to run on a device: kernels chosen and prepared, memory planned and allocated once. Running it
 * allocates nothing.
 *
 *     exec *e;
 *     CLOOB_TRY(exec_create(ctx, &g, dev, &bindings, &e));
 *     copy images to exec_tensor(e, "images")->data
 *     CLOOB_TRY(exec_forward(e));
 *     ... exec_tensor(e, "output"), fill exec_tensor(e, "doutput") ...
 *     CLOOB_TRY(exec_backward(e));
 */
#ifndef GRAPH_EXEC_H
#define GRAPH_EXEC_H

#include "graph/graph.h"
#include "nn/group.h"

/* Where the parameters live, indexed like the graph's `param`. */
typedef struct exec_bindings {
    const tensor *param;  /* compute precision */
    const tensor *master; /* F32 */
    const tensor *grad;   /* F32; NULL for a graph without backward pass */
    bool frozen_weights;  /* inference: weights do not change between runs */
    weight_cache *cache;  /* frozen: data shared by executors of the same weights; outlives them; may be NULL */
    bool int8, int8_fast; /* frozen matrices in 8 bits (op_env) */
    bool invariant;       /* a row has the same bytes in any batch (op_env) */
    void *stream;         /* NULL: the device's own */
    cloob_status (*sum_ranks)(void *user, float *values, int64_t n); /* statistics across ranks; NULL: one rank */
    void *sum_user;
    int ranks;
} exec_bindings;

typedef struct exec exec;

/* The memory that a plan needs, without allocating it. */
typedef struct exec_memory {
    size_t arena_bytes, lower_bound_bytes, input_bytes;
} exec_memory;

/* Fills it for a graph on a device. On a host this equals the memory of exec_create. On a GPU scratch is a bound
 * (op_scratch_bound): nothing is timed or allocated, so the result may exceed the memory in use by the scratch of one
 * op. */
cloob_status exec_measure(cloob_ctx *ctx, const graph *g, device *dev, exec_memory *out);

/* The graph is read during creation only. */
cloob_status exec_create(cloob_ctx *ctx, const graph *g, device *dev, const exec_bindings *b, exec **out);
/* The same for `count` graphs with the same inputs that never run concurrently: they share their inputs and one arena,
 * as large as the largest of them needs. exec_memory_of(out[0]) reports the shared memory; out[0] owns it and is
 * destroyed last. */
cloob_status exec_create_family(cloob_ctx *ctx, const graph *g, int count, device *dev, const exec_bindings *b,
                                exec **out);
void exec_destroy(exec *e);

cloob_status exec_forward(exec *e);
cloob_status exec_backward(exec *e);
/* The forward pass without touching running statistics: the second of two passes over one batch. */
cloob_status exec_recompute_forward(exec *e);

/* An input or kept value by name, with its device pointer; NULL when absent. */
const tensor *exec_tensor(const exec *e, const char *name);
exec_memory exec_memory_of(const exec *e);

/* Limits later runs to a part of the batch: of tensors whose first dimension is part[i].of, the first part[i].live
 * rows. Kernels need not write the rest. The first part counts sequences. */
void exec_set_part(exec *e, op_live sequences, op_live rows);

/* The context that failures are written to may change between runs (one thread at a time). */
void exec_set_ctx(exec *e, cloob_ctx *ctx);

/* Calls fn before each call of a run, and once after the last with NULL and NULL: for timing on a device's stream. */
void exec_on_call(exec *e, op_call_fn *fn, void *user);

/* Calls fn after each backward node that completes a parameter's gradient, so that its exchange between ranks can start
 * while the rest is computed. */
void exec_on_grad(exec *e, void (*fn)(void *user, int param), void *user);

#endif
