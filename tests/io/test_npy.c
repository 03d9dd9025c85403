/* Small arrays of NumPy: the types labels come in, and what is refused. */
#include "check.h"

#include "io/rows_file.h"

static cloob_ctx *ctx;

/* An array with that dictionary and those bytes; version 1. */
static size_t array(unsigned char *out, const char *head, const void *bytes, size_t n)
{
    size_t length = strlen(head);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)(length & 255), out[9] = (unsigned char)(length >> 8);
    memcpy(out + 10, head, length);
    memcpy(out + 10 + length, bytes, n);
    return 10 + length + n;
}

static cloob_status read_it(const char *head, const void *bytes, size_t n, double *out, int64_t *count)
{
    unsigned char file[512];
    size_t size = array(file, head, bytes, n);
    return npy_numbers(ctx, file, size, "a.npy", out, 8, count);
}

static void types_are_read(void)
{
    double v[8];
    int64_t n;
    CHECK_OK(ctx, read_it("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }  \n",
                          "\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16, v, &n));
    CHECK(n == 2 && v[0] == 1 && v[1] == -1);
    CHECK_OK(ctx, read_it("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }\n", "\x01\0\x01", 3, v, &n));
    CHECK(n == 3 && v[0] == 1 && v[1] == 0 && v[2] == 1);
    CHECK_OK(ctx, read_it("{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }\n", "\xff", 1, v, &n));
    CHECK(v[0] == 255);
    CHECK_OK(ctx, read_it("{'descr': '<i2', 'fortran_order': False, 'shape': (1,), }\n", "\xfe\xff", 2, v, &n));
    CHECK(v[0] == -2);
    CHECK_OK(ctx, read_it("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", "\0\0\xc0\x3f", 4, v, &n));
    CHECK(v[0] == 1.5);
    CHECK_OK(ctx,
             read_it("{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", "\0\0\0\0\0\0\xf8\xbf", 8, v, &n));
    CHECK(n == 1 && v[0] == -1.5);
}

static void others_are_refused(void)
{
    double v[8];
    int64_t n;
    CHECK(read_it("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "x", 1, v, &n) == CLOOB_ERR_FORMAT);
    CHECK(read_it("{'descr': '>i8', 'fortran_order': False, 'shape': (1,), }\n", "12345678", 8, v, &n) ==
          CLOOB_ERR_FORMAT);
    CHECK(read_it("{'descr': '<i8', 'fortran_order': False, 'shape': (1, 1), }\n", "12345678", 8, v, &n) ==
          CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "one dimension"));
    CHECK(read_it("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n", "12345678", 8, v, &n) ==
          CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "cut short"));
    CHECK(read_it("{'descr': '|u1', 'fortran_order': False, 'shape': (9,), }\n", "123456789", 9, v, &n) ==
          CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "the limit is 8"));
    CHECK(read_it("{'descr': '|u1', 'shape': (99999999999999999999,), }\n", "1", 1, v, &n) == CLOOB_ERR_FORMAT);
    CHECK(npy_numbers(ctx, "PK\x03\x04 no array", 16, "a.npy", v, 8, &n) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "a.npy: is no .npy array"));
    unsigned char cut[] = "\x93NUMPY\x01\x00\xff\xff....";
    CHECK(npy_numbers(ctx, cut, sizeof cut, "a.npy", v, 8, &n) == CLOOB_ERR_FORMAT);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(types_are_read);
    RUN(others_are_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
