/* One training step: two towers forward, the objective over all embeddings, two towers backward, the ranks' sum, AdamW.
 *
 * step_create plans and allocates all memory; step_run allocates nothing. With `accum` above 1 the batch is processed
 * in micro-batches: all embeddings first, one loss over all of them, then each micro-batch is recomputed with its
 * backward pass, so the result equals one large batch (batch norm sees the same micro-batches both times and updates
 * its running statistics once). */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "cloob/train.h"
#include "dist/comm.h"
#include "graph/exec.h"
#include "loss/loss.h"
#include "model/params.h"
#include "model/tower.h"
#include "train/hopfield_memory.h"

/* A custom loss (cloob/train.h); call NULL: the method's. */
typedef struct step_loss {
    bool (*call)(void *user, cloob_loss_call *c);
    void *user;
} step_loss;

typedef struct step_options {
    model_config model;
    cloob_dtype compute;  /* F32 or BF16 */
    int64_t batch, accum; /* rows of a micro-batch on this rank; micro-batches per step */
    bool float_images;    /* images are normalised, F32 (B, 3, S, S), instead of bytes */
    cloob_method method;
    step_loss own;
    double inv_tau, beta, bias; /* bias: siglip */
    bool learn_inv_tau, learn_beta, learn_bias;
    /* Updates before retrieval starts: early embeddings are so similar that retrieval averages them into one
     * (docs/reference/training.md). */
    int64_t hopfield_warmup;
    const char *memory;   /* what the Hopfield networks store, see train/hopfield_memory.h; read by step_create only */
    params_training part; /* what is trained; zeroed: all */
    double layer_decay;   /* a group's learning rate is this times that of the next group; 1: off */
    bool bn_sync;
    bool pack_texts; /* the text tower computes only the tokens up to the end tokens: the same result up to rounding */
    graph_grad_options grad; /* recompute: allowed, see train/step_impl.h */
    bool save_memory;        /* recompute cheap ops also where a GPU would keep their results */
    double beta1, beta2, eps, wd;
    double clip; /* global norm; 0: none */
    double ema;  /* decay of an average of the weights; 0: none */
    bool eager;  /* on a GPU: launch every step kernel by kernel instead of replaying a captured graph */
} step_options;

/* CLOOB with the batch as memory, the default inv_tau, beta and wd, AdamW .9 .999 1e-8, accum 1. */
void step_options_init(step_options *o);

typedef struct step_result {
    double loss, image_term, text_term;
    double grad_norm; /* of the loss times step_train_factor, before clipping */
    double inv_tau, beta;
    loss_result terms; /* as the objective returned it */
    bool skipped;      /* loss or gradient not finite: nothing was changed */
} step_result;

typedef struct step step;

/* Refuses a batch whose size would overflow the plans. step_create calls it. */
cloob_status step_check_sizes(cloob_ctx *ctx, const step_options *o);

/* c may be NULL (one rank). Device and communicator outlive the step. Parameters are zero until params_init or
 * params_load on step_params. */
cloob_status step_create(cloob_ctx *ctx, const step_options *o, device *dev, comm *c, step **out);
void step_destroy(step *s);

/* Starts the upload of a batch: images (accum * batch, S, S, 3) bytes (or floats), tokens (accum * batch, T), in host
 * memory, which must not change until a step_run after this call has returned; with no other batch staged, until
 * step_wait_upload. If step_looks_ahead is true, the next step's batch may be staged before this step runs, and is
 * copied while it computes. */
cloob_status step_stage(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens);
bool step_looks_ahead(const step *s);
cloob_status step_wait_upload(cloob_ctx *ctx,
                              step *s); /* waits until the batch to run next is copied out of host memory */

/* One update. images NULL: with the batch staged first; else with this batch, which is staged here. lr: for this
 * step. */
cloob_status step_run(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens, double lr, step_result *r);

/* The same without the update: the gradients of `loss` are left in the parameters' blocks. The update multiplies them
 * by step_train_factor, as grad_norm is. For tests and for libraries. */
cloob_status step_gradients(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens, step_result *r);

/* Patch dropout (FLIP): in training a ViT sees only some patches of each image.
 *
 * The choice is a function of the seed, the step and the row in the batch of all ranks: the same for any number of
 * threads, ranks or micro-batches, and after a resume. Evaluation sees all patches. */

/* Tokens of an image that are kept: patches, and the class token if there is one; 0: no dropout. */
int64_t patch_dropout_tokens(const model_config *c);
/* kept (rows, patch_dropout_tokens): tokens to keep, ascending, of rows first_row, first_row + 1, ... of step
 * `number`. */
void patch_dropout_draw(cloob_ctx *ctx, const model_config *c, uint64_t seed, int64_t number, int64_t first_row,
                        int64_t rows, int32_t *kept);
/* Sets the source of patch dropout's draws: the seed of the run, and the number of the step whose batch is staged next
 * (0 at first). */
void step_set_draws(step *s, uint64_t seed, int64_t next);

/* loss_train_factor of the method; 1 with a custom loss. */
double step_train_factor(const step_options *o, double inv_tau);

params *step_params(step *s);
double step_rate(const step *s, int row); /* the factor of the learning rate of a parameter */

/* One tower, for tests; with packed texts, the one that the last batch used. */
exec *step_tower(step *s, bool text);

/* Unit embeddings of the last step's rows on this rank, (accum * batch, D) F32 device memory. */
const float *step_embeddings(const step *s, bool text);

/* Planned device bytes: parameters, optimizer, activations, loss. */
typedef struct step_memory {
    size_t params_bytes, optimizer_bytes, image_bytes, text_bytes, loss_bytes, total_bytes;
} step_memory;
step_memory step_memory_of(const step *s);

/* A scalar of the objective that may be learned, with Adam's moments. */
typedef struct learned_scalar {
    double value, m, v;
} learned_scalar;

typedef struct step_scalars {
    learned_scalar inv_tau, beta; /* logarithms */
    learned_scalar bias;
} step_scalars;

/* The state between steps, for checkpoints: first and second moments and the average, laid out like the parameters; the
 * learned scalars; the number of updates. Pointers are device memory of params->trainable floats. */
typedef struct step_state {
    float *m, *v, *ema; /* ema NULL when off */
    step_scalars scalars;
    int64_t count;
} step_state;
step_state step_get_state(const step *s);
hopfield_memory *step_stored(step *s); /* NULL: the batch is the memory */
cloob_status step_set_scalars(cloob_ctx *ctx, step *s, const step_scalars *scalars, int64_t count);

#endif
