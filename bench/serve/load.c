/* Requests per second and latency of a server with /v1/embeddings: many connections, each with one request at a time.
 *
 *     load PORT CONNECTIONS SECONDS text|image [FILE.jpg] [PATH] [THREADS]
 *
 * Connections are distributed over a few threads with epoll, so that the client takes little CPU time. Prints one JSON object.
 * Requests of the first second, when all connections start at once, count in the rate but not in the percentiles. Needs only Linux. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 16, MAX_THREADS = 64 };
static const double ramp = 1; /* seconds */

typedef struct load {
    int port, connections, threads;
    double begin, end;
    const char *request;
    size_t bytes;
} load;

typedef struct client { /* one connection and the request under way */
    int fd;
    size_t sent, got;
    double begun_at;
    char answer[ROOM + 1];
} client;

typedef struct worker {
    pthread_t thread;
    const load *l;
    int first, count;
    double *took;
    size_t answered, timed, room, failed; /* timed: after the ramp, the length of took */
} worker;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- one connection ------------------------------------------------------------------------------ */

static bool client_open(client *k, int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int on = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    k->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (k->fd < 0 || connect(k->fd, (struct sockaddr *)&a, sizeof a) != 0) return false;
    setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return true;
}

static void client_begin(client *k)
{
    k->sent = k->got = 0;
    k->begun_at = now();
}

/* False: the connection is lost. */
static bool client_send(client *k, const load *l)
{
    while (k->sent < l->bytes) {
        ssize_t n = send(k->fd, l->request + k->sent, l->bytes - k->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (n <= 0) return false;
        k->sent += (size_t)n;
    }
    return true;
}

/* 0: more is to come; else the answer's code; -1: the connection is lost. */
static int client_receive(client *k)
{
    for (;;) {
        ssize_t n = recv(k->fd, k->answer + k->got, ROOM - k->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return -1;
        k->got += (size_t)n;
        k->answer[k->got] = 0;
        const char *body = strstr(k->answer, "\r\n\r\n"), *length = body ? strcasestr(k->answer, "content-length:") : 0;
        if (body && (!length || length > body)) return -1;
        if (body && k->got >= (size_t)(body + 4 - k->answer) + strtoull(length + 15, NULL, 10))
            return atoi(k->answer + 9);
    }
}

/* ---- a thread's share ---------------------------------------------------------------------------- */

static void note(worker *w, double took)
{
    if (w->timed == w->room) {
        w->room = 2 * w->room + 1024;
        w->took = realloc(w->took, w->room * sizeof *w->took);
        if (!w->took) exit(1);
    }
    w->took[w->timed++] = took;
}

/* What an event brought; false when the connection takes no further request. */
static bool step(worker *w, client *k)
{
    int code = client_send(k, w->l) ? client_receive(k) : -1;
    if (code == 0) return true;
    if (code == 200 && k->begun_at >= w->l->begin + ramp) note(w, now() - k->begun_at);
    if (code == 200) w->answered++;
    else w->failed++;
    if (code < 0 || now() >= w->l->end) return false;
    client_begin(k);
    return client_send(k, w->l);
}

static void *work(void *arg)
{
    worker *w = arg;
    client *k = calloc((size_t)w->count, sizeof *k);
    int events = epoll_create1(0), open = 0;
    for (int i = 0; k && i < w->count; i++) {
        struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &k[i] };
        if (!client_open(&k[i], w->l->port)) {
            w->failed++;
            continue;
        }
        client_begin(&k[i]);
        epoll_ctl(events, EPOLL_CTL_ADD, k[i].fd, &e);
        open++;
    }
    while (open > 0) {
        struct epoll_event ready[64];
        int n = epoll_wait(events, ready, 64, 120000);
        if (n == 0) break;
        for (int i = 0; i < n; i++) {
            client *at = ready[i].data.ptr;
            if (at->fd < 0 || step(w, at)) continue;
            close(at->fd);
            at->fd = -1;
            open--;
        }
    }
    close(events);
    free(k);
    return NULL;
}

/* ---- the request --------------------------------------------------------------------------------- */

static char *base64_of(const char *path)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    FILE *f = fopen(path, "rb");
    unsigned char *data = calloc(1, (16 << 20) + 3);
    size_t n = f && data ? fread(data, 1, 16 << 20, f) : 0;
    char *text = calloc(1, n * 4 / 3 + 8), *at = text;
    if (f) fclose(f);
    if (!n || !text) return NULL;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)data[i] << 16 | (uint32_t)data[i + 1] << 8 | data[i + 2];
        *at++ = digit[v >> 18];
        *at++ = digit[v >> 12 & 63];
        *at++ = i + 1 < n ? digit[v >> 6 & 63] : '=';
        *at++ = i + 2 < n ? digit[v & 63] : '=';
    }
    free(data);
    return text;
}

static char *make_request(const char *kind, const char *file, const char *path, size_t *bytes)
{
    char *image = strcmp(kind, "image") == 0 ? base64_of(file) : NULL, *all = NULL, *body = NULL;
    int n = image
                ? asprintf(&body, "{\"input\":[\"data:image/jpeg;base64,%s\"],\"modality\":\"image\",\"model\":\"m\"}",
                           image)
                : asprintf(&body, "{\"input\":\"a photo of a dog\",\"model\":\"m\"}");
    if (n < 0) exit(1);
    n = asprintf(
        &all, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
        path, n, body);
    if (n < 0) exit(1);
    free(image), free(body);
    *bytes = (size_t)n;
    return all;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *kind, const load *l, worker *w, double seconds)
{
    worker all = { 0 };
    struct rusage own;
    for (int i = 0; i < l->threads; i++) {
        for (size_t k = 0; k < w[i].timed; k++) note(&all, w[i].took[k]);
        all.answered += w[i].answered;
        all.failed += w[i].failed;
    }
    getrusage(RUSAGE_SELF, &own);
    if (all.timed) qsort(all.took, all.timed, sizeof *all.took, ascending);
    double p50 = all.timed ? all.took[all.timed / 2] : 0, p99 = all.timed ? all.took[all.timed * 99 / 100] : 0;
    double cpu = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
                 1e-6 * (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec);
    printf("{\"kind\": \"%s\", \"connections\": %d, \"per_s\": %.1f, \"answered\": %zu, \"failed\": %zu, "
           "\"p50_ms\": %.1f, \"p99_ms\": %.1f, \"client_cpu_s\": %.2f}\n",
           kind, l->connections, (double)all.answered / seconds, all.answered, all.failed, 1e3 * p50, 1e3 * p99, cpu);
    free(all.took);
}

int main(int argc, char **argv)
{
    bool image = argc > 5 && strcmp(argv[4], "image") == 0;
    if (argc < 5 || (strcmp(argv[4], "text") != 0 && !image)) {
        fprintf(stderr, "usage: load PORT CONNECTIONS SECONDS text|image [FILE.jpg] [PATH] [THREADS]\n");
        return 2;
    }
    load l = { .port = atoi(argv[1]), .connections = atoi(argv[2]), .threads = argc > 7 ? atoi(argv[7]) : 1 };
    worker w[MAX_THREADS] = { { 0 } };
    char *request = make_request(argv[4], argc > 5 ? argv[5] : "", argc > 6 ? argv[6] : "/v1/embeddings", &l.bytes);
    if (l.threads < 1 || l.threads > MAX_THREADS) l.threads = 1;
    l.request = request;
    l.begin = now();
    l.end = l.begin + atof(argv[3]);
    for (int i = 0; i < l.threads; i++) {
        int first = l.connections * i / l.threads;
        w[i] = (worker){ .l = &l, .first = first, .count = l.connections * (i + 1) / l.threads - first };
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0) return 1;
    }
    for (int i = 0; i < l.threads; i++) pthread_join(w[i].thread, NULL);
    report(argv[4], &l, w, now() - l.begin);
    for (int i = 0; i < l.threads; i++) free(w[i].took);
    free(request);
    return 0;
}
