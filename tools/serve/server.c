/* Starts the server, waits for a signal, and shuts down after answering pending requests. */
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/connection.h"
#include "serve/handlers.h"
#include "core/ctx.h"

mhd_functions mhd;

#define ROW(name) SHARED_ROW(mhd, name)
static const shared_function mhd_list[] = { MHD_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object mhd_library = { .file = { "libmicrohttpd.so.12" },
                                     .functions = mhd_list,
                                     .install = "libmicrohttpd12 (the server)" };
SHARED_LISTED(mhd_library)

/* Number of signals received, by any thread: the first starts the shutdown, the second ends it immediately. */
static atomic_int stop_signals;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&stop_signals, 1);
}

/* Opens a listening socket, so that an error such as a port in use can be reported with its cause. */
static cloob_status listen_on(serve *s, int *out, int *port)
{
    char service[16];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *a = NULL;
    snprintf(service, sizeof service, "%lld", (long long)s->o->port);
    int error = getaddrinfo(s->o->host, service, &hints, &a);
    if (error) return refuse(s->ctx, "host %s: %s", s->o->host, gai_strerror(error));
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool ok = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0;
    int cause = errno;
    freeaddrinfo(a);
    if (!ok) {
        if (fd >= 0) close(fd);
        if (cause == EADDRINUSE)
            return refuse(s->ctx, "port %lld of %s is in use; choose another with --port", (long long)s->o->port,
                          s->o->host);
        return refuse(s->ctx, "cannot listen on %s, port %lld: %s", s->o->host, (long long)s->o->port, strerror(cause));
    }
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    getsockname(fd, (struct sockaddr *)&bound, &bytes);
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    *out = fd;
    return CLOOB_OK;
}

enum { SMALL_FILE = 1 << 16 };

/* Reads at most SMALL_FILE bytes and appends a zero. */
static char *read_small_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *text = f ? calloc(1, SMALL_FILE + 1) : NULL;
    *bytes = text ? fread(text, 1, SMALL_FILE, f) : 0;
    if (f) fclose(f);
    return text;
}

static cloob_status read_key(serve *s)
{
    size_t bytes;
    if (!s->o->api_key_file) return CLOOB_OK;
    s->key = read_small_file(s->o->api_key_file, &bytes);
    if (!s->key) return refuse(s->ctx, "%s: %s", s->o->api_key_file, strerror(errno));
    if (strlen(s->key) != bytes)
        return refuse(s->ctx, "%s: the key file contains a zero byte; write the key as text", s->o->api_key_file);
    if (bytes == SMALL_FILE)
        return refuse(s->ctx, "%s: too long for a key file; the limit is 64 KiB", s->o->api_key_file);
    s->key[strcspn(s->key, "\r\n")] = 0;
    if (strlen(s->key) < 8)
        return refuse(s->ctx, "%s: the first line must be a key of at least 8 characters", s->o->api_key_file);
    return CLOOB_OK;
}

/* One thread handles about ten thousand small requests per second, and fewer large ones. A GPU needs more threads. */
static unsigned http_threads(const serve_options *o)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t n = o->http_threads ? o->http_threads : cores / 4;
    int64_t most = o->http_threads ? o->max_connections : 8; /* connections are divided among the threads */
    return (unsigned)(n < 1 ? 1 : n > most ? most : n);
}

/* Replaces %00 by a control character, which occurs in no valid name. A zero would end a path or name here, but perhaps
 * not in a proxy. */
static size_t unescape(void *unused, struct MHD_Connection *c, char *text)
{
    size_t n = mhd.MHD_http_unescape(text);
    (void)unused, (void)c;
    for (size_t i = 0; i < n; i++)
        if (!text[i]) text[i] = 1;
    return n;
}

static cloob_status start_daemon(server *v, int fd)
{
    serve *s = v->s;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    size_t bytes;
    char *cert = s->o->tls_cert ? read_small_file(s->o->tls_cert, &bytes) : NULL;
    char *key = s->o->tls_key ? read_small_file(s->o->tls_key, &bytes) : NULL;
    struct MHD_OptionItem tls[] = { { MHD_OPTION_HTTPS_MEM_CERT, 0, cert },
                                    { MHD_OPTION_HTTPS_MEM_KEY, 0, key },
                                    { MHD_OPTION_END, 0, NULL } };
    struct MHD_OptionItem none[] = { { MHD_OPTION_END, 0, NULL } };
    unsigned threads = http_threads(s->o);
    struct MHD_OptionItem pool[] = { { threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, threads, NULL },
                                     { MHD_OPTION_END, 0, NULL } };
    bool secure = s->o->tls_cert || s->o->tls_key;
    cloob_status status = CLOOB_OK;
    if (secure && (!cert || !key))
        status = refuse(s->ctx, "TLS requires both --tls-cert and --tls-key, and the files must be readable");
    else if (secure && mhd.MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        status = refuse(s->ctx, "this libmicrohttpd has no TLS");
    if (status == CLOOB_OK)
        v->daemon =
            mhd.MHD_start_daemon(flags | (secure ? (unsigned)MHD_USE_TLS : 0u), 0, NULL, NULL, receive_request, v,
                                 MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                                 (unsigned)s->o->max_connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                                 (unsigned)s->o->max_per_address, MHD_OPTION_CONNECTION_TIMEOUT,
                                 (unsigned)s->o->timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(32 << 10),
                                 MHD_OPTION_NOTIFY_COMPLETED, receive_completed, v, MHD_OPTION_NOTIFY_CONNECTION,
                                 client_changed, v, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_ARRAY,
                                 secure ? tls : none, MHD_OPTION_ARRAY, pool, MHD_OPTION_END);
    if (status == CLOOB_OK && !v->daemon)
        status =
            secure ? refuse(s->ctx, "cannot start the server; check that %s and %s are a certificate and its key",
                            s->o->tls_cert, s->o->tls_key)
                   : refuse(s->ctx, "cannot start the server: %s%s", strerror(errno),
                            serve_memory_limited() ? "; raise the memory limit (ulimit -v), or reduce --workers" : "");
    free(cert), free(key);
    return status;
}

static cloob_status start_workers(server *v)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    /* A GEMM tile takes 260 KiB of stack, the thread sanitizer 800. Address space only: pages are allocated on use. */
    pthread_attr_setstacksize(&small, 2 << 20);
    v->worker = calloc((size_t)v->s->o->workers, sizeof *v->worker);
    for (; v->worker && v->workers < v->s->o->workers; v->workers++)
        if (pthread_create(&v->worker[v->workers], &small, workers_main, v) != 0) break;
    pthread_attr_destroy(&small);
    return v->workers ? CLOOB_OK : refuse(v->s->ctx, "cannot start a worker thread");
}

static void end_workers(server *v)
{
    pthread_mutex_lock(&v->queue_lock);
    v->stop = true;
    pthread_cond_broadcast(&v->work);
    pthread_mutex_unlock(&v->queue_lock);
    for (int64_t i = 0; i < v->workers; i++) pthread_join(v->worker[i], NULL);
}

/* Stops accepting connections, answers all requests of which data has arrived, and sends the answers completely, within
 * --timeout. Connections without a request have grace_s to send one. A second signal ends the wait. */
static void drain(server *v, int listening)
{
    serve *s = v->s;
    double begin = clock_seconds();
    const double grace_s = 0.2;
    atomic_store(&s->draining, true);
    atomic_store(&s->ready, false);
    /* Closing the socket would reset connections that wait to be accepted. */
    struct pollfd p = { .fd = listening, .events = POLLIN };
    for (int i = 0; i < 100 && poll(&p, 1, 0) > 0; i++) usleep(10000);
    int fd = mhd.MHD_quiesce_daemon(v->daemon);
    while (clients_end_idle(v, clock_seconds() > begin + grace_s) && stop_signals < 2 &&
           clock_seconds() < begin + (double)s->o->timeout_s)
        usleep(10000);
    end_workers(v);
    mhd.MHD_stop_daemon(v->daemon);
    if (fd >= 0) close(fd);
}

static cloob_status run(server *v)
{
    serve *s = v->s;
    int fd = -1, port = 0;
    pthread_t watcher;
    cloob_status status = read_key(s);
    host_port h;
    bool loopback = host_parse(s->o->host, &h) && host_is_loopback(&h);
    if (status == CLOOB_OK && !loopback && !s->key && !s->o->insecure)
        status =
            refuse(s->ctx,
                   "%s is not a loopback address; set --api-key-file FILE, or --insecure to allow access without a key",
                   s->o->host);
    if (status == CLOOB_OK) status = listen_on(s, &fd, &port);
    if (status == CLOOB_OK) status = serve_open_models(s);
    if (status == CLOOB_OK) status = serve_open_indexes(s);
    /* Installed before the port is printed, so that any later signal shuts down cleanly. */
    struct sigaction a = { .sa_handler = on_signal };
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (status == CLOOB_OK) status = start_workers(v);
    if (status == CLOOB_OK && (v->closing = epoll_create1(EPOLL_CLOEXEC)) < 0)
        status = refuse(s->ctx, "epoll: %s", strerror(errno));
    if (status == CLOOB_OK) status = serve_allocate_batches(s);
    if (status == CLOOB_OK) status = start_daemon(v, fd);
    if (status != CLOOB_OK) {
        end_workers(v); /* before the caller frees what they use */
        if (fd >= 0) close(fd);
        return status;
    }
    bool watching = pthread_create(&watcher, NULL, serve_watch, s) == 0;
    atomic_store(&s->ready, true);
    bool six = strchr(s->o->host, ':') != NULL;
    printf("%s://%s%s%s:%d\n", s->o->tls_cert ? "https" : "http", six ? "[" : "", s->o->host, six ? "]" : "", port);
    if (fflush(stdout) == 0 && !ferror(stdout))
        while (!stop_signals) clients_watch(v); /* otherwise stdout has failed, and main reports the error */
    serve_log(s, "shutting down after the pending requests");
    drain(v, fd);
    if (watching) pthread_join(watcher, NULL);
    return CLOOB_OK;
}

cloob_status serve_run(cloob_ctx *ctx, const serve_options *o)
{
    CLOOB_TRY(shared_object_use(ctx, &mhd_library));
    serve *s = calloc(1, sizeof *s);
    server v = { .s = s, .closing = -1 };
    if (!s) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    s->o = o, s->ctx = ctx, s->started_at = clock_seconds();
    pthread_mutex_init(&s->files_lock, NULL);
    pthread_mutex_init(&v.queue_lock, NULL);
    pthread_mutex_init(&v.clients_lock, NULL);
    pthread_mutex_init(&v.quick_lock, NULL);
    pthread_cond_init(&v.work, NULL);
    for (int i = 0; i < SERVE_ROUTES; i++) pthread_mutex_init(&s->stats[i].lock, NULL);
    budget_init(&s->memory, o->memory_limit);
#ifdef __GLIBC__ /* glibc's malloc keeps freed blocks in per-thread arenas: gigabytes with 64 workers */
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
    cloob_status status = run(&v);
    free(v.worker);
    if (v.closing >= 0) close(v.closing);
    if (atomic_load(&s->background)) return status; /* a background thread still uses it; the process exits soon */
    serve_close_state(s);
    free(s);
    return status;
}
