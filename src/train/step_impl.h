/* Internals of a step: step.c creates it, step_run.c runs it. */
#ifndef TRAIN_STEP_IMPL_H
#define TRAIN_STEP_IMPL_H

#include "optim/adamw.h"
#include "train/batch_upload.h"
#include "train/towers.h"

enum { BUCKET_FLOATS = 8 << 20, MAX_BUCKETS = 256 };

/* A range of the gradients that is summed over ranks in one call, as soon as the backward pass has written it. */
typedef struct bucket {
    int64_t first, count;
    int waiting, rows; /* parameters not yet written, and in total */
    bool begun;
    comm_request request;
} bucket;

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
    int32_t *kept[2]; /* patch dropout: of the batch staged last and the one before, (accum, batch, K); NULL: none */
    uint64_t seed;
    int64_t staged;          /* batches, over the whole run */
    hopfield_memory *stored; /* the Hopfield memory; NULL: the batch */
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

/* The towers run concurrently on a GPU's two streams. With several ranks they do not: the gradients of both are summed
 * in one order. */
static inline bool step_two_streams(const step *s) { return s->dev->side && step_ranks(s) == 1; }

/* Called after each backward node that completes a parameter's gradient: its bucket may be complete. */
void step_on_grad(void *user, int row);

void step_forget(step *s, int text); /* drops the recording with this text tower, if any */

#endif
