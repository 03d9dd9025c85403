/* HTTP requests with libcurl. */
#include "hub/http.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "core/file.h"
#include "core/limits.h"

enum { MAX_REDIRECTS = 5, MAX_TRIES = 6, MAX_UNREACHED = 3, MAX_WAIT_S = 300, MAX_IGNORED = 1 << 20 };

/* ---- endpoint and token -------------------------------------------------------------------------- */

/* Reads the first line of the token file that `hf auth login` writes; "" if there is no file. */
static cloob_status read_token(cloob_ctx *ctx, char out[HUB_PATH])
{
    char path[HUB_PATH], home[HUB_PATH];
    const char *named = getenv("HF_TOKEN_PATH");
    file_bytes text;
    out[0] = '\0';
    CLOOB_TRY(hub_home(ctx, home));
    CLOOB_TRY(named && *named ? hub_put(ctx, path, "%s", named) : hub_put(ctx, path, "%s/token", home));
    if (!file_exists(path)) return CLOOB_OK;
    CLOOB_TRY(file_read(ctx, path, HUB_PATH - 1, &text));
    snprintf(out, HUB_PATH, "%s", text.data);
    file_bytes_release(&text);
    return CLOOB_OK;
}

cloob_status hub_site_init(cloob_ctx *ctx, hub_site *out)
{
    char text[HUB_PATH];
    const char *endpoint = getenv("HF_ENDPOINT"), *token = getenv("HF_TOKEN"),
               *patience = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    if (!endpoint || !*endpoint) endpoint = "https://huggingface.co";
    size_t n = strlen(endpoint);
    while (n && endpoint[n - 1] == '/') n--;
    if (n >= sizeof out->endpoint || (strncmp(endpoint, "https://", 8) != 0 && strncmp(endpoint, "http://", 7) != 0))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "HF_ENDPOINT %.200s is not a URL; use one such as https://huggingface.co", endpoint);
    memcpy(out->endpoint, endpoint, n);
    out->endpoint[n] = '\0';
    out->patience_s = patience && atol(patience) > 0 ? atol(patience) : 30;
    if (!token || !*token) token = getenv("HUGGING_FACE_HUB_TOKEN");
    if (token && *token) snprintf(text, sizeof text, "%s", token);
    else CLOOB_TRY(read_token(ctx, text));
    char *begin = text + strspn(text, " \t\r\n");
    begin[strcspn(begin, "\r\n")] = '\0';
    for (size_t len = strlen(begin); len && isspace((unsigned char)begin[len - 1]);) begin[--len] = '\0';
    for (const char *c = begin; *c; c++)
        if (*c <= 0x20 || *c >= 0x7f || strlen(begin) >= sizeof out->token)
            return ctx_fail(
                ctx, CLOOB_ERR_ARGUMENT,
                "the token from HF_TOKEN or the token file contains spaces or is too long; set a valid token");
    snprintf(out->token, sizeof out->token, "%s", begin);
    return CLOOB_OK;
}

/* ---- sessions ------------------------------------------------------------------------------------ */

cloob_status http_open(cloob_ctx *ctx, const hub_site *site, const atomic_bool *stop, http_session *out)
{
    *out = (http_session){ .ctx = ctx, .site = site, .stop = stop };
    CLOOB_TRY(curl_load(ctx));
    out->curl = curl_lib.curl_easy_init();
    return out->curl ? CLOOB_OK : ctx_no_memory(ctx, 1, "a connection");
}

void http_close(http_session *s)
{
    if (s->curl) curl_lib.curl_easy_cleanup(s->curl);
    s->curl = NULL;
}

static bool is_stopped(const http_session *s) { return s->stop ? atomic_load(s->stop) : ctx_should_stop(s->ctx); }

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up, curl_off_t up_now)
{
    (void)total, (void)now, (void)up, (void)up_now;
    return is_stopped(user);
}

/* Whether two URLs have the same scheme, host and port. The token is sent to no other origin. */
static bool same_origin(const char *a, const char *b)
{
    static const CURLUPart parts[] = { CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT };
    CURLU *u = curl_lib.curl_url(), *v = curl_lib.curl_url();
    bool same = u && v && curl_lib.curl_url_set(u, CURLUPART_URL, a, 0) == CURLUE_OK &&
                curl_lib.curl_url_set(v, CURLUPART_URL, b, 0) == CURLUE_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && same; i++) {
        char *x = NULL, *y = NULL;
        same = curl_lib.curl_url_get(u, parts[i], &x, CURLU_DEFAULT_PORT) == CURLUE_OK &&
               curl_lib.curl_url_get(v, parts[i], &y, CURLU_DEFAULT_PORT) == CURLUE_OK && strcasecmp(x, y) == 0;
        curl_lib.curl_free(x);
        curl_lib.curl_free(y);
    }
    curl_lib.curl_url_cleanup(u);
    curl_lib.curl_url_cleanup(v);
    return same;
}

/* ---- headers ------------------------------------------------------------------------------------- */

typedef struct transfer {
    http_session *s;
    http_answer *a;
    http_sink *sink;
    void *user;
    size_t ignored; /* bytes of a response body that is not the content */
} transfer;

/* Reads the trimmed value of header `name`; false if the line is another header. */
static bool header(const char *line, size_t n, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    if (n <= len || strncasecmp(line, name, len) != 0 || line[len] != ':') return false;
    line += len + 1, n -= len + 1;
    while (n && isspace((unsigned char)*line)) line++, n--;
    while (n && isspace((unsigned char)line[n - 1])) n--;
    if (n >= size) n = size - 1;
    memcpy(out, line, n);
    out[n] = '\0';
    return true;
}

/* Stores an ETag: W/"abc" and "abc" become abc. Values that are not hashes are ignored. */
static void keep_etag(http_answer *a, const char *text)
{
    if (strncmp(text, "W/", 2) == 0) text += 2;
    size_t n = strlen(text);
    if (n >= 2 && text[0] == '"' && text[n - 1] == '"') text++, n -= 2;
    if (n != 40 && n != 64) return;
    memcpy(a->etag, text, n);
    a->etag[n] = '\0';
    if (!hub_is_hex(a->etag, n)) a->etag[0] = '\0';
}

/* Stores the URL of the next page from a Link header: <URL>; rel="next". */
static void keep_next(http_answer *a, const char *text)
{
    const char *begin = strchr(text, '<'), *end = begin ? strchr(begin, '>') : NULL;
    if (!end || !strstr(end, "rel=\"next\"") || end - begin >= (ptrdiff_t)sizeof a->next) return;
    memcpy(a->next, begin + 1, (size_t)(end - begin - 1));
    a->next[end - begin - 1] = '\0';
}

static int64_t number(const char *text)
{
    char *end;
    long long v = strtoll(text, &end, 10);
    return end != text && v >= 0 ? v : -1;
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    http_answer *a = ((transfer *)user)->a;
    size_t n = size * count;
    char text[2048];
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) a->range_begin = -1, a->next[0] = '\0';
    if (header(line, n, "X-Repo-Commit", text, sizeof text) && hub_is_hex(text, HUB_COMMIT - 1))
        memcpy(a->commit, text, HUB_COMMIT);
    else if (header(line, n, "X-Linked-Etag", text, sizeof text)) keep_etag(a, text);
    else if (header(line, n, "X-Linked-Size", text, sizeof text)) a->linked_bytes = number(text);
    else if (header(line, n, "Content-Range", text, sizeof text) && strncasecmp(text, "bytes ", 6) == 0)
        a->range_begin = number(text + 6);
    else if (header(line, n, "Link", text, sizeof text)) keep_next(a, text);
    else if (header(line, n, "X-Error-Code", text, sizeof a->error)) snprintf(a->error, sizeof a->error, "%s", text);
    else if (header(line, n, "X-Error-Message", text, sizeof a->message))
        snprintf(a->message, sizeof a->message, "%s", text);
    return n;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    transfer *t = user;
    size_t n = size * count;
    curl_lib.curl_easy_getinfo(t->s->curl, CURLINFO_RESPONSE_CODE, &t->a->code);
    if (t->a->code != 200 && t->a->code != 206) return (t->ignored += n) <= MAX_IGNORED ? n : 0;
    return t->sink(t->user, t->a, data, n) ? n : 0;
}

/* ---- requests ------------------------------------------------------------------------------------ */

static void set_options(transfer *t, const char *url, int64_t from, struct curl_slist *headers)
{
    CURL *c = t->s->curl;
    char range[32];
    curl_lib.curl_easy_reset(c);
    curl_set_up(c, url);
    curl_lib.curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 15L);
    curl_lib.curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_lib.curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, t->s->site->patience_s);
    curl_lib.curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_lib.curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_lib.curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_lib.curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_lib.curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_lib.curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_lib.curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_lib.curl_easy_setopt(c, CURLOPT_XFERINFODATA, t->s);
    if (headers) curl_lib.curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (!t->sink) curl_lib.curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    snprintf(range, sizeof range, "%lld-", (long long)from);
    if (from > 0) curl_lib.curl_easy_setopt(c, CURLOPT_RANGE, range);
}

/* Sends one request. *next: the target of a redirect, or NULL; the caller frees it. */
static cloob_status ask_once(transfer *t, const char *url, int64_t from, char **next)
{
    char line[sizeof t->s->site->token + 32];
    struct curl_slist *headers = NULL;
    char *where = NULL;
    *next = NULL;
    t->a->code = 0;
    if (t->s->site->token[0] && same_origin(url, t->s->site->endpoint)) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", t->s->site->token);
        headers = curl_lib.curl_slist_append(NULL, line);
        if (!headers) return ctx_no_memory(t->s->ctx, sizeof line, "a request");
    }
    set_options(t, url, from, headers);
    t->a->result = curl_lib.curl_easy_perform(t->s->curl);
    curl_lib.curl_slist_free_all(headers);
    if (is_stopped(t->s))
        return ctx_fail(t->s->ctx, CLOOB_ERR_STOPPED, "stopped; run the command again to continue the download");
    curl_lib.curl_easy_getinfo(t->s->curl, CURLINFO_RESPONSE_CODE, &t->a->code);
    curl_lib.curl_easy_getinfo(t->s->curl, CURLINFO_RETRY_AFTER, &t->a->retry_after_s);
    if (t->a->result != CURLE_OK || t->a->code < 300 || t->a->code >= 400) return CLOOB_OK;
    curl_lib.curl_easy_getinfo(t->s->curl, CURLINFO_REDIRECT_URL, &where);
    if (!where) return CLOOB_OK;
    if (strncmp(url, "https:", 6) == 0 && strncmp(where, "https:", 6) != 0)
        return ctx_fail(t->s->ctx, CLOOB_ERR_IO, "%.200s redirects to an unencrypted URL, which is refused", url);
    *next = strdup(where);
    return *next ? CLOOB_OK : ctx_no_memory(t->s->ctx, strlen(where), "a request");
}

cloob_status http_ask(http_session *s, const char *url, int64_t from, http_sink *sink, void *user, http_answer *a)
{
    transfer t = { .s = s, .a = a, .sink = sink, .user = user };
    char *at = strdup(url), *next = NULL;
    cloob_status status = at ? CLOOB_OK : ctx_no_memory(s->ctx, strlen(url), "a request");
    *a = (http_answer){ .linked_bytes = -1, .range_begin = -1 };
    for (int hop = 0; status == CLOOB_OK; hop++) {
        status = ask_once(&t, at, from, &next);
        free(at);
        at = next;
        if (!at || (!sink && a->commit[0])) break;
        if (hop == MAX_REDIRECTS)
            status = ctx_fail(s->ctx, CLOOB_ERR_IO, "%.200s: more than %d redirects", url, MAX_REDIRECTS);
    }
    free(at);
    return status;
}

/* ---- failures ------------------------------------------------------------------------------------ */

static bool is_unreachable(CURLcode r)
{
    return r == CURLE_COULDNT_RESOLVE_HOST || r == CURLE_COULDNT_RESOLVE_PROXY || r == CURLE_COULDNT_CONNECT;
}

/* Whether the failure is temporary, so that a retry may succeed. */
static bool is_temporary(const http_answer *a)
{
    static const CURLcode passing[] = { CURLE_PARTIAL_FILE,       CURLE_RECV_ERROR,         CURLE_SEND_ERROR,
                                        CURLE_GOT_NOTHING,        CURLE_OPERATION_TIMEDOUT, CURLE_HTTP2,
                                        CURLE_HTTP2_STREAM,       CURLE_COULDNT_CONNECT,    CURLE_COULDNT_RESOLVE_HOST,
                                        CURLE_WEIRD_SERVER_REPLY, CURLE_SSL_CONNECT_ERROR };
    static const long codes[] = { 408, 416, 429, 500, 502, 503, 504 };
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (a->result == passing[i]) return true;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (a->result == CURLE_OK && a->code == codes[i]) return true;
    return false;
}

bool http_try_again(http_session *s, const http_answer *a, int *tries)
{
    int most = is_unreachable(a->result) ? MAX_UNREACHED : MAX_TRIES;
    if (!is_temporary(a) || ++*tries >= most || a->retry_after_s > MAX_WAIT_S) return false;
    double wait = a->retry_after_s > 0 ? (double)a->retry_after_s : 0.1 * (double)(1 << *tries);
    if (wait >= 2)
        ctx_log(s->ctx, CLOOB_LOG_INFO, "%s: %s; trying again in %.0f s", s->site->endpoint,
                a->result != CURLE_OK ? curl_lib.curl_easy_strerror(a->result)
                : a->code == 429      ? "too many requests"
                                      : "busy",
                wait);
    for (double end = clock_seconds() + wait; clock_seconds() < end && !is_stopped(s);)
        nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
    return true;
}

cloob_status http_refuse(http_session *s, const hub_name *name, const char *what, const http_answer *a)
{
    const char *at = s->site->endpoint;
    bool token = s->site->token[0];
    if (a->result != CURLE_OK)
        return ctx_fail(s->ctx, CLOOB_ERR_BUSY,
                        "%s: cannot download from %s: %s; check the network, https_proxy and HF_ENDPOINT, or give the "
                        "path of a model",
                        name->repo, at, curl_lib.curl_easy_strerror(a->result));
    if (strcmp(a->error, "GatedRepo") == 0 || (a->code == 403 && strcmp(a->error, "RepoNotFound") != 0))
        return ctx_fail(s->ctx, CLOOB_ERR_IO,
                        "%s: access requires the consent of its owner; accept the terms at %s/%s, then %s", name->repo,
                        at, name->repo,
                        token ? "set HF_TOKEN to a token of that account" : "set HF_TOKEN to a token of your account");
    if (strcmp(a->error, "RevisionNotFound") == 0)
        return ctx_fail(s->ctx, CLOOB_ERR_IO, "%s: no revision %s in this repository", name->repo, name->revision);
    if (a->code == 401 && token && strcmp(a->error, "RepoNotFound") != 0)
        return ctx_fail(s->ctx, CLOOB_ERR_IO, "%s: %s rejected the token from HF_TOKEN or the token file", name->repo,
                        at);
    if (a->code == 401 || (a->code == 404 && strcmp(a->error, "EntryNotFound") != 0))
        return ctx_fail(s->ctx, CLOOB_ERR_IO, "%s: %s has no such model%s", name->repo, at,
                        token ? ", or its token may not read it" : "; a private one needs HF_TOKEN");
    if (a->code == 404) return ctx_fail(s->ctx, CLOOB_ERR_IO, "%s: no file %s in this repository", name->repo, what);
    return ctx_fail(s->ctx, is_temporary(a) ? CLOOB_ERR_BUSY : CLOOB_ERR_IO,
                    "%s: %s returned HTTP status %ld for %s%s%s; try again later", name->repo, at, a->code, what,
                    a->message[0] ? ": " : "", a->message);
}
