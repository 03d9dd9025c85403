/* The HTTP side: libmicrohttpd's thread receives requests, worker threads answer them.
 *
 * A request is received in full by the I/O thread, within its limits of size and time, so that a slow client costs a
 * connection and never a worker. It then waits in a bounded queue; the connection is suspended until a worker has its
 * reply. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/page/page.h"
#include "serve/state.h"
#include "serve/thumb.h"

typedef struct request request;
struct request {
    http_request q;
    http_reply r;
    struct MHD_Connection *connection;
    char *path, *body;
    size_t cap, limit;
    double begun_at;
    bool refused, answered, counted;
    request *next;
};

typedef struct visitor visitor; /* one connection, so that those that send too slowly can be ended */
struct visitor {
    visitor *next, *previous;
    int socket;
    double waiting_since; /* 0: a request is being worked on, or none has begun */
};

typedef struct server {
    serve *s;
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock;
    pthread_cond_t work;
    request *head, *tail;
    int64_t waiting;
    bool stop;
    pthread_t *worker;
    int64_t workers;
    pthread_mutex_t links_lock;
    visitor *links;
} server;

static volatile sig_atomic_t stop_signal;

static void on_signal(int number) { stop_signal = number; }

/* ---- sending ------------------------------------------------------------------------------------- */

static void add_header(struct MHD_Response *m, const char *name, const char *value)
{
    if (value && *value) MHD_add_response_header(m, name, value);
}

static struct MHD_Response *make_response(http_reply *r)
{
    struct MHD_Response *m;
    if (r->fd >= 0) {
        m = MHD_create_response_from_fd64((uint64_t)r->fd_bytes, r->fd);
        if (m) r->fd = -1; /* closed with the response */
    } else {
        m = MHD_create_response_from_buffer(r->bytes, r->data,
                                            r->is_static ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
        if (m) r->data = NULL;
    }
    if (!m) return NULL;
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", r->retry_after);
    add_header(m, "Content-Type", r->type);
    add_header(m, "Cache-Control", r->cache ? r->cache : "no-store");
    add_header(m, "X-Content-Type-Options", "nosniff");
    add_header(m, "X-Frame-Options", "DENY");
    add_header(m, "Referrer-Policy", "no-referrer");
    add_header(m, "Content-Security-Policy", page_policy);
    add_header(m, "Cross-Origin-Resource-Policy", "same-origin");
    add_header(m, "ETag", r->etag);
    add_header(m, "Allow", r->allow);
    if (r->code == 401) add_header(m, "WWW-Authenticate", "Bearer");
    if (r->retry_after) add_header(m, "Retry-After", seconds);
    return m;
}

static void count_reply(serve *s, const request *x)
{
    const route *r = x->q.route;
    if (!r) return;
    route_stats *stats = &s->stats[r - routes];
    atomic_fetch_add(&stats->by_class[x->r.code / 100 % 6], 1);
    pthread_mutex_lock(&stats->lock);
    cloob_latency_add(&stats->latency, serve_now() - x->q.received_at);
    pthread_mutex_unlock(&stats->lock);
}

static enum MHD_Result send_reply(server *v, request *x)
{
    count_reply(v->s, x);
    int code = x->r.code;
    struct MHD_Response *m = make_response(&x->r);
    if (!m) return MHD_NO;
    if (x->refused) MHD_add_response_header(m, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)code, m);
    MHD_destroy_response(m);
    return result;
}

/* ---- workers ------------------------------------------------------------------------------------- */

static bool enqueue(server *v, request *x)
{
    pthread_mutex_lock(&v->lock);
    bool fits = !v->stop && v->waiting < v->s->o->max_queue;
    if (fits) {
        x->next = NULL;
        if (v->tail) v->tail->next = x;
        else v->head = x;
        v->tail = x;
        atomic_store(&v->s->requests_waiting, ++v->waiting);
        pthread_cond_signal(&v->work);
    }
    pthread_mutex_unlock(&v->lock);
    return fits;
}

static request *dequeue(server *v)
{
    pthread_mutex_lock(&v->lock);
    while (!v->head && !v->stop) pthread_cond_wait(&v->work, &v->lock);
    request *x = v->head;
    if (x) {
        v->head = x->next;
        if (!v->head) v->tail = NULL;
        atomic_store(&v->s->requests_waiting, --v->waiting);
        atomic_fetch_add(&v->s->requests_running, 1);
    }
    pthread_mutex_unlock(&v->lock);
    return x;
}

static void answer(serve *s, cloob_ctx *ctx, request *x)
{
    if (serve_now() - x->q.received_at > (double)s->o->timeout_s) {
        http_error(&x->r, &x->q, 503, "the request waited for %lld s; try again later", (long long)s->o->timeout_s);
        return;
    }
    x->q.route->run(s, ctx, &x->q, &x->r);
    if (!x->r.code) http_error(&x->r, &x->q, 500, "no answer");
}

static void *worker_main(void *arg)
{
    server *v = arg;
    cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .threads = 1 });
    for (request *x; ctx && (x = dequeue(v));) {
        answer(v->s, ctx, x);
        atomic_fetch_sub(&v->s->requests_running, 1);
        MHD_resume_connection(x->connection);
    }
    cloob_ctx_destroy(ctx);
    return NULL;
}

/* ---- receiving ----------------------------------------------------------------------------------- */

/* Takes the same time wherever the first difference is. */
static bool same_secret(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned char different = n != m;
    for (size_t i = 0; i < m; i++) different |= (unsigned char)(a[n ? i % n : 0] ^ b[i]);
    return !different;
}

static const char *header(const request *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static bool has_key(const serve *s, const request *x)
{
    const char *sent = header(x, "Authorization"), *plain = header(x, "X-API-Key");
    if (!s->key) return true;
    if (sent && strncasecmp(sent, "Bearer ", 7) == 0) return same_secret(sent + 7, s->key);
    return plain && same_secret(plain, s->key);
}

static bool is_loopback_name(const char *host)
{
    return strncasecmp(host, "localhost", 9) == 0 || strncmp(host, "127.", 4) == 0 || strncmp(host, "[::1]", 5) == 0;
}

/* Without a key, a page of another site must not talk to a server on loopback: its name cannot be ours. */
static bool from_another_site(const serve *s, const request *x)
{
    const char *host = header(x, "Host"), *origin = header(x, "Origin");
    if (s->key || s->o->insecure) return false;
    if (host && !is_loopback_name(host) && strncasecmp(host, s->o->host, strlen(s->o->host)) != 0) return true;
    if (!origin || !host) return false;
    const char *site = strstr(origin, "://");
    return !site || strcasecmp(site + 3, host) != 0;
}

static void refuse_early(request *x, int code, const char *text)
{
    http_error(&x->r, &x->q, code, "%s", text);
    x->refused = true;
}

static void check_request(server *v, request *x, const char *method)
{
    serve *s = v->s;
    const char *allow = NULL, *length = header(x, "Content-Length"), *type = header(x, "Content-Type");
    x->q.route = route_find(method, x->path, &x->q.tail, &allow);
    x->q.content_type = strdup(type ? type : "");
    x->limit = (size_t)s->o->max_body_mb << 20;
    if (!x->q.content_type) refuse_early(x, 503, "out of memory");
    else if (from_another_site(s, x))
        refuse_early(x, 403, "requests of other sites are refused; give --api-key-file or --insecure");
    else if (!x->q.route && !allow) refuse_early(x, 404, "there is nothing here; /openapi.json lists what there is");
    else if (!x->q.route) {
        refuse_early(x, 405, "the path takes another method");
        x->r.allow = allow;
    } else if (!(x->q.route->flags & ROUTE_OPEN) && !has_key(s, x))
        refuse_early(x, 401, "the API key is missing or wrong");
    else if (length && strtoull(length, NULL, 10) > x->limit)
        refuse_early(x, 413, "the body is larger than the server takes");
    else if (atomic_load(&s->draining) && !(x->q.route->flags & ROUTE_QUICK))
        refuse_early(x, 503, "the server is ending");
}

static enum MHD_Result copy_query(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
    http_request *q = arg;
    (void)kind;
    if (q->queries == HTTP_MAX_QUERY) return MHD_NO;
    q->query[q->queries++] = (http_pair){ key, value ? value : "" }; /* as long-lived as the request */
    return MHD_YES;
}

static void set_waiting(server *v, struct MHD_Connection *c, double since)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    visitor *l = info ? info->socket_context : NULL;
    if (!l) return;
    pthread_mutex_lock(&v->links_lock);
    l->waiting_since = since;
    pthread_mutex_unlock(&v->links_lock);
}

static request *begin_request(server *v, struct MHD_Connection *c, const char *path, const char *method)
{
    request *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->connection = c;
    x->r.fd = -1;
    x->begun_at = x->q.received_at = serve_now();
    x->path = strdup(path);
    x->q.content_type = NULL;
    x->q.body = "";
    x->q.tail = "";
    if (!x->path) {
        free(x);
        return NULL;
    }
    set_waiting(v, c, x->begun_at);
    MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, copy_query, &x->q);
    check_request(v, x, method);
    return x;
}

/* All bodies together are bounded too. */
static bool grow(server *v, request *x, size_t want)
{
    enum { ALL_BODIES_MB = 512 };
    if (want + 1 <= x->cap) return true;
    size_t cap = x->cap ? 2 * x->cap : 4096;
    while (cap < want + 1) cap *= 2;
    if (atomic_fetch_add(&v->s->body_bytes, (int64_t)(cap - x->cap)) + (int64_t)(cap - x->cap) > (int64_t)ALL_BODIES_MB
                                                                                                     << 20) {
        atomic_fetch_sub(&v->s->body_bytes, (int64_t)(cap - x->cap));
        return false;
    }
    char *more = realloc(x->body, cap);
    if (!more) {
        atomic_fetch_sub(&v->s->body_bytes, (int64_t)(cap - x->cap));
        return false;
    }
    x->body = more, x->cap = cap;
    return true;
}

static void receive(server *v, request *x, const char *data, size_t n)
{
    if (x->refused) return;
    if (serve_now() - x->begun_at > (double)v->s->o->timeout_s)
        refuse_early(x, 408, "the request took too long to arrive");
    else if (x->q.bytes + n > x->limit) refuse_early(x, 413, "the body is larger than the server takes");
    else if (!grow(v, x, x->q.bytes + n)) refuse_early(x, 503, "too many requests are being received; try again later");
    else {
        memcpy(x->body + x->q.bytes, data, n);
        x->q.bytes += n;
        x->body[x->q.bytes] = 0;
        x->q.body = x->body;
    }
}

static enum MHD_Result dispatch(server *v, request *x, struct MHD_Connection *c)
{
    x->q.received_at = serve_now();
    set_waiting(v, c, 0);
    x->answered = true;
    if (x->refused) return send_reply(v, x);
    if (x->q.route->flags & ROUTE_QUICK) {
        answer(v->s, v->s->ctx, x);
        return send_reply(v, x);
    }
    MHD_suspend_connection(c);
    if (enqueue(v, x)) return MHD_YES;
    atomic_fetch_add(&v->s->refused, 1);
    http_error(&x->r, &x->q, 429, "%lld requests are waiting; try again later", (long long)v->s->o->max_queue);
    MHD_resume_connection(c);
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *data, size_t *data_bytes, void **own)
{
    server *v = arg;
    request *x = *own;
    (void)version;
    if (!x) {
        *own = x = begin_request(v, c, path, method);
        if (!x) return MHD_NO;
        bool body = header(x, "Content-Length") || header(x, "Transfer-Encoding");
        /* a small body is read first, so that the client is there for the answer; a large one is not */
        return x->refused && (!body || x->r.code == 413) ? dispatch(v, x, c) : MHD_YES;
    }
    if (*data_bytes) {
        receive(v, x, data, *data_bytes);
        *data_bytes = 0;
        return MHD_YES;
    }
    return x->answered ? send_reply(v, x) : dispatch(v, x, c);
}

static void on_completed(void *arg, struct MHD_Connection *c, void **own, enum MHD_RequestTerminationCode why)
{
    server *v = arg;
    request *x = *own;
    (void)why;
    if (!x) return;
    set_waiting(v, c, serve_now());
    atomic_fetch_sub(&v->s->body_bytes, (int64_t)x->cap);
    http_reply_release(&x->r);
    free(x->path), free(x->body), free(x->q.content_type);
    free(x);
    *own = NULL;
}

/* ---- connections --------------------------------------------------------------------------------- */

static void on_connection(void *arg, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what)
{
    server *v = arg;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        visitor *l = calloc(1, sizeof *l);
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        atomic_fetch_add(&v->s->open_connections, 1);
        *own = l;
        if (!l || !info) return;
        l->socket = info->connect_fd;
        l->waiting_since = serve_now();
        pthread_mutex_lock(&v->links_lock);
        l->next = v->links;
        if (v->links) v->links->previous = l;
        v->links = l;
        pthread_mutex_unlock(&v->links_lock);
        return;
    }
    visitor *l = *own;
    atomic_fetch_sub(&v->s->open_connections, 1);
    if (!l) return;
    pthread_mutex_lock(&v->links_lock);
    if (l->previous) l->previous->next = l->next;
    else if (v->links == l) v->links = l->next;
    if (l->next) l->next->previous = l->previous;
    pthread_mutex_unlock(&v->links_lock);
    free(l);
}

/* A client that sends a header byte now and then is idle for us, whatever libmicrohttpd thinks. */
static void end_slow(server *v)
{
    double limit = serve_now() - (double)v->s->o->timeout_s;
    pthread_mutex_lock(&v->links_lock);
    for (visitor *l = v->links; l; l = l->next)
        if (l->waiting_since > 0 && l->waiting_since < limit) shutdown(l->socket, SHUT_RDWR);
    pthread_mutex_unlock(&v->links_lock);
}

/* ---- starting and ending ------------------------------------------------------------------------- */

static cloob_status fail(serve *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static cloob_status fail(serve *s, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return cloob_error_set(s->ctx, CLOOB_ERR_ARGUMENT, text);
}

/* A socket that listens, so that a busy port is reported with its cause. */
static cloob_status listen_on(serve *s, int *out, int *port)
{
    char service[16];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *a = NULL;
    snprintf(service, sizeof service, "%lld", (long long)s->o->port);
    int error = getaddrinfo(s->o->host, service, &hints, &a);
    if (error) return fail(s, "host %s: %s", s->o->host, gai_strerror(error));
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool ok = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0;
    int cause = errno;
    freeaddrinfo(a);
    if (!ok) {
        if (fd >= 0) close(fd);
        if (cause == EADDRINUSE)
            return fail(s, "port %lld of %s is in use; choose another with --port", (long long)s->o->port, s->o->host);
        return fail(s, "cannot listen on %s, port %lld: %s", s->o->host, (long long)s->o->port, strerror(cause));
    }
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    getsockname(fd, (struct sockaddr *)&bound, &bytes);
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    *out = fd;
    return CLOOB_OK;
}

static char *read_small_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = f ? calloc(1, 1 << 16) : NULL;
    size_t n = text ? fread(text, 1, (1 << 16) - 1, f) : 0;
    if (f) fclose(f);
    if (text) text[n] = 0;
    return text;
}

static cloob_status read_key(serve *s)
{
    if (!s->o->api_key_file) return CLOOB_OK;
    s->key = read_small_file(s->o->api_key_file);
    if (!s->key) return fail(s, "%s: %s", s->o->api_key_file, strerror(errno));
    s->key[strcspn(s->key, "\r\n")] = 0;
    if (strlen(s->key) < 8)
        return fail(s, "%s: the first line must hold a key of 8 characters or more", s->o->api_key_file);
    return CLOOB_OK;
}

static cloob_status check_exposure(serve *s)
{
    bool loopback = is_loopback_name(s->o->host) || strcmp(s->o->host, "::1") == 0;
    if (loopback || s->key || s->o->insecure) return CLOOB_OK;
    return fail(s, "%s is not loopback: give --api-key-file FILE, or --insecure to serve everybody", s->o->host);
}

static cloob_status start_daemon(server *v, int fd)
{
    serve *s = v->s;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    char *cert = s->o->tls_cert ? read_small_file(s->o->tls_cert) : NULL;
    char *key = s->o->tls_key ? read_small_file(s->o->tls_key) : NULL;
    struct MHD_OptionItem tls[] = { { MHD_OPTION_HTTPS_MEM_CERT, 0, cert },
                                    { MHD_OPTION_HTTPS_MEM_KEY, 0, key },
                                    { MHD_OPTION_END, 0, NULL } };
    struct MHD_OptionItem none[] = { { MHD_OPTION_END, 0, NULL } };
    bool secure = s->o->tls_cert || s->o->tls_key;
    cloob_status status = CLOOB_OK;
    if (secure && (!cert || !key))
        status = fail(s, "TLS needs both files, --tls-cert and --tls-key, and they must be readable");
    else if (secure && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        status = fail(s, "this libmicrohttpd has no TLS");
    if (status == CLOOB_OK)
        v->daemon = MHD_start_daemon(flags | (secure ? (unsigned)MHD_USE_TLS : 0u), 0, NULL, NULL, on_request, v,
                                     MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                                     (unsigned)s->o->max_connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                                     (unsigned)s->o->max_per_address, MHD_OPTION_CONNECTION_TIMEOUT,
                                     (unsigned)s->o->timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(32 << 10),
                                     MHD_OPTION_NOTIFY_COMPLETED, on_completed, v, MHD_OPTION_NOTIFY_CONNECTION,
                                     on_connection, v, MHD_OPTION_ARRAY, secure ? tls : none, MHD_OPTION_END);
    if (status == CLOOB_OK && !v->daemon)
        status = secure ? fail(s, "the server did not start: are %s and %s a certificate and its key?", s->o->tls_cert,
                               s->o->tls_key)
                        : fail(s, "the server did not start");
    free(cert), free(key);
    return status;
}

static cloob_status start_workers(server *v)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 20); /* address space; pages come when they are used */
    v->worker = calloc((size_t)v->s->o->workers, sizeof *v->worker);
    for (; v->worker && v->workers < v->s->o->workers; v->workers++)
        if (pthread_create(&v->worker[v->workers], &small, worker_main, v) != 0) break;
    pthread_attr_destroy(&small);
    return v->workers ? CLOOB_OK : fail(v->s, "no worker thread can be started");
}

/* What has arrived is answered, for at most the time a request may take; then connections end. */
static void drain(server *v)
{
    serve *s = v->s;
    double until = serve_now() + (double)s->o->timeout_s;
    atomic_store(&s->draining, true);
    atomic_store(&s->ready, false);
    int fd = MHD_quiesce_daemon(v->daemon);
    while (serve_now() < until && (atomic_load(&s->requests_waiting) || atomic_load(&s->requests_running)))
        usleep(10000);
    usleep(100000); /* the last answers leave */
    pthread_mutex_lock(&v->lock);
    v->stop = true;
    pthread_cond_broadcast(&v->work);
    pthread_mutex_unlock(&v->lock);
    for (int64_t i = 0; i < v->workers; i++) pthread_join(v->worker[i], NULL);
    MHD_stop_daemon(v->daemon);
    if (fd >= 0) close(fd);
}

static void wait_for_signal(server *v)
{
    struct sigaction a = { .sa_handler = on_signal };
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
    while (!stop_signal) {
        usleep(200000);
        end_slow(v);
    }
}

static cloob_status run(server *v)
{
    serve *s = v->s;
    int fd = -1, port = 0;
    pthread_t watcher;
    cloob_status status = read_key(s);
    if (status == CLOOB_OK) status = check_exposure(s);
    if (status == CLOOB_OK) status = listen_on(s, &fd, &port);
    if (status == CLOOB_OK) status = serve_open_models(s);
    if (status == CLOOB_OK) status = serve_open_indexes(s);
    if (status == CLOOB_OK) status = start_workers(v);
    if (status == CLOOB_OK) status = start_daemon(v, fd);
    if (status != CLOOB_OK) {
        if (s->start_error) cloob_error_set(s->ctx, status, s->start_error);
        if (fd >= 0) close(fd);
        return status;
    }
    bool watching = pthread_create(&watcher, NULL, serve_watch, s) == 0;
    atomic_store(&s->ready, true);
    bool six = strchr(s->o->host, ':') != NULL;
    printf("%s://%s%s%s:%d\n", s->o->tls_cert ? "https" : "http", six ? "[" : "", s->o->host, six ? "]" : "", port);
    if (fflush(stdout) == 0 && !ferror(stdout)) wait_for_signal(v); /* else nobody learns the port: main reports it */
    serve_log(s, "ending: answering what has arrived");
    drain(v);
    if (watching) pthread_join(watcher, NULL);
    return CLOOB_OK;
}

cloob_status serve_run(cloob_ctx *ctx, const serve_options *o)
{
    serve *s = calloc(1, sizeof *s);
    server v = { .s = s };
    if (!s) return cloob_error_set(ctx, CLOOB_ERR_MEMORY, "out of memory");
    s->o = o, s->ctx = ctx, s->started_at = serve_now();
    pthread_mutex_init(&s->indexes_lock, NULL);
    pthread_mutex_init(&v.lock, NULL);
    pthread_mutex_init(&v.links_lock, NULL);
    pthread_cond_init(&v.work, NULL);
    for (int i = 0; i < SERVE_ROUTES; i++) pthread_mutex_init(&s->stats[i].lock, NULL);
    s->openapi = route_openapi(&s->openapi_bytes);
    s->thumbs = thumb_cache_create();
    cloob_status status = s->openapi && s->thumbs ? run(&v) : cloob_error_set(ctx, CLOOB_ERR_MEMORY, "out of memory");
    free(v.worker);
    if (atomic_load(&s->indexing)) return status; /* a thread still uses it; the process ends with us */
    serve_close_state(s);
    free(s);
    return status;
}
