/* Magic, version, the length of a header that ends on a multiple of 64 bytes, the header, the numbers. */
#include "io/npy.h"

#include <string.h>

#include "core/file.h"

enum { HEADER = 128 - 10 };

cloob_status npy_write(cloob_ctx *ctx, const char *path, const float *data, int64_t rows, int64_t columns)
{
    char header[HEADER + 1];
    file_writer w;
    memset(header, ' ', HEADER);
    int n = snprintf(header, HEADER, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                     (long long)rows, (long long)columns);
    header[n] = ' ';
    header[HEADER - 1] = '\n';
    CLOOB_TRY(file_writer_begin(ctx, path, &w));
    size_t count = (size_t)(rows * columns);
    bool ok = fwrite("\x93NUMPY\x01\x00", 1, 8, w.stream) == 8 && fputc(HEADER, w.stream) != EOF &&
              fputc(0, w.stream) != EOF && fwrite(header, 1, HEADER, w.stream) == HEADER &&
              fwrite(data, sizeof *data, count, w.stream) == count;
    if (ok) return file_writer_commit(ctx, &w);
    file_writer_abort(&w);
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot be written (disk full?)", path);
}
