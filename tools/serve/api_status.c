/* Health, metrics, and the description of the interface. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/sbuf.h"
#include "serve/handlers.h"
#include "infer/batcher.h"

void handle_live(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    (void)s, (void)ctx, (void)q;
    http_text(r, 200, "{\"status\":\"ok\"}");
    r->type = "application/json";
}

/* Ready: not ending, and every model can answer. Unloaded weights are loaded on demand, so they matter only
 * when loading failed. */
void handle_ready(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    if (!atomic_load(&s->ready)) {
        http_error(r, q, 503, "the server is starting or ending");
        return;
    }
    for (int64_t i = 0; i < s->models; i++) {
        cloob_batcher_stats t;
        cloob_batcher_get_stats(s->model[i].batcher, &t);
        if (!t.error[0]) continue;
        http_error(r, q, 503, "model %.100s cannot be used: %s", s->model[i].name, t.error);
        return;
    }
    handle_live(s, ctx, q, r);
}

void handle_openapi(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    (void)ctx, (void)q;
    *r = (http_reply){ .code = 200,
                       .type = "application/json",
                       .data = s->openapi,
                       .bytes = s->openapi_bytes,
                       .is_static = true,
                       .fd = -1 };
}

/* ---- Prometheus ---------------------------------------------------------------------------------- */

static void put_kind(sbuf *m, const char *name, const char *kind, const char *help)
{
    sbuf_printf(m, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void put_one(sbuf *m, const char *name, const char *kind, const char *help, double value)
{
    put_kind(m, name, kind, help);
    sbuf_printf(m, "%s %.17g\n", name, value);
}

static void put_latency(sbuf *m, const char *name, const char *labels, const cloob_latency *h)
{
    int64_t sum = 0;
    for (int i = 0; i < CLOOB_LATENCY_BUCKETS; i++) {
        double bound = latency_bound(i);
        sum += h->count[i];
        if (isinf(bound)) sbuf_printf(m, "%s_bucket{%s,le=\"+Inf\"} %lld\n", name, labels, (long long)sum);
        else sbuf_printf(m, "%s_bucket{%s,le=\"%g\"} %lld\n", name, labels, bound, (long long)sum);
    }
    sbuf_printf(m, "%s_sum{%s} %.9g\n%s_count{%s} %lld\n", name, labels, h->sum_s, name, labels, (long long)h->total);
}

static void put_requests(sbuf *m, serve *s)
{
    put_kind(m, "cloob_requests_total", "counter", "Answers by route and class of status.");
    for (int i = 0; routes[i].method; i++)
        for (int c = 2; c < 6; c++) {
            int64_t n = atomic_load(&s->stats[i].by_class[c]);
            if (n)
                sbuf_printf(m, "cloob_requests_total{method=\"%s\",route=\"%s\",status=\"%dxx\"} %lld\n",
                            routes[i].method, routes[i].path, c, (long long)n);
        }
    put_kind(m, "cloob_request_seconds", "histogram", "Time from the last byte of a request to its answer.");
    for (int i = 0; routes[i].method; i++) {
        char labels[160];
        pthread_mutex_lock(&s->stats[i].lock);
        cloob_latency h = s->stats[i].latency;
        pthread_mutex_unlock(&s->stats[i].lock);
        snprintf(labels, sizeof labels, "method=\"%s\",route=\"%s\"", routes[i].method, routes[i].path);
        if (h.total) put_latency(m, "cloob_request_seconds", labels, &h);
    }
}

/* A name in a label: what would end it is left out. */
static void label_text(const char *from, char out[80])
{
    int n = 0;
    for (; *from && n < 79; from++)
        if (*from != '"' && *from != '\\' && (unsigned char)*from >= ' ') out[n++] = *from;
    out[n] = 0;
}

static void put_batches(sbuf *m, const char *labels, const int64_t *bucket, int64_t batches, int64_t rows)
{
    int64_t sum = 0;
    for (int i = 0; i < CLOOB_BATCH_BUCKETS; i++) {
        sum += bucket[i];
        if (i + 1 < CLOOB_BATCH_BUCKETS)
            sbuf_printf(m, "cloob_batch_rows_bucket{%s,le=\"%d\"} %lld\n", labels, 1 << i, (long long)sum);
        else sbuf_printf(m, "cloob_batch_rows_bucket{%s,le=\"+Inf\"} %lld\n", labels, (long long)sum);
    }
    sbuf_printf(m, "cloob_batch_rows_sum{%s} %lld\ncloob_batch_rows_count{%s} %lld\n", labels, (long long)rows, labels,
                (long long)batches);
}

/* Prometheus requires the samples of a name to be adjacent, so every name loops over the models. */
typedef enum model_metric {
    QUEUE,
    LOADED,
    USABLE,
    INPUTS,
    REFUSED,
    BATCHES,
    PREPARE,
    WAIT,
    ENCODE,
    MODEL_METRICS
} model_metric;

static void put_model(sbuf *m, const served_model *x, model_metric which)
{
    static const char *const sides[] = { "image", "text" };
    cloob_batcher_stats t;
    char name[80], labels[160];
    cloob_batcher_get_stats(x->batcher, &t);
    label_text(x->name, name);
    if (which == QUEUE) sbuf_printf(m, "cloob_queue_inputs{model=\"%s\"} %lld\n", name, (long long)t.queued);
    if (which == LOADED) sbuf_printf(m, "cloob_model_loaded{model=\"%s\"} %d\n", name, t.loaded);
    if (which == USABLE) sbuf_printf(m, "cloob_model_usable{model=\"%s\"} %d\n", name, !t.error[0]);
    if (which == REFUSED) sbuf_printf(m, "cloob_inputs_refused_total{model=\"%s\"} %lld\n", name, (long long)t.refused);
    for (int side = 0; side < 2; side++) {
        snprintf(labels, sizeof labels, "model=\"%s\",side=\"%s\"", name, sides[side]);
        if (which == INPUTS)
            sbuf_printf(m, "cloob_inputs_total{%s} %lld\n", labels, (long long)(side ? t.texts : t.images));
        if (which == BATCHES) put_batches(m, labels, t.batch_size[side], t.batches[side], t.rows[side]);
        if (which == PREPARE) put_latency(m, "cloob_prepare_seconds", labels, &t.prepare[side]);
        if (which == WAIT) put_latency(m, "cloob_wait_seconds", labels, &t.wait[side]);
        if (which == ENCODE) put_latency(m, "cloob_encode_seconds", labels, &t.encode[side]);
    }
}

static void put_models(sbuf *m, serve *s)
{
    static const char *const head[MODEL_METRICS][3] = {
        { "cloob_queue_inputs", "gauge", "Inputs that wait for the encoder." },
        { "cloob_model_loaded", "gauge", "1 while the weights are in memory." },
        { "cloob_model_usable", "gauge", "0 when its weights cannot be loaded, so that requests are refused." },
        { "cloob_inputs_total", "counter", "Texts and images taken into the queue." },
        { "cloob_inputs_refused_total", "counter", "Inputs refused because the queue was full or time ran out." },
        { "cloob_batch_rows", "histogram", "Rows of a batch." },
        { "cloob_prepare_seconds", "histogram", "Tokenizing or decoding one input." },
        { "cloob_wait_seconds", "histogram", "Time of one input in the queue." },
        { "cloob_encode_seconds", "histogram", "Encoding one batch." },
    };
    for (int k = 0; k < MODEL_METRICS; k++) {
        put_kind(m, head[k][0], head[k][1], head[k][2]);
        for (int64_t i = 0; i < s->models; i++) put_model(m, &s->model[i], (model_metric)k);
    }
}

void handle_metrics(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    sbuf m = { 0 };
    struct rusage usage;
    int64_t used, peak;
    (void)ctx;
    budget_get(&s->memory, &used, &peak);
    getrusage(RUSAGE_SELF, &usage);
    put_requests(&m, s);
    put_one(&m, "cloob_requests_waiting", "gauge", "Requests that wait for a worker.",
            (double)atomic_load(&s->requests_waiting));
    put_one(&m, "cloob_requests_running", "gauge", "Requests that a worker answers.",
            (double)atomic_load(&s->requests_running));
    put_one(&m, "cloob_requests_refused_total", "counter", "Requests refused because the queue was full.",
            (double)atomic_load(&s->refused));
    put_one(&m, "cloob_connections", "gauge", "Open connections.", (double)atomic_load(&s->open_connections));
    put_one(&m, "cloob_memory_bytes", "gauge", "Memory of bodies, downloads and answers.", (double)used);
    put_one(&m, "cloob_memory_peak_bytes", "gauge", "The most it has been.", (double)peak);
    put_one(&m, "cloob_memory_limit_bytes", "gauge", "What --memory-limit allows.", (double)s->memory.limit);
    put_models(&m, s);
    put_one(&m, "process_cpu_seconds_total", "counter", "Processor time.",
            (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
    put_one(&m, "cloob_uptime_seconds", "gauge", "Seconds since the start.", clock_seconds() - s->started_at);
    if (m.failed) {
        sbuf_release(&m);
        http_error(r, q, 503, "out of memory");
        return;
    }
    *r = (http_reply){
        .code = 200, .type = "text/plain; version=0.0.4; charset=utf-8", .data = m.data, .bytes = m.len, .fd = -1
    };
}
