/* Hosts, data URLs, multipart bodies, dates. */
#include "serve/text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

char *text_stem(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    size_t end = n;
    while (end > begin + 1 && path[end - 1] != '.') end--; /* a leading dot is part of the name */
    return strndup(path + begin, (end > begin + 1 ? end - 1 : n) - begin);
}

bool model_name_same(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a && !isalnum((unsigned char)*a)) a++;
        while (*b && !isalnum((unsigned char)*b)) b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return (!*a && strcasecmp(b, "latest") == 0) || (!*b && strcasecmp(a, "latest") == 0);
        if (!*a) return true;
    }
}

/* ---- hosts --------------------------------------------------------------------------------------- */

static bool is_host_char(unsigned char c, bool six)
{
    return six ? isxdigit(c) || c == ':' || c == '.' : isalnum(c) || c == '-' || c == '.' || c == '_';
}

bool host_parse(const char *text, host_port *out)
{
    const char *colon = strchr(text, ':');
    bool bracket = *text == '[', bare = !bracket && colon && strchr(colon + 1, ':');
    struct in6_addr six;
    size_t n = 0;
    text += bracket;
    for (; is_host_char((unsigned char)*text, bracket || bare); text++) {
        if (n + 1 == HOST_NAME) return false;
        out->name[n++] = (char)tolower((unsigned char)*text);
    }
    out->name[n] = 0;
    out->port = -1;
    if (bracket && *text++ != ']') return false;
    if ((bracket || bare) && inet_pton(AF_INET6, out->name, &six) != 1) return false;
    if (!n || !*text) return n > 0;
    if (*text++ != ':' || !*text) return false;
    for (out->port = 0; isdigit((unsigned char)*text); text++) {
        out->port = 10 * out->port + (*text - '0');
        if (out->port > 65535) return false;
    }
    return !*text;
}

bool host_is_loopback(const host_port *h)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, h->name, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, h->name, &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
    return strcmp(h->name, "localhost") == 0;
}

/* ---- data URLs ----------------------------------------------------------------------------------- */

const char *data_url_image(const char *text)
{
    if (strncasecmp(text, "data:image/", 11) != 0) return NULL;
    const char *comma = strchr(text, ',');
    if (!comma || comma - text < 7 || comma - text > 200) return NULL;
    return strncasecmp(comma - 7, ";base64", 7) == 0 ? comma + 1 : NULL;
}

/* ---- multipart ----------------------------------------------------------------------------------- */

/* Reads the boundary of a Content-Type: boundary=abc or boundary="abc"; RFC 2046 allows 70 characters. */
static bool find_boundary(const char *content_type, char out[80])
{
    const char *at = strcasestr(content_type, "boundary=");
    size_t n;
    if (!at) return false;
    at += 9;
    if (*at == '"') n = strcspn(++at, "\"");
    else n = strcspn(at, "; \t");
    if (n < 1 || n > 70) return false;
    memcpy(out, "--", 2);
    memcpy(out + 2, at, n);
    out[n + 2] = 0;
    return true;
}

/* Reads the value of key="..." from a header line that ends before `end`. */
static void header_value(const char *line, const char *end, const char *key, char *out)
{
    size_t n = strlen(key), length = 0;
    for (const char *c = line; c + n + 2 < end; c++) {
        bool starts = c[-1] == ' ' || c[-1] == ';' || c[-1] == '\t';
        if (!starts || strncasecmp(c, key, n) != 0 || c[n] != '=') continue;
        c += n + 1;
        bool quoted = *c == '"';
        if (quoted) c++;
        while (c < end && length + 1 < PART_NAME && (quoted ? *c != '"' : *c != ';' && *c != ' ')) out[length++] = *c++;
        break;
    }
    out[length] = 0;
}

static void part_header(const char *line, const char *end, form_part *p)
{
    static const char disposition[] = "Content-Disposition:", type[] = "Content-Type:";
    size_t n = (size_t)(end - line);
    if (n > sizeof disposition && strncasecmp(line, disposition, sizeof disposition - 1) == 0) {
        header_value(line + 1, end, "name", p->name);
        header_value(line + 1, end, "filename", p->filename);
    } else if (n > sizeof type && strncasecmp(line, type, sizeof type - 1) == 0) {
        const char *from = line + sizeof type - 1;
        while (from < end && memchr(" \n\r\t", *from, 4)) from++;
        snprintf(p->type, sizeof p->type, "%.*s", (int)(end - from), from);
    }
}

/* Parses headers up to the empty line. Returns the start of the data; NULL: no empty line. */
static const char *part_headers(const char *at, const char *end, form_part *p)
{
    while (at < end) {
        const char *line = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (!line) return NULL;
        if (line == at) return at + 2;
        part_header(at, line, p);
        at = line + 2;
    }
    return NULL;
}

int multipart_parse(const char *content_type, const char *body, size_t bytes, form_part part[PART_MAX])
{
    char mark[80], stop[84];
    const char *end = body + bytes;
    int n = 0;
    if (!find_boundary(content_type, mark)) return -1;
    size_t mark_bytes = strlen(mark);
    snprintf(stop, sizeof stop, "\r\n%s", mark);
    const char *at = memmem(body, bytes, mark, mark_bytes);
    while (at) {
        at += mark_bytes;
        if (end - at >= 2 && memcmp(at, "--", 2) == 0) return n;
        if (end - at < 2 || memcmp(at, "\r\n", 2) != 0 || n == PART_MAX) return -1;
        part[n] = (form_part){ 0 };
        const char *data = part_headers(at + 2, end, &part[n]);
        const char *close = data ? memmem(data, (size_t)(end - data), stop, mark_bytes + 2) : NULL;
        if (data && !close && end - data >= (ptrdiff_t)mark_bytes && memcmp(data, mark, mark_bytes) == 0)
            close = data - 2; /* an empty part without a line of its own */
        if (!close) return -1;
        part[n].data = data;
        part[n].bytes = close > data ? (size_t)(close - data) : 0;
        n++;
        at = close + 2;
    }
    return -1;
}

/* ---- dates --------------------------------------------------------------------------------------- */

bool date_parse(const char *text, int64_t *ns)
{
    struct tm t = { 0 };
    int used = 0;
    if (sscanf(text, "%4d-%2d-%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &used) != 3) return false;
    if (t.tm_year < 1678 || t.tm_year > 2261 || t.tm_mon < 1 || t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31)
        return false; /* int64_t can hold the nanoseconds of these years */
    text += used;
    if (*text == 'T' || *text == ' ') {
        if (sscanf(text + 1, "%2d:%2d:%2d", &t.tm_hour, &t.tm_min, &t.tm_sec) < 2) return false;
    } else if (*text) return false;
    t.tm_year -= 1900, t.tm_mon--;
    *ns = (int64_t)timegm(&t) * INT64_C(1000000000);
    return true;
}

void date_print(int64_t ns, char out[32])
{
    time_t seconds = (time_t)(ns / INT64_C(1000000000));
    struct tm t;
    gmtime_r(&seconds, &t);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &t);
}
