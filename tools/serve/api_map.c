/* All images of an index in the plane, computed once in the background. */
#include <stdlib.h>

#include "serve/handlers.h"
#include "infer/search_index.h"
#include "eval/map.h"

typedef struct map_job {
    serve *s;
    index_view *v;
} map_job;

static bool report(void *arg, double share)
{
    map_job *j = arg;
    atomic_store(&j->v->map_progress, share);
    return !atomic_load(&j->s->draining);
}

static void compute(serve *s, void *object)
{
    index_view *v = object;
    map_job j = { s, v };
    map_options o;
    int64_t N = cloob_search_count(v->search);
    cloob_matrix m = { v->search->row, CLOOB_F32, N, cloob_search_width(v->search), "the index" };
    cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    float *xy = malloc((size_t)(2 * N + 1) * sizeof *xy);
    map_options_init(&o);
    o.progress = report, o.user = &j;
    bool ok = ctx && xy && map_make(ctx, xy, &m, &o) == CLOOB_OK;
    if (ok) v->map_xy = xy;
    else free(xy);
    atomic_store(&v->map, ok ? POINTS_READY : POINTS_FAILED);
    cloob_ctx_destroy(ctx);
    index_release(v);
}

/* The view is the thread's until it ends. */
static void start(serve *s, index_view *v)
{
    map_state none = POINTS_NONE;
    if (!atomic_compare_exchange_strong(&v->map, &none, POINTS_COMPUTING)) return;
    atomic_fetch_add(&v->users, 1);
    if (serve_in_background(s, compute, v)) return;
    index_release(v);
    atomic_store(&v->map, POINTS_NONE);
}

static void put_points(json_out *w, const index_view *v, int64_t N)
{
    put_rows(w, "points", v->map_xy, N, 2);
    json_begin(w, "paths", '[');
    for (int64_t i = 0; i < N; i++) {
        char *name = entry_name(v->search, i);
        json_put_text(w, NULL, name);
        free(name);
    }
    json_end(w);
}

void handle_map(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    served_index *x;
    index_view *v;
    json_out w = { 0 };
    if (!find_index(s, ctx, q, r, http_query(q, "index"), &x, &v)) return;
    if (http_reserve(r, q, ctx, 128 * cloob_search_count(v->search))) { /* two numbers and a path for each image */
        start(s, v);
        map_state state = atomic_load(&v->map);
        json_begin(&w, NULL, '{');
        json_members(&w,
                     J_TEXT("state", state == POINTS_READY    ? "ready"
                                     : state == POINTS_FAILED ? "failed"
                                                              : "computing"),
                     J_NUMBER("progress", state == POINTS_READY ? 1 : atomic_load(&v->map_progress), 0));
        put_points(&w, v, state == POINTS_READY ? cloob_search_count(v->search) : 0);
        json_end(&w);
        http_json(r, 200, &w);
    }
    index_release(v);
}
