/* Frozen values of tests/ref by name. */
#ifndef TESTS_EVAL_REF_VALUES_H
#define TESTS_EVAL_REF_VALUES_H

#include "check.h"

#include "core/json.h"
#include "eval/rows.h"
#include "io/safetensors.h"

static inline const char *ref_path(const char *name, char path[1024])
{
    snprintf(path, 1024, "%s/ref/%s", TESTS_DIR, name);
    return path;
}

static inline double want(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->kind == JSON_NUMBER ? v->number : NAN;
}

/* The first value of a tensor of doubles. */
static inline double want_tensor(const st_file *f, const char *name)
{
    const st_entry *e = st_find(f, name);
    double x = NAN;
    if (e && e->t.dtype == CLOOB_F64) memcpy(&x, e->t.data, sizeof x);
    return x;
}

static inline rows rows_named(cloob_ctx *ctx, const st_file *f, const char *name)
{
    rows r = { 0 };
    CHECK_OK(ctx, rows_of(ctx, &r, &st_find(f, name)->t, name));
    return r;
}

/* A matrix in memory as rows. */
static inline rows rows_in(const float *x, int64_t N, int64_t D) { return (rows){ x, CLOOB_F32, N, D, 1, "x" }; }

#endif
