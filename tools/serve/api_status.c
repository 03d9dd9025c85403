/* Health checks, metrics, and the description of the interface. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/sbuf.h"
#include "serve/handlers.h"
#include "infer/batcher.h"

cloob_status handle_live(call *c)
{
    json_object(&c->w, NULL, J_TEXT("status", "ok"));
    return CLOOB_OK;
}

/* Ready if the server is not shutting down and all models can answer. Unloaded weights are loaded on demand, so they
 * only matter if loading failed. */
cloob_status handle_ready(call *c)
{
    if (!atomic_load(&c->s->ready)) return call_error(c, 503, "the server is starting or shutting down");
    for (int64_t i = 0; i < c->s->models; i++) {
        batcher_stats t;
        batcher_get_stats(c->s->model[i].batcher, &t);
        if (t.error[0]) return call_error(c, 503, "model %.100s cannot be used: %s", c->s->model[i].name, t.error);
    }
    return handle_live(c);
}

/* ---- Prometheus ---------------------------------------------------------------------------------- */

static void put_kind(sbuf *m, const char *name, const char *kind, const char *help)
{
    sbuf_printf(m, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void put_latency(sbuf *m, const char *name, const char *labels, const latency_histogram *h)
{
    int64_t sum = 0;
    for (int i = 0; i < LATENCY_BUCKETS; i++) {
        double bound = latency_bound(i);
        sum += h->count[i];
        if (isinf(bound)) sbuf_printf(m, "%s_bucket{%s,le=\"+Inf\"} %lld\n", name, labels, (long long)sum);
        else sbuf_printf(m, "%s_bucket{%s,le=\"%g\"} %lld\n", name, labels, bound, (long long)sum);
    }
    sbuf_printf(m, "%s_sum{%s} %.9g\n%s_count{%s} %lld\n", name, labels, h->sum_s, name, labels, (long long)h->total);
}

static void put_requests(sbuf *m, serve *s)
{
    put_kind(m, "cloob_requests_total", "counter", "Responses by route and status class.");
    for (int i = 0; routes[i].method; i++)
        for (int c = 2; c < 6; c++) {
            int64_t n = atomic_load(&s->stats[i].by_class[c]);
            if (n)
                sbuf_printf(m, "cloob_requests_total{method=\"%s\",route=\"%s\",status=\"%dxx\"} %lld\n",
                            routes[i].method, routes[i].path, c, (long long)n);
        }
    put_kind(m, "cloob_request_seconds", "histogram", "Time from the last byte of a request to its response.");
    for (int i = 0; routes[i].method; i++) {
        char labels[160];
        pthread_mutex_lock(&s->stats[i].lock);
        latency_histogram h = s->stats[i].latency;
        pthread_mutex_unlock(&s->stats[i].lock);
        snprintf(labels, sizeof labels, "method=\"%s\",route=\"%s\"", routes[i].method, routes[i].path);
        if (h.total) put_latency(m, "cloob_request_seconds", labels, &h);
    }
}

/* Copies a name as a label, without quotes, backslashes and control characters. */
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
    for (int i = 0; i < BATCH_BUCKETS; i++) {
        sum += bucket[i];
        if (i + 1 < BATCH_BUCKETS)
            sbuf_printf(m, "cloob_batch_rows_bucket{%s,le=\"%d\"} %lld\n", labels, 1 << i, (long long)sum);
        else sbuf_printf(m, "cloob_batch_rows_bucket{%s,le=\"+Inf\"} %lld\n", labels, (long long)sum);
    }
    sbuf_printf(m, "cloob_batch_rows_sum{%s} %lld\ncloob_batch_rows_count{%s} %lld\n", labels, (long long)rows, labels,
                (long long)batches);
}

/* A metric of models: a number; after USABLE, a number each for images and texts. */
typedef enum model_value { NUMBER, LOADED, USABLE, INPUTS, BATCHES, LATENCY } model_value;
typedef struct model_metric {
    const char *name, *kind, *help;
    model_value value;
    size_t at; /* offset in batcher_stats, for NUMBER and LATENCY */
} model_metric;

#define AT(member) offsetof(batcher_stats, member)
static const model_metric model_metrics[] = {
    { "cloob_queue_inputs", "gauge", "Inputs waiting for the encoder.", NUMBER, AT(queued) },
    { "cloob_model_loaded", "gauge", "1 while the weights are in memory.", LOADED, 0 },
    { "cloob_model_usable", "gauge", "0 if the weights cannot be loaded, so that requests are refused.", USABLE, 0 },
    { "cloob_inputs_total", "counter", "Texts and images accepted into the queue.", INPUTS, 0 },
    { "cloob_inputs_refused_total", "counter", "Inputs refused because the queue was full or time ran out.", NUMBER,
      AT(refused) },
    { "cloob_batch_rows", "histogram", "Rows per batch.", BATCHES, 0 },
    { "cloob_prepare_seconds", "histogram", "Time to tokenize or decode one input.", LATENCY, AT(prepare) },
    { "cloob_wait_seconds", "histogram", "Time of one input in the queue.", LATENCY, AT(wait) },
    { "cloob_encode_seconds", "histogram", "Time to encode one batch.", LATENCY, AT(encode) },
};

static void put_model(sbuf *m, const served_model *x, const model_metric *k)
{
    batcher_stats t;
    char name[80], labels[160];
    batcher_get_stats(x->batcher, &t);
    label_text(x->name, name);
    const void *at = (const char *)&t + k->at;
    if (k->value <= USABLE) {
        int64_t n = k->value == NUMBER ? *(const int64_t *)at : k->value == LOADED ? t.loaded : !t.error[0];
        sbuf_printf(m, "%s{model=\"%s\"} %lld\n", k->name, name, (long long)n);
        return;
    }
    for (int side = 0; side < 2; side++) {
        snprintf(labels, sizeof labels, "model=\"%s\",side=\"%s\"", name, side ? "text" : "image");
        if (k->value == INPUTS)
            sbuf_printf(m, "%s{%s} %lld\n", k->name, labels, (long long)(side ? t.texts : t.images));
        else if (k->value == BATCHES) put_batches(m, labels, t.batch_size[side], t.batches[side], t.rows[side]);
        else put_latency(m, k->name, labels, (const latency_histogram *)at + side);
    }
}

/* Prometheus requires all samples of a name to be adjacent, so the loop over models is inside the loop over names. */
static void put_models(sbuf *m, serve *s)
{
    for (size_t k = 0; k < sizeof model_metrics / sizeof *model_metrics; k++) {
        put_kind(m, model_metrics[k].name, model_metrics[k].kind, model_metrics[k].help);
        for (int64_t i = 0; i < s->models; i++) put_model(m, &s->model[i], &model_metrics[k]);
    }
}

cloob_status handle_metrics(call *c)
{
    sbuf m = { 0 };
    serve *s = c->s;
    struct rusage usage;
    int64_t used, peak;
    budget_get(&s->memory, &used, &peak);
    getrusage(RUSAGE_SELF, &usage);
    double cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    const struct {
        const char *name, *kind, *help;
        double value;
    } plain[] = {
        { "cloob_requests_waiting", "gauge", "Requests waiting for a worker.", (double)s->requests_waiting },
        { "cloob_requests_running", "gauge", "Requests being processed by workers.", (double)s->requests_running },
        { "cloob_requests_refused_total", "counter", "Requests refused because the queue was full.",
          (double)s->refused },
        { "cloob_connections", "gauge", "Open connections.", (double)s->open_connections },
        { "cloob_memory_bytes", "gauge", "Memory of bodies, downloads and responses.", (double)used },
        { "cloob_memory_peak_bytes", "gauge", "The peak of cloob_memory_bytes.", (double)peak },
        { "cloob_memory_limit_bytes", "gauge", "The limit set by --memory-limit.", (double)s->memory.limit },
        { "process_cpu_seconds_total", "counter", "Processor time.", cpu_s },
        { "cloob_uptime_seconds", "gauge", "Seconds since the start.", clock_seconds() - s->started_at },
    };
    put_requests(&m, s);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        put_kind(&m, plain[i].name, plain[i].kind, plain[i].help);
        sbuf_printf(&m, "%s %.17g\n", plain[i].name, plain[i].value);
    }
    put_models(&m, s);
    if (m.failed) sbuf_release(&m);
    if (!m.data) return ctx_fail(c->ctx, CLOOB_ERR_MEMORY, "out of memory");
    http_data(c->r, "text/plain; version=0.0.4; charset=utf-8", m.data, m.len);
    return CLOOB_OK;
}
