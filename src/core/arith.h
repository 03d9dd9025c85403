/* Minimum, maximum, order and overflow-checked arithmetic of sizes.
 *
 *     int64_t rows;
 *     if (!checked_mul(batch, accum, &rows)) return ctx_fail(...);
 *
 * The saturating forms are for limits and plans. Their arguments are not negative. */
#ifndef CORE_ARITH_H
#define CORE_ARITH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Ascending order, for qsort and bsearch. */
static inline int order_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline int order_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of pointers to strings. */
static inline int order_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* False when the result does not fit; *out is then undefined. */
static inline bool checked_add(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool checked_mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool checked_mul3(int64_t a, int64_t b, int64_t c, int64_t *out)
{
    return checked_mul(a, b, out) && checked_mul(*out, c, out);
}

/* INT64_MAX on overflow. */
static inline int64_t saturating_add(int64_t a, int64_t b)
{
    int64_t sum;
    return checked_add(a, b, &sum) ? sum : INT64_MAX;
}

static inline int64_t saturating_mul(int64_t a, int64_t b)
{
    int64_t product;
    return checked_mul(a, b, &product) ? product : INT64_MAX;
}

static inline size_t saturating_mul_size(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

/* A little-endian number of up to 8 bytes, on a little-endian machine. */
static inline uint64_t load_le(const void *from, int bytes)
{
    uint64_t v = 0;
    memcpy(&v, from, (size_t)bytes);
    return v;
}

#endif
