/* One training step: two towers forward, the objective over all embeddings, two towers backward, the ranks' sum, AdamW.
 *
 * Everything it needs is planned and taken by step_create; step_run allocates nothing. With `accum` above 1 the batch
 * is worked off in micro-batches: all embeddings first, one loss over all of them, then each micro-batch is recomputed
 * with its backward pass, so that the result is that of one large batch (batch norm sees the same micro-batches both
 * times and updates its running statistics once). */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "dist/comm.h"
#include "graph/exec.h"
#include "loss/loss.h"
#include "model/params.h"
#include "model/tower.h"
#include "train/hopfield_memory.h"

typedef struct step_options {
    model_config model;
    cloob_dtype compute;  /* F32 or BF16 */
    op_fp8 fp8;           /* with BF16, GEMMs of transformers; step_create refuses it where the GPU cannot */
    int64_t batch, accum; /* rows of a micro-batch on this rank; micro-batches per step */
    bool float_images;    /* images come normalised, F32 (B, 3, S, S), instead of bytes */
    cloob_method method;
    double inv_tau, beta, bias; /* bias: siglip */
    bool learn_inv_tau, learn_beta, learn_bias;
    int64_t
        hopfield_warmup;  /* updates without retrieval before it sets in: a young model's embeddings are so alike that
                                retrieval averages them into one (docs/reference/training.md) */
    const char *memory;   /* what the Hopfield networks store, see train/hopfield_memory.h; read by step_create only */
    params_training part; /* what is trained; zeroed: all */
    double layer_decay;   /* each group of a tower has this times the rate of the next towards the output; 1: none */
    bool bn_sync;
    bool pack_texts; /* the text tower works on the tokens up to the end tokens only: the same result to rounding */
    graph_grad_options grad; /* recompute: allowed, see train/towers.h */
    bool save_memory;        /* recompute cheap ops also where a GPU would rather keep them */
    double beta1, beta2, eps, wd;
    double clip; /* global norm; 0: none */
    double ema;  /* decay of an average of the weights; 0: none */
    bool eager;  /* on a GPU: queue every step anew instead of replaying a recording of it */
} step_options;

void step_options_init(
    step_options *o); /* CLOOB, the batch stored, the default inv_tau, beta and wd, AdamW .9 .999 1e-8, accum 1 */

typedef struct step_result {
    double loss, image_term, text_term;
    double grad_norm; /* of what training follows (loss_train_factor), before clipping */
    double inv_tau, beta;
    loss_result terms; /* as the objective gave it */
    bool skipped;      /* loss or gradient not finite: nothing was changed */
} step_result;

enum { STEP_SCALARS = 9 };

typedef struct step step;

/* Refuses a batch whose size does not fit the arithmetic of the plans. step_create asks it, too. */
cloob_status step_check_sizes(cloob_ctx *ctx, const step_options *o);
/* Refuses fp8 where the device has no such GEMMs. step_create asks it, too. */
cloob_status step_check_precision(cloob_ctx *ctx, const step_options *o, const device *dev);

/* c may be NULL (alone). Device and communicator outlive the step. Parameters are zero until params_init or params_load
 * on step_params. */
cloob_status step_create(cloob_ctx *ctx, const step_options *o, device *dev, comm *c, step **out);
void step_destroy(step *s);

/* Starts a batch on its way to the device: images (accum * batch, S, S, 3) bytes (or floats), tokens (accum * batch,
 * T), in host memory, which stays untouched until a step_run after this call has returned; with no other batch staged,
 * step_settle is enough. Where step_looks_ahead says so, the next step's batch may be staged before this step runs, and
 * arrives while it computes. */
cloob_status step_stage(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens);
bool step_looks_ahead(const step *s);
cloob_status step_settle(cloob_ctx *ctx, step *s); /* waits until the batch to run next has left host memory */

/* One update. images NULL: of the batch staged first; else of that one, which is staged here. lr: for this step. */
cloob_status step_run(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens, double lr, step_result *r);

/* The same without the update: the gradients of `loss` are left in the parameters' blocks. The update multiplies them
 * by loss_train_factor, as grad_norm is. For tests and for libraries. */
cloob_status step_gradients(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens, step_result *r);

/* What patch dropout draws from: the seed of the run, and the number of the step whose batch is staged next (0 at
 * first). */
void step_set_draws(step *s, uint64_t seed, int64_t next);

params *step_params(step *s);
double step_rate(const step *s, int row); /* what the learning rate of a parameter is multiplied by */

/* A tower by itself, for tests; of packed texts, the one that the last batch took. */
exec *step_tower(step *s, bool text);

/* Unit embeddings of the last step's rows on this rank, (accum * batch, D) F32 device memory. */
const float *step_embeddings(const step *s, bool text);

/* Planned device bytes: parameters, optimizer, activations, loss. */
typedef struct step_memory {
    size_t params_bytes, optimizer_bytes, image_bytes, text_bytes, loss_bytes, total_bytes;
} step_memory;
step_memory step_memory_of(const step *s);

/* The state between steps, for checkpoints: first and second moments and the average, laid out like the parameters; the
 * learnable scales with their moments; the number of updates. Pointers are device memory of params->trainable
 * floats. */
typedef struct step_state {
    float *m, *v, *ema;          /* ema NULL when off */
    double scalar[STEP_SCALARS]; /* logit inv_tau, its m, v; logit beta, its m, v; the logit bias, its m, v */
    int64_t count;
} step_state;
step_state step_get_state(const step *s);
hopfield_memory *step_stored(step *s); /* NULL: the batch is stored */
/* What kernels remember from step to step (exec_history): the image tower's, then that of every size of the text tower.
 * 8-bit GEMMs remember how large their factors were; nothing else has any. */
int64_t step_history_count(const step *s);
cloob_status step_history(cloob_ctx *ctx, step *s, float *numbers, bool set);
cloob_status step_set_scalars(cloob_ctx *ctx, step *s, const double scalar[STEP_SCALARS], int64_t count);

#endif
