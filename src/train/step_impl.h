/* Internals of a step: step.c creates it, step_run.c runs it. */
#ifndef TRAIN_STEP_IMPL_H
#define TRAIN_STEP_IMPL_H

#include "optim/adamw.h"
#include "tensor/device.h"
#include "train/step.h"

/* Uploads batches from host memory to the towers' input buffers.
 *
 * On a GPU a micro-batch is first copied to a staging buffer while the one before is computed. batch_upload_take copies
 * it from there to the towers' inputs, whose addresses do not change, and frees the staging buffer for the next. With
 * one micro-batch per step, the next step's batch may be started before this one is taken: its copy begins then. On a
 * host the towers' inputs are filled directly. */

typedef struct batch_upload batch_upload;

/* The parts of a batch. UPLOAD_KEPT exists only with patch dropout. */
enum { UPLOAD_IMAGES, UPLOAD_TOKENS, UPLOAD_KEPT, UPLOAD_PARTS };

/* to: the towers' inputs, for one of `accum` micro-batches; NULL: no such part. The device outlives the upload. */
cloob_status batch_upload_create(cloob_ctx *ctx, device *dev, const tensor *const to[UPLOAD_PARTS], int64_t accum,
                                 batch_upload **out);
void batch_upload_destroy(batch_upload *st); /* NULL is valid */

/* Device bytes of the staging buffer for an input of `bytes`. */
size_t batch_upload_bytes(const device *dev, size_t bytes);

/* True when a batch may be started before the previous one has been taken. */
bool batch_upload_ahead(const batch_upload *st);

/* Starts the upload of accum micro-batches from host memory, which must not change until batch_upload_wait after they
 * were taken. note: a number for each, which batch_upload_note returns; NULL: 0. */
cloob_status batch_upload_start(cloob_ctx *ctx, batch_upload *st, const void *const part[UPLOAD_PARTS],
                                const int *note);

/* The note of the micro-batch that batch_upload_take copies next; 0: none. */
int batch_upload_note(const batch_upload *st);

/* Fills the towers' inputs with the next micro-batch, in the order 0, 1, ..., accum - 1, and again in this order when
 * accum is above 1. CLOOB_ERR_ARGUMENT when no batch was started. */
cloob_status batch_upload_take(cloob_ctx *ctx, batch_upload *st, int64_t micro);

/* Waits until the copies that were started no longer read host memory. */
cloob_status batch_upload_wait(cloob_ctx *ctx, batch_upload *st);

/* ---- the towers as graphs ---- */

/* The towers of a step as graphs, for step.c and memory_budget.c.
 *
 * A tower is one graph. Packed texts have several, with rising numbers of rows, and a batch uses the first that holds
 * its tokens: shapes are planned, so the number of rows must be fixed. */

enum { TOWER_SIZES = 7 };

typedef struct towers {
    graph g[TOWER_SIZES];
    int64_t rows[TOWER_SIZES]; /* packed texts: of each graph, rising; the last holds full-length texts */
    int count;
} towers;

/* Cheap ops are recomputed in the backward pass; a transformer on a GPU keeps their results instead: a third
 * of its memory for a twentieth of its time (docs/measurements/gpu.md). Release t whatever the status. */
cloob_status towers_build(cloob_ctx *ctx, const step_options *o, const device *dev, const params *p, bool text,
                          towers *t);
void towers_release(towers *t);

/* Which of `count` sizes a micro-batch of tokens (batch, T) in host memory uses. */
int towers_choose(const model_config *c, const int64_t *rows, int count, const int32_t *tokens, int64_t batch,
                  int64_t T);

/* ---- the step ---- */

enum { BUCKET_FLOATS = 8 << 20, MAX_BUCKETS = 256 };

/* A range of the gradients that is summed over ranks in one call, as soon as the backward pass has written it. */
typedef struct bucket {
    int64_t first, count;
    int waiting, rows; /* parameters not yet written, and in total */
    bool begun;
    comm_request request;
} bucket;

/* ---- a custom loss, own_loss.c ---- */

typedef struct own_loss own_loss;

/* Host memory for the rows of all ranks and their gradients. */
cloob_status own_loss_create(cloob_ctx *ctx, const step_options *o, device *dev, comm *c, own_loss **out);
void own_loss_destroy(own_loss *l);
/* Gathers the rows of all ranks, calls the function, and copies the gradients of this rank's rows to `out`. r->loss is
 * its loss, dsum_dinv_tau its derivative in inv_tau. Collective. */
cloob_status own_loss_run(cloob_ctx *ctx, own_loss *l, const loss_inputs *in, const loss_outputs *out, double inv_tau,
                          int64_t number, loss_result *r);
/* Device bytes of one, on each of `ranks`. */
size_t own_loss_bytes(const step_options *o, int ranks);

struct step {
    step_options o;
    device *dev;
    comm *c;
    params *p;
    exec *tower[2]; /* image; text: the element of text[] that this micro-batch uses */
    exec *text[TOWER_SIZES];
    int64_t rows[TOWER_SIZES];
    int texts, now; /* count; current one */
    int *choice;    /* (accum), while a batch is staged */
    batch_upload *in;
    int32_t *kept[2]; /* patch dropout: of the last two staged batches, (accum, batch, K); NULL: none */
    uint64_t seed;
    int64_t staged;          /* batches, over the whole run */
    hopfield_memory *stored; /* the Hopfield memory; NULL: the batch */
    own_loss *own;           /* NULL: the method's */
    loss_plan *loss, *warm;  /* warm: the same objective without retrieval, for the first updates */
    float *m, *v, *ema, *grad_sum, *embed[2], *dembed[2];
    void *range_device;
    adamw_range *range;
    int ranges;
    bucket bucket[MAX_BUCKETS];
    int buckets, *bucket_of;
    bool exchange; /* buckets are sent during this backward pass */
    cloob_status exchange_status;
    cloob_ctx *ctx; /* of the current call, for the exchange */
    step_scalars scalars;
    int64_t count;
    adamw_live *live, *live_host; /* a captured step: in GPU memory, and page-locked */
    struct {
        void *recording;                   /* of a step with the objective `recorded`; NULL: none yet */
        const loss_plan *recorded, *tried; /* tried: launched at least once, so that nothing is loaded during capture */
    } replay[TOWER_SIZES];                 /* one for each text tower */
};

enum { IMAGE, TEXT };

static inline int step_ranks(const step *s) { return s->c ? comm_size(s->c) : 1; }

/* True when the towers run concurrently, on a GPU's two streams. Not with several ranks, which must sum gradients in
 * one order. */
static inline bool step_two_streams(const step *s) { return s->dev->side && step_ranks(s) == 1; }

/* Called after each backward node that completes a parameter's gradient: its bucket may be complete. */
void step_on_grad(void *user, int row);

void step_forget(step *s, int text); /* discards the captured step with this text tower, if any */

#endif
