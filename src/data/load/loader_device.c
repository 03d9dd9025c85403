/* Views made on a GPU: a worker reads the files of a few rows, passes them to the GPU as a group, and makes the views
 * that the GPU cannot. */
#include <stdlib.h>

#include "data/load/loader_parts.h"

enum { MAX_ROWS = 64 }; /* in one group */

struct worker_device {
    device_view *view;
    view_job job[MAX_ROWS];
    int64_t row[MAX_ROWS];        /* of each job */
    stored_sample file[MAX_ROWS]; /* their bytes */
    int jobs;
    uint8_t *views;         /* (MAX_ROWS, size, size, 3), made by this thread; the loader's kind of memory */
    uint8_t *out[MAX_ROWS]; /* destination of each */
    int count;
    bool alone; /* this thread makes all views itself */
};

static size_t row_bytes(const loader *l) { return (size_t)(l->o.view.size * l->o.view.size * 3); }

/* Large enough for nvJPEG to decode in parallel, small enough that every worker gets a part of each batch. */
int64_t loader_device_rows(const loader *l)
{
    int64_t n = l->o.batch / (l->o.workers ? l->o.workers : 1);
    return n < 1 ? 1 : n > MAX_ROWS ? MAX_ROWS : n;
}

size_t loader_device_bytes(const loader_options *o)
{
    size_t images = (size_t)(o->batch * o->view.size * o->view.size * 3);
    size_t threads = (size_t)(o->workers ? o->workers : 1);
    return (size_t)(o->ahead + 1) * images + threads * DEVICE_VIEW_BYTES;
}

cloob_status loader_device_check(cloob_ctx *ctx, const loader_options *o)
{
    if (!o->decoder) return CLOOB_OK;
    if (!o->train) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "loader: only training views are made on a GPU");
    if (o->view.jpeg_shrink)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "jpeg_shrink: `image_decoder` gpu decodes whole images; use cpu");
    return CLOOB_OK;
}

cloob_status loader_device_create(cloob_ctx *ctx, worker *w)
{
    loader *l = w->l;
    worker_device *g = w->device = calloc(1, sizeof *g);
    if (!g) return ctx_no_memory(ctx, sizeof *g, "a worker");
    g->views = loader_take_memory(l, MAX_ROWS * row_bytes(l));
    if (!g->views) return ctx_no_memory(ctx, MAX_ROWS * row_bytes(l), "a worker's views");
    return device_view_create(ctx, l->o.decoder, &l->o.view, &g->view);
}

void loader_device_destroy(worker *w)
{
    worker_device *g = w->device;
    if (!g) return;
    device_view_destroy(g->view);
    loader_give_memory(w->l, g->views, MAX_ROWS * row_bytes(w->l));
    for (int i = 0; i < MAX_ROWS; i++) stored_sample_release(&g->file[i]);
    free(g);
    w->device = NULL;
}

void loader_device_begin(worker *w) { w->device->jobs = w->device->count = 0; }

/* Swaps the file's buffer with the buffer of the previous job. */
static void keep_bytes(stored_sample *kept, stored_sample *s)
{
    stored_sample before = *kept;
    kept->data = s->data, kept->size = s->size, kept->capacity = s->capacity;
    s->data = before.data, s->size = before.size, s->capacity = before.capacity;
}

cloob_status loader_device_view(worker *w, uint64_t key, int64_t r, uint8_t *out)
{
    worker_device *g = w->device;
    loader *l = w->l;
    stored_sample *s = &w->sample;
    view_job *job = &g->job[g->jobs];
    if (!g->alone && !s->width && view_job_plan(s->data, s->size, &l->limits, &l->o.view, key, job)) {
        job->out = out;
        g->row[g->jobs] = r;
        keep_bytes(&g->file[g->jobs++], s);
        return CLOOB_OK;
    }
    CLOOB_TRY(loader_make_view(w, s, key, g->views + (size_t)g->count * row_bytes(l)));
    g->out[g->count++] = out;
    return CLOOB_OK;
}

/* A file that nvJPEG refuses is read again and decoded on the CPU: a damaged one is replaced by the next sample. */
cloob_status loader_device_finish(worker *w, slot *s)
{
    worker_device *g = w->device;
    loader *l = w->l;
    cloob_status status = device_view_run(w->ctx, g->view, g->job, g->jobs);
    g->alone = true;
    for (int i = 0; i < g->jobs && status == CLOOB_OK; i++)
        if (!g->job[i].done) status = loader_fill_row(w, s, g->row[i]);
    g->alone = false;
    if (status == CLOOB_OK) status = device_view_put(w->ctx, g->view, g->out, g->views, g->count);
    pthread_mutex_lock(&l->lock);
    l->cpu_views += g->count;
    pthread_mutex_unlock(&l->lock);
    return status;
}
