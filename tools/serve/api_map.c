/* A map of all images of an index in the plane, computed once in the background. */
#include <stdlib.h>

#include "serve/handlers.h"
#include "infer/search_index.h"
#include "eval/map.h"

static bool report(void *arg, double share)
{
    index_view *v = arg;
    atomic_store(&v->map_progress, share);
    return !atomic_load(&v->s->draining);
}

static void *compute(void *object)
{
    index_view *v = object;
    serve *s = v->s;
    int64_t N = cloob_search_count(v->search);
    cloob_matrix m = { v->search->row, CLOOB_F32, N, cloob_search_width(v->search), "the index" };
    cloob_ctx *ctx = serve_thread_context();
    float *xy = malloc((size_t)(2 * N + 1) * sizeof *xy);
    map_options o = { .progress = report, .user = v };
    bool ok = ctx && xy && map_make(ctx, xy, &m, &o) == CLOOB_OK;
    if (ok) v->map_xy = xy;
    else free(xy);
    atomic_store(&v->map, ok ? POINTS_READY : POINTS_FAILED);
    cloob_ctx_destroy(ctx);
    index_release(v);
    atomic_fetch_sub(&s->background, 1);
    return NULL;
}

/* Starts the computation; the thread holds a reference to the view until it ends. */
static void start(serve *s, index_view *v)
{
    map_state none = POINTS_NONE;
    if (!atomic_compare_exchange_strong(&v->map, &none, POINTS_COMPUTING)) return;
    atomic_fetch_add(&v->users, 1);
    if (serve_in_background(s, compute, v)) return;
    index_release(v);
    atomic_store(&v->map, POINTS_NONE);
}

cloob_status handle_map(call *c)
{
    static const char *const word[] = { [POINTS_NONE] = "computing",
                                        [POINTS_COMPUTING] = "computing",
                                        [POINTS_READY] = "ready",
                                        [POINTS_FAILED] = "failed" };
    CLOOB_TRY(call_index(c, http_query(c->q, "index")));
    int64_t N = cloob_search_count(c->v->search);
    CLOOB_TRY(account_reserve(c->ctx, c->q->memory, 128 * N)); /* two numbers and a path per image */
    start(c->s, c->v);
    map_state state = atomic_load(&c->v->map);
    bool ready = state == POINTS_READY;
    json_begin(&c->w, NULL, '{');
    json_members(&c->w, J_TEXT("state", word[state]),
                 J_NUMBER("progress", ready ? 1 : atomic_load(&c->v->map_progress), 0));
    json_begin(&c->w, "points", '[');
    for (int64_t i = 0; ready && i < N; i++) json_put_floats(&c->w, NULL, c->v->map_xy + 2 * i, 2);
    json_end(&c->w);
    json_begin(&c->w, "paths", '[');
    for (int64_t i = 0; ready && i < N; i++) put_entry_name(&c->w, NULL, c->v->search, i);
    return CLOOB_OK;
}
