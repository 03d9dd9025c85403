/* Three bytes to four letters. */
#include "core/base64.h"

#include <stdint.h>

void base64_put(sbuf *s, const void *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v = (uint32_t)b[i] << 16 | (left > 1 ? (uint32_t)b[i + 1] << 8 : 0) | (left > 2 ? b[i + 2] : 0);
        char quad[4] = { digit[v >> 18], digit[v >> 12 & 63], left > 1 ? digit[v >> 6 & 63] : '=',
                         left > 2 ? digit[v & 63] : '=' };
        sbuf_add(s, quad, 4);
    }
}
