/* Receives requests and sends answers: access control, size limits, routing, and the headers of all answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/connection.h"
#include "serve/text.h"
#include "infer/batcher.h"

/* Compares in constant time, whatever the position of the first difference. */
static bool same_secret(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned char different = n != m;
    for (size_t i = 0; i < m; i++) different |= (unsigned char)(a[n ? i % n : 0] ^ b[i]);
    return !different;
}

static const char *header(const request *x, const char *name)
{
    return mhd.MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static bool has_key(const serve *s, const request *x)
{
    const char *sent = header(x, "Authorization"), *plain = header(x, "X-API-Key");
    if (!s->key) return true;
    if (sent && strncasecmp(sent, "Bearer ", 7) == 0) return same_secret(sent + 7, s->key);
    return plain && same_secret(plain, s->key);
}

/* Without a key, a server on loopback must not be reachable from pages of other sites. Their requests have another Host
 * (DNS rebinding) or another Origin; requests for images and scripts have no Origin, but Sec-Fetch-Site identifies
 * them. */
static bool from_another_site(const serve *s, const request *x)
{
    const char *host = header(x, "Host"), *origin = header(x, "Origin");
    const char *site = header(x, "Sec-Fetch-Site"), *mode = header(x, "Sec-Fetch-Mode");
    host_port wanted, own;
    if (s->key || s->o->insecure) return false;
    if (!host) return origin || site; /* HTTP/1.0 */
    if (!host_parse(host, &wanted)) return true;
    bool own_name = host_parse(s->o->host, &own) && strcmp(own.name, wanted.name) == 0;
    if (!own_name && !host_is_loopback(&wanted)) return true;
    bool is_link = mode && strcmp(mode, "navigate") == 0; /* the user followed a link to the page */
    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0 && !is_link) return true;
    if (!origin) return false;
    size_t scheme = strncasecmp(origin, "https://", 8) == 0 ? 8 : strncasecmp(origin, "http://", 7) == 0 ? 7 : 0;
    return !scheme || strcasecmp(origin + scheme, host) != 0;
}

/* ---- framing ------------------------------------------------------------------------------------- */

typedef struct framing {
    const char *length, *encoding;
    int hosts, origins, encodings;
    bool lengths_differ, odd_name;
} framing;

static enum MHD_Result read_framing(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    framing *f = arg;
    (void)kind;
    if (!value) value = "";
    f->odd_name = f->odd_name || !*key || key[strspn(key, token)]; /* for example "Content-Length : 5" */
    if (strcasecmp(key, "Host") == 0) f->hosts++;
    if (strcasecmp(key, "Origin") == 0) f->origins++;
    if (strcasecmp(key, "Transfer-Encoding") == 0) f->encodings++, f->encoding = value;
    if (strcasecmp(key, "Content-Length") != 0) return MHD_YES;
    f->lengths_differ = f->lengths_differ || (f->length && strcmp(f->length, value) != 0);
    f->length = value;
    return MHD_YES;
}

/* Why a proxy might parse the request differently (request smuggling); NULL: it cannot. */
static const char *ambiguous(const request *x, const char *version)
{
    framing f = { 0 };
    mhd.MHD_get_connection_values(x->connection, MHD_HEADER_KIND, read_framing, &f);
    if (f.odd_name) return "a header name with a space or a control character";
    if (f.hosts > 1 || f.origins > 1) return "more than one Host or Origin header";
    if (!f.hosts && strcmp(version, "HTTP/1.0") != 0) return "the Host header is missing";
    if (f.lengths_differ) return "Content-Length headers that differ";
    if (f.encodings && strcmp(version, "HTTP/1.1") != 0) return "Transfer-Encoding in another version than HTTP/1.1";
    if (f.length && f.encodings) return "Content-Length together with Transfer-Encoding";
    if (f.encodings && (f.encodings > 1 || strcasecmp(f.encoding, "chunked") != 0))
        return "Transfer-Encoding other than chunked";
    return NULL;
}

static void refuse_early(request *x, int code, const char *text)
{
    http_error(&x->r, &x->q, code, "%s", text);
    x->refused = true;
}

static void check_request(server *v, request *x, const char *method, const char *version)
{
    serve *s = v->s;
    const char *allow = NULL, *length = header(x, "Content-Length"), *type = header(x, "Content-Type");
    const char *unclear = ambiguous(x, version);
    x->q.route = route_find(method, x->path, &x->q.tail, &allow);
    x->q.content_type = strdup(type ? type : "");
    x->limit = (size_t)s->o->max_body_mb << 20;
    if (x->limit > (size_t)s->memory.limit / 4)
        x->limit = (size_t)s->memory.limit / 4; /* the parsed body takes as much memory again */
    if (!x->q.content_type) refuse_early(x, 503, "out of memory");
    else if (unclear) {
        refuse_early(x, 400, unclear);
        x->unread = true;
    } else if (from_another_site(s, x))
        refuse_early(x, 403, "cross-site request refused; set --api-key-file, or --insecure to allow it");
    else if (!x->q.route && !allow) refuse_early(x, 404, "not found; /openapi.json lists the endpoints");
    else if (!x->q.route) {
        refuse_early(x, 405, "method not allowed for this path");
        x->r.allow = allow;
    } else if (!(x->q.route->flags & ROUTE_OPEN) && !has_key(s, x))
        refuse_early(x, 401, "the API key is missing or wrong");
    else if (length && strtoull(length, NULL, 10) > x->limit)
        refuse_early(x, 413, "the body is larger than the server's limit"), x->unread = true;
}

static enum MHD_Result copy_query(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
    http_request *q = arg;
    (void)kind;
    if (q->queries == HTTP_MAX_QUERY) return MHD_NO;
    q->query[q->queries++] = (http_pair){ key, value ? value : "" }; /* valid as long as the request */
    return MHD_YES;
}

static request *begin_request(server *v, struct MHD_Connection *c, const char *path, const char *method,
                              const char *version)
{
    request *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->connection = c;
    x->r.fd = -1;
    x->memory.of = &v->s->memory;
    x->q.memory = &x->memory;
    x->begun_at = x->q.received_at = clock_seconds();
    x->path = strdup(path);
    x->q.body = x->q.tail = "";
    if (!x->path) {
        free(x);
        return NULL;
    }
    client_set(v, c, CLIENT_SENDS, x->begun_at + (double)v->s->o->timeout_s);
    mhd.MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, copy_query, &x->q);
    check_request(v, x, method, version);
    return x;
}

/* Grows the buffer to hold a body of `want` bytes: doubles it, up to the Content-Length of the request. */
static bool grow(request *x, size_t want)
{
    const char *length = header(x, "Content-Length");
    size_t most = length ? (size_t)strtoull(length, NULL, 10) : x->limit, cap = x->cap ? x->cap : 4096;
    if (want + 1 <= x->cap) return true;
    while (cap < want + 1) cap *= 2;
    if (cap > most + 1 && want <= most) cap = most + 1;
    char *more = account_set(&x->memory, (int64_t)cap) ? realloc(x->body, cap) : NULL;
    if (more) x->body = more, x->cap = cap;
    return more != NULL;
}

static void drop_body(request *x)
{
    free(x->body);
    x->body = NULL, x->cap = 0, x->q.body = "", x->q.bytes = 0;
}

static void receive(server *v, request *x, const char *data, size_t n)
{
    if (x->refused) return;
    if (clock_seconds() - x->begun_at > (double)v->s->o->timeout_s)
        refuse_early(x, 408, "the request took too long to arrive");
    else if (x->q.bytes + n > x->limit) refuse_early(x, 413, "the body is larger than the server's limit");
    else if (!grow(x, x->q.bytes + n))
        refuse_early(x, 429, "other requests use the server's memory (--memory-limit); try again later");
    else {
        memcpy(x->body + x->q.bytes, data, n);
        x->q.bytes += n;
        x->body[x->q.bytes] = 0;
        x->q.body = x->body;
    }
    if (!x->refused) return;
    drop_body(x); /* the rest of the body is read and discarded, so that the client can receive the answer */
    account_set(&x->memory, 0);
}

/* ---- answers --------------------------------------------------------------------------------------- */

/* The page may load only its own files, and no inline scripts or styles. */
static const char page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'";

static void add_header(struct MHD_Response *m, const char *name, const char *value)
{
    if (value && *value) mhd.MHD_add_response_header(m, name, value);
}

static struct MHD_Response *make_response(http_reply *r)
{
    struct MHD_Response *m;
    if (r->fd >= 0) {
        m = mhd.MHD_create_response_from_fd64((uint64_t)r->fd_bytes, r->fd);
        if (m) r->fd = -1; /* closed by libmicrohttpd with the response */
    } else {
        m = mhd.MHD_create_response_from_buffer(r->bytes, r->data,
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
    latency_add(&stats->latency, clock_seconds() - x->q.received_at);
    pthread_mutex_unlock(&stats->lock);
}

static enum MHD_Result reply_send(server *v, request *x)
{
    drop_body(x); /* the account then holds only the answer, which may exceed the budget */
    if (!account_set(&x->memory, x->r.is_static || x->r.fd >= 0 ? 0 : (int64_t)x->r.bytes)) {
        http_error(&x->r, &x->q, 429, "other requests use the server's memory (--memory-limit); try again later");
        account_set(&x->memory, 0);
    }
    count_reply(v->s, x);
    int code = x->r.code;
    /* The client must read the answer within --timeout plus one second per 256 KiB. */
    double bytes = x->r.fd >= 0 ? (double)x->r.fd_bytes : (double)x->r.bytes;
    double until = clock_seconds() + (double)v->s->o->timeout_s + bytes / (256 << 10);
    client_set(v, x->connection, CLIENT_READS, until);
    struct MHD_Response *m = make_response(&x->r);
    if (!m) return MHD_NO;
    if (x->refused || atomic_load(&v->s->draining)) mhd.MHD_add_response_header(m, "Connection", "close");
    enum MHD_Result result = mhd.MHD_queue_response(x->connection, (unsigned)code, m);
    mhd.MHD_destroy_response(m);
    return result;
}

/* ---- libmicrohttpd's callbacks --------------------------------------------------------------------- */

static enum MHD_Result dispatch(server *v, request *x, struct MHD_Connection *c)
{
    x->q.received_at = clock_seconds();
    client_set(v, c, CLIENT_WAITS, 0);
    x->answered = true;
    if (x->refused) return reply_send(v, x);
    if (x->q.route->flags & ROUTE_QUICK) {
        pthread_mutex_lock(&v->quick_lock);
        workers_answer(v->s, v->s->ctx, x);
        pthread_mutex_unlock(&v->quick_lock);
        return reply_send(v, x);
    }
    mhd.MHD_suspend_connection(c);
    if (workers_enqueue(v, x)) return MHD_YES;
    atomic_fetch_add(&v->s->refused, 1);
    http_error(&x->r, &x->q, 429, "%lld requests are waiting; try again later", (long long)v->s->o->max_queue);
    mhd.MHD_resume_connection(c);
    return MHD_YES;
}

enum MHD_Result receive_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                const char *version, const char *data, size_t *data_bytes, void **own)
{
    server *v = arg;
    request *x = *own;
    if (!x) {
        *own = x = begin_request(v, c, path, method, version);
        if (!x) return MHD_NO;
        bool body = header(x, "Content-Length") || header(x, "Transfer-Encoding");
        /* A small body is read before the answer is sent, so that the client does not get a reset connection; a large
         * one is not. */
        return x->refused && (!body || x->unread) ? dispatch(v, x, c) : MHD_YES;
    }
    if (*data_bytes) {
        receive(v, x, data, *data_bytes);
        *data_bytes = 0;
        return MHD_YES;
    }
    return x->answered ? reply_send(v, x) : dispatch(v, x, c);
}

void receive_completed(void *arg, struct MHD_Connection *c, void **own, enum MHD_RequestTerminationCode why)
{
    server *v = arg;
    request *x = *own;
    (void)why;
    if (!x) return;
    client_set(v, c, CLIENT_IDLE, clock_seconds() + (double)v->s->o->timeout_s);
    account_set(&x->memory, 0);
    http_reply_release(&x->r);
    drop_body(x);
    free(x->path), free(x->q.content_type);
    free(x);
    *own = NULL;
}
