/* Base64 (RFC 4648) with padding. */
#ifndef CORE_BASE64_H
#define CORE_BASE64_H

#include "core/sbuf.h"

void base64_put(sbuf *s, const void *bytes, size_t n);

#endif
