/* A tensor is a shape, an element type and a pointer it does not own.
 *
 * Rows are contiguous, last dimension fastest. Views never free. Sizes are int64_t everywhere; letters:
 * N rows or batch, T tokens, C channels or width, H heads, D embedding, O output channels. */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "core/ctx.h"

enum { TENSOR_DIMS = 8 };

typedef struct tensor {
    cloob_dtype dtype;
    int ndim;
    int64_t dim[TENSOR_DIMS];
    void *data;
} tensor;

size_t dtype_size(cloob_dtype d);
bool dtype_is_float(cloob_dtype d);    /* F32, BF16, F16 or F64 */
const char *dtype_name(cloob_dtype d); /* "F32", "BF16", ... as in safetensors */
bool dtype_from_name(const char *name, cloob_dtype *out);

int64_t tensor_count(const tensor *t); /* elements; 1 for a scalar (ndim 0) */
size_t tensor_bytes(const tensor *t);
bool tensor_same_shape(const tensor *a, const tensor *b);

/* data may be NULL while planning. */
tensor tensor_make(cloob_dtype d, int ndim, const int64_t *dim, void *data);
#define TENSOR(dtype, data, ...)                                                                                       \
    tensor_make(dtype, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]){ __VA_ARGS__ }, data)

/* "(512, 77, 8)" into a caller's buffer; returns the buffer. */
enum { SHAPE_TEXT = 128 };
const char *tensor_shape_text(const tensor *t, char text[SHAPE_TEXT]);

/* Element conversions. bf16 rounds to nearest even and keeps NaN. */
uint16_t bf16_from_float(float x);
float bf16_to_float(uint16_t h);
uint16_t f16_from_float(float x);
float f16_to_float(uint16_t h);

/* Converts n elements between any two of F32, BF16, F16, F64 and from integer types to those. Returns
 * false when the pair is not supported. from and to must not overlap unless equal types. */
bool dtype_convert(cloob_dtype to_type, void *to, cloob_dtype from_type, const void *from, int64_t n);

#endif
