/* Replies: JSON, text, and errors in the formats of the protocols. */
#include "serve/http.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const char *http_query(const http_request *q, const char *key)
{
    for (int i = 0; i < q->queries; i++)
        if (strcmp(q->query[i].key, key) == 0) return q->query[i].value;
    return NULL;
}

bool http_type_is(const http_request *q, const char *type)
{
    size_t n = strlen(type);
    if (strncasecmp(q->content_type, type, n) != 0) return false;
    char next = q->content_type[n];
    return type[n - 1] == '/' || next == 0 || next == ';' || next == ' ';
}

void http_reply_release(http_reply *r)
{
    if (!r->is_static) free(r->data);
    if (r->fd >= 0) close(r->fd);
    *r = (http_reply){ .fd = -1 };
}

void http_text(http_reply *r, int code, const char *text)
{
    *r = (http_reply){ .code = code,
                       .type = "text/plain; charset=utf-8",
                       .data = (char *)(uintptr_t)text, /* never modified */
                       .bytes = strlen(text),
                       .is_static = true,
                       .fd = -1 };
}

void http_data(http_reply *r, const char *type, char *data, size_t bytes)
{
    *r = (http_reply){ .code = 200, .type = type, .data = data, .bytes = bytes, .fd = -1 };
}

void http_json(http_reply *r, int code, json_out *w)
{
    if (w->failed || !w->data) {
        free(w->data);
        http_text(r, 503, "{\"error\":{\"message\":\"out of memory\"}}");
        r->retry_after = 1;
    } else {
        /* without spare capacity, because a slow client may hold the memory for a long time */
        char *whole = realloc(w->data, w->len + 1);
        if (whole) w->data = whole;
        *r = (http_reply){ .code = code, .data = w->data, .bytes = w->len, .fd = -1 };
    }
    r->type = "application/json";
    *w = (json_out){ 0 };
}

/* ---- errors -------------------------------------------------------------------------------------- */

static const char *openai_type(int code)
{
    if (code == 401 || code == 403) return "authentication_error";
    if (code == 404) return "not_found_error";
    if (code == 429) return "rate_limit_error";
    return code >= 500 ? "server_error" : "invalid_request_error";
}

static const char *tei_type(int code)
{
    if (code == 401 || code == 403) return "Unauthorized";
    if (code == 429) return "Overloaded";
    if (code == 503) return "Unhealthy";
    return code >= 500 ? "Backend" : "Validation";
}

int http_bad_request(error_format format) { return format == ERROR_TEI || format == ERROR_DETAIL ? 422 : 400; }

static void put_error(json_out *w, error_format format, int code, const char *text)
{
    static const char *const key[] = {
        [ERROR_TEI] = "error", [ERROR_DETAIL] = "detail", [ERROR_PLAIN] = "error", [ERROR_MESSAGE] = "message"
    };
    json_begin(w, NULL, '{');
    if (format != ERROR_OPENAI) {
        json_put_text(w, key[format], text);
        if (format == ERROR_TEI) json_put_text(w, "error_type", tei_type(code));
    } else {
        json_begin(w, "error", '{');
        json_members(w, J_TEXT("message", text), J_TEXT("type", openai_type(code)));
        json_put_null(w, "param");
        json_put_int(w, "code", code);
        json_end(w);
    }
    json_end(w);
}

void http_error(http_reply *r, const http_request *q, int code, const char *format, ...)
{
    char text[1024];
    json_out w = { 0 };
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    http_reply_release(r);
    put_error(&w, q && q->route ? q->route->errors : ERROR_OPENAI, code, text);
    http_json(r, code, &w);
    if (code == 429 || code == 503) r->retry_after = 1;
}

int http_code(cloob_status status)
{
    switch (status) {
    case CLOOB_ERR_ARGUMENT:
    case CLOOB_ERR_FORMAT:
    case CLOOB_ERR_UNSUPPORTED: return 400;
    case CLOOB_ERR_BUSY: return 429;
    case CLOOB_ERR_STOPPED:
    case CLOOB_ERR_IO: /* the server's own files: weights, an index */
    case CLOOB_ERR_MEMORY: return 503;
    default: return 500;
    }
}
