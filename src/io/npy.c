/* Magic, version, the length of a header that ends on a multiple of 64 bytes, the header. */
#include "io/npy.h"

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
