/* Numbers and texts of the pickle machine, and the reading of its byte stream. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/torch/pickle_machine.h"

/* ---- arguments in the byte stream ---------------------------------------------------------------- */

static bool take(pk_machine *m, size_t n, const unsigned char **bytes)
{
    if ((size_t)(m->end - m->at) < n) return false;
    *bytes = m->at;
    m->at += n;
    return true;
}

/* Little-endian, up to 8 bytes. */
bool pk_take_uint(pk_machine *m, int n, uint64_t *out)
{
    const unsigned char *p = NULL;
    if (!take(m, (size_t)n, &p)) return false;
    *out = 0;
    for (int i = n - 1; i >= 0; i--) *out = *out << 8 | p[i];
    return true;
}

/* A count of n bytes, then that many. */
static cloob_status take_counted(pk_machine *m, int n, const unsigned char **bytes, size_t *count)
{
    uint64_t length;
    if (!pk_take_uint(m, n, &length) || length > (uint64_t)(m->end - m->at) || !take(m, (size_t)length, bytes))
        return pk_fail(m, "cut short");
    *count = (size_t)length;
    return CLOOB_OK;
}

/* Up to the newline, which is taken and not counted. */
cloob_status pk_take_line(pk_machine *m, const char **line, size_t *bytes)
{
    const unsigned char *nl = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!nl) return pk_fail(m, "line without an end");
    *line = (const char *)m->at;
    *bytes = (size_t)(nl - m->at);
    m->at = nl + 1;
    return CLOOB_OK;
}

/* ---- pushing ------------------------------------------------------------------------------------- */

static cloob_status push_text(pk_machine *m, pk_kind kind, const void *text, size_t bytes)
{
    pk_value *v = pk_new(m, kind);
    bool view = m->views && kind == PK_BYTES && bytes > 64;
    const char *own = !v ? NULL : view ? text : arena_string_n(m->a, text, bytes);
    if (!own) return pk_no_memory(m);
    v->text = own;
    v->integer = (int64_t)bytes;
    return pk_push(m, v);
}

static cloob_status push_int(pk_machine *m, int64_t n)
{
    pk_value *v = pk_new(m, PK_INT);
    if (v) v->integer = n;
    return pk_push(m, v);
}

static cloob_status push_float(pk_machine *m, double x)
{
    pk_value *v = pk_new(m, PK_FLOAT);
    if (v) v->real = x;
    return pk_push(m, v);
}

static cloob_status push_bool(pk_machine *m, bool yes)
{
    pk_value *v = pk_new(m, PK_BOOL);
    if (v) v->integer = yes;
    return pk_push(m, v);
}

/* ---- numbers ------------------------------------------------------------------------------------- */

/* Two's complement, little-endian; what does not fit 64 bits is kept as bytes. */
static cloob_status push_long(pk_machine *m, const unsigned char *p, size_t n)
{
    if (n > 8) return push_text(m, PK_BYTES, p, n);
    uint64_t v = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | p[i];
    return push_int(m, (int64_t)v);
}

static cloob_status push_decimal(pk_machine *m, bool may_be_bool)
{
    const char *line = NULL;
    size_t n = 0;
    char text[64], *end;
    CLOOB_TRY(pk_take_line(m, &line, &n));
    if (may_be_bool && n == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return push_bool(m, line[1] == '1');
    if (n && line[n - 1] == 'L') n--;
    if (!n || n >= sizeof text) return pk_fail(m, "number of an impossible length");
    memcpy(text, line, n);
    text[n] = '\0';
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (*end || errno) return pk_fail(m, "not an integer that fits 64 bits");
    return push_int(m, v);
}

static cloob_status push_decimal_float(pk_machine *m)
{
    const char *line = NULL;
    size_t n = 0;
    char text[64], *end;
    CLOOB_TRY(pk_take_line(m, &line, &n));
    if (!n || n >= sizeof text) return pk_fail(m, "number of an impossible length");
    memcpy(text, line, n);
    text[n] = '\0';
    double v = strtod(text, &end);
    return *end ? pk_fail(m, "not a number") : push_float(m, v);
}

static cloob_status push_binary_float(pk_machine *m)
{
    const unsigned char *p = NULL;
    uint64_t bits = 0;
    double v;
    if (!take(m, 8, &p)) return pk_fail(m, "cut short");
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&v, &bits, sizeof v);
    return push_float(m, v);
}

static cloob_status push_binary_int(pk_machine *m, int bytes)
{
    uint64_t v;
    if (!pk_take_uint(m, bytes, &v)) return pk_fail(m, "cut short");
    return push_int(m, bytes == 4 ? (int32_t)(uint32_t)v : (int64_t)v);
}

static cloob_status push_counted(pk_machine *m, pk_kind kind, int count_bytes)
{
    const unsigned char *p = NULL;
    size_t n = 0;
    CLOOB_TRY(take_counted(m, count_bytes, &p, &n));
    return push_text(m, kind, p, n);
}

static cloob_status push_counted_long(pk_machine *m, int count_bytes)
{
    const unsigned char *p = NULL;
    size_t n = 0;
    CLOOB_TRY(take_counted(m, count_bytes, &p, &n));
    return push_long(m, p, n);
}

/* Protocol 0 texts. Escapes are kept as they are written: no name of a weight has any. */
static cloob_status push_line(pk_machine *m, bool quoted)
{
    const char *line = NULL;
    size_t n = 0;
    CLOOB_TRY(pk_take_line(m, &line, &n));
    if (!quoted) return push_text(m, PK_STRING, line, n);
    if (n < 2 || line[0] != line[n - 1] || (line[0] != '\'' && line[0] != '"'))
        return pk_fail(m, "string without quotes");
    return push_text(m, PK_STRING, line + 1, n - 2);
}

/* ---- dispatch ------------------------------------------------------------------------------------ */

cloob_status pk_scalar(pk_machine *m, unsigned char op, bool *known)
{
    switch (op) {
    case 'N': return pk_push(m, pk_new(m, PK_NONE));
    case 0x88: return push_bool(m, true);
    case 0x89: return push_bool(m, false);
    case 'I': return push_decimal(m, true);
    case 'L': return push_decimal(m, false);
    case 'J': return push_binary_int(m, 4);
    case 'K': return push_binary_int(m, 1);
    case 'M': return push_binary_int(m, 2);
    case 0x8a: return push_counted_long(m, 1);
    case 0x8b: return push_counted_long(m, 4);
    case 'F': return push_decimal_float(m);
    case 'G': return push_binary_float(m);
    case 'S': return push_line(m, true);
    case 'V': return push_line(m, false);
    case 'T':
    case 'X': return push_counted(m, PK_STRING, 4);
    case 'U':
    case 0x8c: return push_counted(m, PK_STRING, 1);
    case 0x8d: return push_counted(m, PK_STRING, 8);
    case 'B': return push_counted(m, PK_BYTES, 4);
    case 'C': return push_counted(m, PK_BYTES, 1);
    case 0x8e:
    case 0x96: return push_counted(m, PK_BYTES, 8);
    default: *known = false; return CLOOB_OK;
    }
}
