/* Hosts, base64, data URLs, multipart bodies, dates. */
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
    const char *name = path + begin;
    size_t length = n - begin;
    for (size_t i = length; i-- > 1;)
        if (name[i] == '.') {
            length = i;
            break;
        }
    return strndup(name, length);
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

/* ---- base64 -------------------------------------------------------------------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int digit_value(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+' || c == '-') return 62;
    if (c == '/' || c == '_') return 63;
    return -1;
}

static bool is_space(unsigned char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Letters in fours from the beginning on, up to the first that is none or the last four; returns how many were read. */
static size_t decode_fours(const char *text, size_t n, unsigned char *to)
{
    int8_t value[256];
    size_t i = 0;
    for (int c = 0; c < 256; c++) value[c] = (int8_t)digit_value((unsigned char)c);
    for (; i + 4 < n; i += 4, to += 3) {
        const unsigned char *c = (const unsigned char *)text + i;
        int32_t word = value[c[0]] * 262144 | value[c[1]] * 4096 | value[c[2]] * 64 | value[c[3]];
        if (word < 0) break;
        to[0] = (unsigned char)(word >> 16), to[1] = (unsigned char)(word >> 8), to[2] = (unsigned char)word;
    }
    return i;
}

bool base64_decode(const char *text, size_t n, unsigned char **out, size_t *bytes)
{
    unsigned char *to = malloc(n / 4 * 3 + 4);
    size_t count = to ? decode_fours(text, n, to) : 0, length = count / 4 * 3, padding = 0;
    uint32_t word = 0;
    bool ok = to != NULL;
    for (size_t i = count; i < n && ok; i++) {
        unsigned char c = (unsigned char)text[i];
        int value = digit_value(c);
        if (is_space(c)) continue;
        if (c == '=') padding++;
        else if (value < 0 || padding) ok = false;
        if (c == '=' || !ok) continue;
        word = word << 6 | (uint32_t)value;
        if (++count % 4) continue;
        to[length++] = (unsigned char)(word >> 16), to[length++] = (unsigned char)(word >> 8);
        to[length++] = (unsigned char)word;
        word = 0;
    }
    size_t rest = count % 4;
    ok = ok && rest != 1 && padding <= 2 && (!padding || (count + padding) % 4 == 0);
    if (ok && rest == 2) to[length++] = (unsigned char)(word >> 4);
    if (ok && rest == 3) to[length++] = (unsigned char)(word >> 10), to[length++] = (unsigned char)(word >> 2);
    if (!ok) {
        free(to);
        return false;
    }
    to[length] = 0;
    *out = to, *bytes = length;
    return true;
}

char *base64_encode(const void *data, size_t n)
{
    const unsigned char *from = data;
    char *out = malloc((n + 2) / 3 * 4 + 1), *o = out;
    if (!out) return NULL;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t word = (uint32_t)from[i] << 16;
        if (i + 1 < n) word |= (uint32_t)from[i + 1] << 8;
        if (i + 2 < n) word |= from[i + 2];
        *o++ = digits[word >> 18];
        *o++ = digits[word >> 12 & 63];
        *o++ = i + 1 < n ? digits[word >> 6 & 63] : '=';
        *o++ = i + 2 < n ? digits[word & 63] : '=';
    }
    *o = 0;
    return out;
}

const char *data_url_image(const char *text)
{
    if (strncasecmp(text, "data:image/", 11) != 0) return NULL;
    const char *comma = strchr(text, ',');
    if (!comma || comma - text < 7 || comma - text > 200) return NULL;
    return strncasecmp(comma - 7, ";base64", 7) == 0 ? comma + 1 : NULL;
}

/* ---- multipart ----------------------------------------------------------------------------------- */

/* boundary=abc or boundary="abc"; RFC 2046 allows 70 characters. */
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

/* The value of key="..." in a header line that ends before `end`. */
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
        while (from < end && is_space((unsigned char)*from)) from++;
        snprintf(p->type, sizeof p->type, "%.*s", (int)(end - from), from);
    }
}

/* Headers up to the empty line; returns where the data begins, NULL: no empty line. */
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
        return false; /* int64_t holds the nanoseconds of these years */
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
