/* A loss of the caller's own (cloob_train_options.loss) in place of the objective.
 *
 * The function works on host memory and sees the rows of all ranks. Every rank calls it and takes the gradients of its
 * own rows: nothing but the embeddings is exchanged, and the loss is the same on every rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/step_impl.h"

struct own_loss {
    step_loss fn;
    device *dev;
    comm *c;
    int64_t rows, n, d;     /* of this rank, of all ranks; width */
    int64_t *elements;      /* of each rank, for the gather */
    float *gathered;        /* (n, d) device memory; NULL: one rank */
    float *x, *y, *dx, *dy; /* one block, x first */
};

static int64_t rows_of(const step_options *o) { return o->batch * o->accum; }

size_t own_loss_bytes(const step_options *o, int ranks)
{
    return ranks > 1 ? (size_t)(rows_of(o) * ranks * o->model.embed) * sizeof(float) : 0;
}

static cloob_status take_memory(cloob_ctx *ctx, own_loss *l)
{
    int ranks = comm_size(l->c);
    size_t bytes = (size_t)(l->n * l->d) * sizeof(float);
    l->elements = calloc((size_t)ranks, sizeof *l->elements);
    l->x = malloc(4 * bytes);
    if (!l->elements || !l->x) return ctx_no_memory(ctx, 4 * bytes, "the rows of a custom loss");
    l->y = l->x + l->n * l->d, l->dx = l->y + l->n * l->d, l->dy = l->dx + l->n * l->d;
    for (int i = 0; i < ranks; i++) l->elements[i] = l->rows * l->d;
    return ranks > 1 ? l->dev->alloc(ctx, l->dev, bytes, "gathered embeddings", (void **)&l->gathered) : CLOOB_OK;
}

cloob_status own_loss_create(cloob_ctx *ctx, const step_options *o, device *dev, comm *c, own_loss **out)
{
    own_loss *l = calloc(1, sizeof *l);
    if (!l) return ctx_no_memory(ctx, sizeof *l, "a custom loss");
    *l = (own_loss){ .fn = o->own, .dev = dev, .c = c, .rows = rows_of(o), .d = o->model.embed };
    l->n = l->rows * comm_size(c);
    cloob_status status = comm_agree(ctx, c, take_memory(ctx, l));
    if (status == CLOOB_OK) *out = l;
    else own_loss_destroy(l);
    return status;
}

void own_loss_destroy(own_loss *l)
{
    if (!l) return;
    if (l->gathered) l->dev->free(l->dev, l->gathered);
    free(l->x), free(l->elements);
    free(l);
}

static cloob_status gather(cloob_ctx *ctx, own_loss *l, const void *mine, float *all)
{
    const void *from = mine;
    if (l->gathered) {
        CLOOB_TRY(comm_all_gather(ctx, l->c, mine, l->gathered, l->elements, CLOOB_F32));
        from = l->gathered;
    }
    return l->dev->to_host(ctx, l->dev, all, from, (size_t)(l->n * l->d) * sizeof *all);
}

cloob_status own_loss_run(cloob_ctx *ctx, own_loss *l, const loss_inputs *in, const loss_outputs *out, double inv_tau,
                          int64_t number, loss_result *r)
{
    size_t bytes = (size_t)(l->n * l->d) * sizeof(float), own = (size_t)(l->rows * l->d) * sizeof(float);
    int64_t first = l->rows * comm_rank(l->c) * l->d;
    cloob_loss_call call = { .size = sizeof call,
                             .step = number,
                             .n = l->n,
                             .d = l->d,
                             .x = l->x,
                             .y = l->y,
                             .inv_tau = inv_tau,
                             .dx = l->dx,
                             .dy = l->dy };
    CLOOB_TRY(gather(ctx, l, in->x, l->x));
    CLOOB_TRY(gather(ctx, l, in->y, l->y));
    memset(l->dx, 0, bytes), memset(l->dy, 0, bytes);
    bool done = l->fn.call(l->fn.user, &call);
    CLOOB_TRY(comm_agree(ctx, l->c,
                         done ? CLOOB_OK
                              : ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`loss`: the function failed at step %lld",
                                         (long long)number + 1)));
    *r = (loss_result){
        .loss = call.loss, .image_term = call.loss / 2, .text_term = call.loss / 2, .dsum_dinv_tau = call.dinv_tau
    };
    CLOOB_TRY(l->dev->to_device(ctx, l->dev, out->dx, l->dx + first, own));
    return l->dev->to_device(ctx, l->dev, out->dy, l->dy + first, own);
}
