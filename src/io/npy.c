/* Magic, version, the length of a header that ends on a multiple of 64 bytes, the header: a Python dictionary. */
#include "io/rows_file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"

enum { HEADER = 128 - 10 };

void npy_put_beginning(sbuf *s, int64_t rows, int64_t columns)
{
    sbuf_add(s, "\x93NUMPY\x01\x00", 8);
    sbuf_putc(s, HEADER);
    sbuf_putc(s, 0);
    size_t begin = s->len;
    sbuf_printf(s, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }", (long long)rows,
                (long long)columns);
    while (!s->failed && s->len - begin < HEADER - 1) sbuf_putc(s, ' ');
    sbuf_putc(s, '\n');
}

/* ---- reading ------------------------------------------------------------------------------------- */

enum { DICTIONARY = 1024 }; /* longer ones are of arrays with many fields */

typedef struct npy_head {
    char text[DICTIONARY];
    const unsigned char *numbers;
    size_t bytes; /* of the numbers */
} npy_head;

static bool find_head(const unsigned char *at, size_t size, npy_head *h)
{
    if (size < 12 || memcmp(at, "\x93NUMPY", 6) != 0 || at[6] < 1 || at[6] > 3) return false;
    size_t field = at[6] == 1 ? 2 : 4, length = (size_t)load_le(at + 8, (int)field);
    if (length > size - 8 - field || length >= DICTIONARY) return false;
    *h = (npy_head){ .numbers = at + 8 + field + length, .bytes = size - 8 - field - length };
    memcpy(h->text, at + 8 + field, length);
    return true;
}

/* What follows 'key': in the dictionary, without leading spaces; "" when it is not there. */
static const char *value_of(const npy_head *h, const char *key)
{
    char quoted[32];
    int n = snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(h->text, quoted);
    return at ? at + n + strspn(at + n, " ") : "";
}

/* "(12,)" is 12 numbers, "()" one; anything else -1. */
static int64_t length_of(const npy_head *h)
{
    const char *at = value_of(h, "shape");
    long long n = 1;
    int end = 1;
    if (at[0] != '(') return -1;
    if (at[1] != ')' && (!isdigit((unsigned char)at[1]) || sscanf(at, "(%9lld%n", &n, &end) != 1)) return -1;
    at += end;
    return at[strspn(at, ", ")] == ')' ? n : -1;
}

typedef struct npy_type {
    char kind; /* b, i, u or f */
    int bytes;
} npy_type;

static bool type_of(const npy_head *h, npy_type *t)
{
    const char *at = value_of(h, "descr");
    if (strnlen(at, 5) < 5 || at[0] != '\'' || at[4] != '\'') return false;
    bool order = at[1] == '<' || at[1] == '|';
    *t = (npy_type){ at[2], at[3] - '0' };
    bool whole =
        (t->kind == 'i' || t->kind == 'u') && (t->bytes == 1 || t->bytes == 2 || t->bytes == 4 || t->bytes == 8);
    bool real = t->kind == 'f' && (t->bytes == 4 || t->bytes == 8);
    return (order || t->bytes == 1) && (whole || real || (t->kind == 'b' && t->bytes == 1));
}

static double number_at(const unsigned char *at, npy_type t)
{
    uint64_t bits = load_le(at, t.bytes);
    if (t.kind == 'f' && t.bytes == 4) {
        float f;
        uint32_t half = (uint32_t)bits;
        memcpy(&f, &half, sizeof f);
        return (double)f;
    }
    if (t.kind == 'f') {
        double d;
        memcpy(&d, &bits, sizeof d);
        return d;
    }
    if (t.kind != 'i') return (double)bits;
    int shift = 64 - 8 * t.bytes; /* the sign of fewer than eight bytes */
    return (double)((int64_t)(bits << shift) >> shift);
}

cloob_status npy_numbers(cloob_ctx *ctx, const void *data, size_t size, const char *name, double *out, int64_t room,
                         int64_t *n)
{
    npy_head h;
    npy_type t;
    *n = 0;
    if (!find_head(data, size, &h)) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: is no .npy array", name);
    if (!type_of(&h, &t))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: its elements are neither booleans, integers nor floats", name);
    int64_t count = length_of(&h);
    if (count < 0) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not an array of one dimension", name);
    if (count > room)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has %lld numbers; the limit is %lld", name, (long long)count,
                        (long long)room);
    if (h.bytes < (size_t)count * (size_t)t.bytes)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: cut short before the end of its %lld numbers", name,
                        (long long)count);
    for (int64_t i = 0; i < count; i++) out[i] = number_at(h.numbers + i * t.bytes, t);
    *n = count;
    return CLOOB_OK;
}
