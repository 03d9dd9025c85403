/* Fields: a key of number and kind, then the value. */
#include "model/onnx/proto.h"

#include <string.h>

enum { VARINT = 0, BYTES = 2, FIXED32 = 5 };

static void varint(sbuf *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) sbuf_putc(m, (char)(v | 0x80));
    sbuf_putc(m, (char)v);
}

static void key(sbuf *m, int field, int kind) { varint(m, (uint64_t)field << 3 | (uint64_t)kind); }

void proto_int(sbuf *m, int field, int64_t v)
{
    key(m, field, VARINT);
    varint(m, (uint64_t)v);
}

void proto_float(sbuf *m, int field, float v)
{
    key(m, field, FIXED32);
    sbuf_add(m, &v, sizeof v); /* little-endian, as every machine we run on */
}

void proto_bytes(sbuf *m, int field, const void *data, size_t n)
{
    key(m, field, BYTES);
    varint(m, n);
    sbuf_add(m, data, n);
}

void proto_text(sbuf *m, int field, const char *text) { proto_bytes(m, field, text, strlen(text)); }

void proto_message(sbuf *m, int field, sbuf *inner)
{
    proto_bytes(m, field, inner->data ? inner->data : "", inner->len);
    m->failed |= inner->failed;
    sbuf_release(inner);
    *inner = (sbuf){ 0 };
}
