/* Protocol buffers, written: the part of the wire format that ONNX needs. Messages are built inside out: the content of
 * one in a string, then the string as a field of the next. */
#ifndef MODEL_ONNX_PROTO_H
#define MODEL_ONNX_PROTO_H

#include <stdint.h>

#include "core/sbuf.h"

void proto_int(sbuf *m, int field, int64_t v);
void proto_float(sbuf *m, int field, float v);
void proto_bytes(sbuf *m, int field, const void *data, size_t n);
void proto_text(sbuf *m, int field, const char *text);
/* Takes `inner` over: it is empty afterwards. */
void proto_message(sbuf *m, int field, sbuf *inner);

#endif
