/* The memory of a run, planned before anything is allocated; a run that does not fit is refused with numbers. */
#ifndef TRAIN_MEMORY_BUDGET_H
#define TRAIN_MEMORY_BUDGET_H

#include "train/step.h"

typedef struct memory_case {
    const step_options *o;
    device *dev;
    int ranks;
    int64_t eval_batch;  /* rows of validation at a time, between steps; 0: none */
    size_t loader_bytes; /* device memory of the loader */
} memory_case;

typedef struct memory_need {
    step_memory step;
    size_t eval_bytes;                   /* activations of validation, in addition to the step's */
    size_t reserve_bytes;                /* for the loader, and for allocations inside libraries */
    size_t total_bytes, available_bytes; /* available 0: not known */
} memory_need;

/* Plans without allocating. On a host the step's numbers equal step_memory_of exactly; on a GPU they include bounds for
 * the libraries' scratch memory (exec.h). */
cloob_status memory_plan(cloob_ctx *ctx, const memory_case *c, memory_need *out);

/* Free memory of a device, at most the environment variable CLOOB_MEMORY_LIMIT (bytes, or with K, M, G, T: powers of
 * 1024). */
cloob_status memory_available(cloob_ctx *ctx, device *dev, size_t *out);

/* memory_plan; fails with CLOOB_ERR_MEMORY if it does not fit: the error has the memory of each part, the free memory,
 * and the largest batch that fits. */
cloob_status memory_check(cloob_ctx *ctx, const memory_case *c, memory_need *out);

/* The largest batch up to c's that fits into free memory; 0: none does. */
cloob_status memory_largest_batch(cloob_ctx *ctx, const memory_case *c, int64_t *out);

/* "8G", "8GiB", "512M", "1000000"; false: not a size. */
bool memory_parse(const char *text, size_t *bytes);

/* Chooses what o, the options of c, recompute so that c plans at most `limit` bytes: first nothing in addition, then
 * cheap ops, then a growing share of the blocks, then all blocks. CLOOB_ERR_MEMORY when that is not enough. `out`: the
 * plan of the choice. */
cloob_status memory_fit(cloob_ctx *ctx, const memory_case *c, step_options *o, size_t limit, memory_need *out);

/* "25.70 GiB (parameters 0.90, ...), 139.10 GiB free" */
enum { MEMORY_TEXT = 320 };
const char *memory_text(const memory_need *n, char text[MEMORY_TEXT]);

/* ---- a model without weights ---- */

/* A known model, and the memory that a training step or embedding would take. Nothing is allocated for it. */
typedef struct model_outline {
    model_config config;
    int64_t tensors, parameters, image_parameters;
    step_memory step;   /* of a batch, on the CPU */
    size_t embed_bytes; /* weights and activations of embedding such a batch */
} model_outline;

/* model: a name or the path of a .json file; precision "fp32" (NULL), "bf16". */
cloob_status model_describe(cloob_ctx *ctx, const char *model, int64_t batch, const char *precision,
                            model_outline *out);

#endif
