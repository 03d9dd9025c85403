/* A tile without BLAS: panels of both factors are copied into order once, and a small block of C is kept in
 * registers by the compiler while it runs along K. */
#include "tensor/cpu/gemm.h"

#include <string.h>

#include "core/arith.h"

enum { MR = 4, NR = 16, KC = 256, NC = 128 }; /* KC x NC floats of B: 128 KiB, within the second cache */

#define REAL       float
#define NAME(base) base##_f
#define TILE_NAME  gemm_tile_plain
#include "tensor/cpu/gemm_plain_real.h"
#undef REAL
#undef NAME
#undef TILE_NAME

#define REAL       double
#define NAME(base) base##_d
#define TILE_NAME  gemm_tile_plain_d
#include "tensor/cpu/gemm_plain_real.h"
