/* The objective of embeddings in files. */
#include <stdlib.h>

#include "cloob/objective.h"
#include "core/needs.h"
#include "io/safetensors.h"
#include "train/objective_file.h"

enum { X, Y, U, V, MATRICES };

static const char *const names[MATRICES] = { "x", "y", "U", "V" };
static const char *const embed_names[MATRICES] = { "image", "text", "U", "V" }; /* as cloob embed writes them */
static const char *const gradient_names[MATRICES] = { "dx", "dy", "dU", "dV" };

typedef struct matrices {
    float *rows[MATRICES], *g[MATRICES];
    int64_t n[MATRICES], d;
} matrices;

static void matrices_release(matrices *m)
{
    for (int i = 0; i < MATRICES; i++) {
        free(m->rows[i]);
        free(m->g[i]);
    }
}

static cloob_status read_matrix(cloob_ctx *ctx, const st_file *f, const char *path, int which, matrices *m)
{
    const tensor *t;
    const char *name = !st_find(f, names[which]) && st_find(f, embed_names[which]) ? embed_names[which] : names[which];
    if (which >= U && !st_find(f, name)) return CLOOB_OK;
    CLOOB_TRY(st_need(ctx, f, path, name, 2, &t));
    m->n[which] = t->dim[0];
    if (which == X) m->d = t->dim[1];
    if (t->dim[1] != m->d || t->dim[0] < 1 || m->d < 1)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: %s has shape (%lld, %lld), but x has width %lld; sets must not be empty", path, name,
                        (long long)t->dim[0], (long long)t->dim[1], (long long)m->d);
    size_t count = (size_t)(t->dim[0] * m->d);
    m->rows[which] = malloc(count * sizeof(float));
    m->g[which] = malloc(count * sizeof(float));
    if (!m->rows[which] || !m->g[which]) return ctx_no_memory(ctx, 2 * count * sizeof(float), name);
    if (!dtype_convert(CLOOB_F32, m->rows[which], t->dtype, t->data, (int64_t)count))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is %s; embeddings are F32, F16, BF16 or F64", path, name,
                        dtype_name(t->dtype));
    return CLOOB_OK;
}

static cloob_status read_matrices(cloob_ctx *ctx, const char *path, matrices *m)
{
    st_file f;
    cloob_status status = st_open(ctx, path, &f);
    if (status != CLOOB_OK) return status;
    for (int i = 0; i < MATRICES && status == CLOOB_OK; i++) status = read_matrix(ctx, &f, path, i, m);
    if (status == CLOOB_OK && m->n[Y] != m->n[X])
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: x has %lld rows and y %lld; pairs need as many of both", path,
                          (long long)m->n[X], (long long)m->n[Y]);
    st_close(&f);
    return status;
}

static cloob_status write_gradients(cloob_ctx *ctx, const char *path, const matrices *m)
{
    st_entry entry[MATRICES];
    int64_t count = 0;
    for (int i = 0; i < MATRICES; i++)
        if (m->rows[i]) entry[count++] = (st_entry){ gradient_names[i], TENSOR(CLOOB_F32, m->g[i], m->n[i], m->d) };
    return st_write(ctx, path, entry, count, NULL, 0);
}

cloob_status objective_file(cloob_ctx *ctx, const cloob_objective_options *o, const char *input, const char *gradients,
                            cloob_objective_result *r)
{
    API_NEEDS(ctx, o && input && r);
    matrices m = { 0 };
    cloob_status status = read_matrices(ctx, input, &m);
    if (status == CLOOB_OK) {
        cloob_pairs e = { m.rows[X], m.rows[Y], m.n[X], m.d, m.rows[U], m.rows[V], m.n[U], m.n[V] };
        cloob_gradients g = { m.g[X], m.g[Y], m.g[U], m.g[V] };
        status = cloob_objective(ctx, o, &e, &g, r);
        if (status != CLOOB_OK) ctx_wrap(ctx, status, "%s", input);
    }
    if (status == CLOOB_OK && gradients) status = write_gradients(ctx, gradients, &m);
    matrices_release(&m);
    return status;
}
