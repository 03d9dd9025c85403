/* Shapes, element types and conversions on the host. */
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [CLOOB_F32] = { "F32", 4 }, [CLOOB_BF16] = { "BF16", 2 }, [CLOOB_F16] = { "F16", 2 }, [CLOOB_F64] = { "F64", 8 },
    [CLOOB_I64] = { "I64", 8 }, [CLOOB_I32] = { "I32", 4 },   [CLOOB_I16] = { "I16", 2 }, [CLOOB_I8] = { "I8", 1 },
    [CLOOB_U8] = { "U8", 1 },   [CLOOB_BOOL] = { "BOOL", 1 },
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

size_t dtype_size(cloob_dtype d) { return dtypes[d].size; }

bool dtype_is_float(cloob_dtype d) { return d == CLOOB_F32 || d == CLOOB_BF16 || d == CLOOB_F16 || d == CLOOB_F64; }

const char *dtype_name(cloob_dtype d) { return dtypes[d].name; }

bool dtype_from_name(const char *name, cloob_dtype *out)
{
    for (int i = 0; i < DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (cloob_dtype)i;
            return true;
        }
    return false;
}

int64_t tensor_count(const tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
    return n;
}

size_t tensor_bytes(const tensor *t) { return (size_t)tensor_count(t) * dtype_size(t->dtype); }

bool tensor_same_shape(const tensor *a, const tensor *b)
{
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

tensor tensor_make(cloob_dtype d, int ndim, const int64_t *dim, void *data)
{
    tensor t = { .dtype = d, .ndim = ndim, .data = data };
    for (int i = 0; i < ndim; i++) t.dim[i] = dim[i];
    return t;
}

const char *tensor_shape_text(const tensor *t, char text[SHAPE_TEXT])
{
    int n = snprintf(text, SHAPE_TEXT, "(");
    for (int i = 0; i < t->ndim && n < SHAPE_TEXT - 24; i++)
        n += snprintf(text + n, (size_t)(SHAPE_TEXT - n), "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    snprintf(text + n, (size_t)(SHAPE_TEXT - n), ")");
    return text;
}

/* ---- elements ------------------------------------------------------------------------------------ */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

uint16_t bf16_from_float(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40); /* stay a NaN */
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1)) >> 16);
}

float bf16_to_float(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t f16_from_float(float x)
{
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7C00u); /* 65536 and above */
    if (magnitude < 0x38800000u) {                                   /* subnormal: adding 0.5 aligns the bits */
        uint32_t aligned = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
        return (uint16_t)(sign | aligned);
    }
    uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

float f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3FFu;
    if (exponent == 31) return float_of(sign | 0x7F800000u | fraction << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

static bool load(cloob_dtype d, const void *p, int64_t i, double *out)
{
    switch (d) {
    case CLOOB_F32: *out = (double)((const float *)p)[i]; return true;
    case CLOOB_BF16: *out = (double)bf16_to_float(((const uint16_t *)p)[i]); return true;
    case CLOOB_F16: *out = (double)f16_to_float(((const uint16_t *)p)[i]); return true;
    case CLOOB_F64: *out = ((const double *)p)[i]; return true;
    case CLOOB_I64: *out = (double)((const int64_t *)p)[i]; return true;
    case CLOOB_I32: *out = (double)((const int32_t *)p)[i]; return true;
    case CLOOB_I16: *out = (double)((const int16_t *)p)[i]; return true;
    case CLOOB_I8: *out = (double)((const int8_t *)p)[i]; return true;
    case CLOOB_U8:
    case CLOOB_BOOL: *out = (double)((const uint8_t *)p)[i]; return true;
    }
    return false;
}

static bool store(cloob_dtype d, void *p, int64_t i, double x)
{
    switch (d) {
    case CLOOB_F32: ((float *)p)[i] = (float)x; return true;
    case CLOOB_BF16: ((uint16_t *)p)[i] = bf16_from_float((float)x); return true;
    case CLOOB_F16: ((uint16_t *)p)[i] = f16_from_float((float)x); return true;
    case CLOOB_F64: ((double *)p)[i] = x; return true;
    default: return false;
    }
}

bool dtype_convert(cloob_dtype to_type, void *to, cloob_dtype from_type, const void *from, int64_t n)
{
    if (to_type == from_type) {
        if (n > 0) memmove(to, from, (size_t)n * dtype_size(to_type)); /* nothing may have no address */
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        double x;
        if (!load(from_type, from, i, &x) || !store(to_type, to, i, x)) return false;
    }
    return true;
}
