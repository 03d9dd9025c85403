/* The smaller and the larger of two sizes. */
#ifndef CORE_ARITH_H
#define CORE_ARITH_H

#include <stdint.h>

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
