/* Downloads with libcurl: only from allowed hosts, with limits on size, time and redirects. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "core/ctx.h"
#include "hub/curl.h"
#include "serve/state.h"

enum { MAX_REDIRECTS = 3 };

typedef struct download {
    unsigned char *data;
    size_t bytes, cap, max;
    cloob_ctx *ctx;
    account *memory;
    cloob_status reserved;
    bool too_big, private_address, redirected;
} download;

/* Seconds to wait for memory. Downloads that hold less memory give up earlier, so that those that hold more can
 * finish. */
static double longest_wait_s(const account *a)
{
    return 0.2 + (a->of ? 5 * (double)a->held / (double)a->of->limit : 0);
}

static bool grow(download *d, size_t want)
{
    size_t cap = d->cap ? d->cap : 16 << 10;
    while (cap < want) cap *= 2;
    if (cap > d->max) cap = d->max;
    d->reserved = account_wait(d->ctx, d->memory, (int64_t)(cap - d->cap), longest_wait_s(d->memory));
    unsigned char *more = d->reserved == CLOOB_OK ? realloc(d->data, cap) : NULL;
    if (more) d->data = more, d->cap = cap;
    return more != NULL;
}

static size_t receive(char *from, size_t size, size_t count, void *arg)
{
    download *d = arg;
    size_t n = size * count;
    if (n > d->max - d->bytes) {
        d->too_big = true;
        return 0;
    }
    if (d->bytes + n > d->cap && !grow(d, d->bytes + n)) return 0;
    memcpy(d->data + d->bytes, from, n);
    d->bytes += n;
    return n;
}

/* Whether an address is outside the public internet. */
static bool is_private(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        uint32_t ip = ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr);
        uint32_t first = ip >> 24, second = ip >> 16 & 255;
        return first == 0 || first == 10 || first == 127 || first >= 224 ||
               (first == 172 && second >= 16 && second < 32) || (first == 192 && second == 168) ||
               (first == 169 && second == 254) || (first == 100 && second >= 64 && second < 128);
    }
    if (a->sa_family != AF_INET6) return true;
    const struct in6_addr *ip = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(ip) || IN6_IS_ADDR_LINKLOCAL(ip) || IN6_IS_ADDR_UNSPECIFIED(ip) ||
           IN6_IS_ADDR_MULTICAST(ip) || IN6_IS_ADDR_V4MAPPED(ip) || (ip->s6_addr[0] & 0xFE) == 0xFC;
}

/* Opens a socket. An allowed host may be in a private network, such as a local image server, but a redirect must not
 * lead into one. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    download *d = arg;
    (void)purpose;
    if (d->redirected && is_private(&a->addr)) {
        d->private_address = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype, a->protocol);
}

static bool host_allowed(const serve_options *o, const char *url)
{
    CURLU *u = curl_lib.curl_url();
    char *host = NULL;
    bool ok = false;
    if (u && curl_lib.curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_lib.curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK)
        for (int64_t i = 0; i < o->url_hosts && !ok; i++) ok = strcasecmp(o->url_host[i], host) == 0;
    curl_lib.curl_free(host);
    curl_lib.curl_url_cleanup(u);
    return ok;
}

static void set_up(CURL *c, const char *url, long timeout_s, download *d)
{
    curl_set_up(c, url);
    curl_lib.curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    curl_lib.curl_easy_setopt(c, CURLOPT_TIMEOUT, timeout_s);
    curl_lib.curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, timeout_s < 5 ? timeout_s : 5L);
    curl_lib.curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)d->max);
    curl_lib.curl_easy_setopt(c, CURLOPT_PROXY, "");
    curl_lib.curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, receive);
    curl_lib.curl_easy_setopt(c, CURLOPT_WRITEDATA, d);
    curl_lib.curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_lib.curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, d);
}

static cloob_status refuse_url(cloob_ctx *ctx, const char *why)
{
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "cannot fetch the URL: %s", why);
}

/* Sends one request. *next: the target of a redirect, or NULL; free it with curl_free. */
static cloob_status fetch_once(cloob_ctx *ctx, CURL *c, download *d, char **next)
{
    long code = 0;
    char *where = NULL;
    CURLcode result = curl_lib.curl_easy_perform(c);
    *next = NULL;
    if (d->too_big || result == CURLE_FILESIZE_EXCEEDED)
        return refuse_url(ctx, "its content is larger than the limit of a request");
    if (d->reserved != CLOOB_OK) return d->reserved;
    if (d->private_address) return refuse_url(ctx, "it redirects into a private network");
    if (result != CURLE_OK) return refuse_url(ctx, curl_lib.curl_easy_strerror(result));
    curl_lib.curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &code);
    if (code < 300 || code >= 400) return CLOOB_OK;
    curl_lib.curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &where);
    *next = where ? strdup(where) : NULL;
    return *next ? CLOOB_OK : refuse_url(ctx, "it redirects without a target");
}

cloob_status fetch_url(cloob_ctx *ctx, const serve_options *o, const char *url, size_t max_bytes, long timeout_s,
                       account *memory, unsigned char **data, size_t *bytes)
{
    download d = { .max = max_bytes, .ctx = ctx, .memory = memory };
    char *at = strdup(url), *next = NULL;
    cloob_status status = at ? curl_load(ctx) : ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    *data = NULL, *bytes = 0;
    for (int hop = 0; status == CLOOB_OK; hop++) {
        CURL *c = NULL;
        if (!host_allowed(o, at)) status = refuse_url(ctx, "its host is not allowed; add it with --allow-url-host");
        else if (hop > MAX_REDIRECTS) status = refuse_url(ctx, "too many redirects");
        else if (!(c = curl_lib.curl_easy_init())) status = ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
        if (status != CLOOB_OK) break;
        d.bytes = 0, d.redirected = hop > 0;
        set_up(c, at, timeout_s, &d);
        status = fetch_once(ctx, c, &d, &next);
        curl_lib.curl_easy_cleanup(c);
        free(at);
        at = next;
        if (!next) break;
    }
    free(at);
    if (status == CLOOB_OK && !d.bytes) status = refuse_url(ctx, "its content is empty");
    unsigned char *whole = status == CLOOB_OK ? realloc(d.data, d.bytes) : NULL;
    if (whole) d.data = whole, account_set(memory, memory->held - (int64_t)(d.cap - d.bytes));
    if (status == CLOOB_OK) *data = d.data, *bytes = d.bytes;
    else free(d.data), account_set(memory, memory->held - (int64_t)d.cap);
    return status;
}

/* ---- forwarding ---------------------------------------------------------------------------------- */

cloob_status fetch_forward(cloob_ctx *ctx, const serve_options *o, const http_request *q, int *code,
                           unsigned char **data, size_t *bytes)
{
    download d = { .max = (size_t)o->max_body_mb << 20, .ctx = ctx, .memory = q->memory };
    char url[1024], type[400];
    long status = 0;
    size_t n = strlen(o->immich_upstream);
    *data = NULL, *bytes = 0;
    snprintf(url, sizeof url, "%s%spredict", o->immich_upstream, n && o->immich_upstream[n - 1] == '/' ? "" : "/");
    snprintf(type, sizeof type, "Content-Type: %s", q->content_type);
    CLOOB_TRY(curl_load(ctx));
    CURL *c = curl_lib.curl_easy_init();
    struct curl_slist *header = curl_lib.curl_slist_append(NULL, type),
                      *both = curl_lib.curl_slist_append(header, "Expect:");
    CURLcode result = CURLE_OUT_OF_MEMORY;
    if (c && header && both) {
        set_up(c, url, (long)o->timeout_s, &d);
        curl_lib.curl_easy_setopt(c, CURLOPT_FAILONERROR, 0L);
        curl_lib.curl_easy_setopt(c, CURLOPT_HTTPHEADER, both);
        curl_lib.curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->bytes);
        curl_lib.curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->body);
        result = curl_lib.curl_easy_perform(c);
        curl_lib.curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    }
    curl_lib.curl_slist_free_all(header);
    if (c) curl_lib.curl_easy_cleanup(c);
    *code = (int)status;
    if (result == CURLE_OK && d.bytes) {
        *data = d.data, *bytes = d.bytes;
        return CLOOB_OK;
    }
    free(d.data);
    if (d.reserved != CLOOB_OK) return d.reserved;
    return ctx_fail(ctx, CLOOB_ERR_IO, "--immich-upstream %s: %s", o->immich_upstream,
                    result == CURLE_OK ? "an empty answer" : curl_lib.curl_easy_strerror(result));
}
