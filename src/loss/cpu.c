/* The CPU backend: the check of its inputs, one block of memory per plan, and the choice of an algorithm. */
#include "loss/cpu.h"

#include <stdlib.h>
#include <math.h>
#include "core/pool.h"
#include "tensor/tensor.h"

/* ---- unit rows --------------------------------------------------------------------------------- */

typedef struct rows_check {
    const void *data;
    cloob_dtype dtype;
    int64_t dim;
    double tolerance;
    int64_t bad[256]; /* first bad row of each range, or -1 */
} rows_check;

static double row_length(const rows_check *c, int64_t row)
{
    double sum = 0;
    for (int64_t i = row * c->dim; i < (row + 1) * c->dim; i++) {
        double v = c->dtype == CLOOB_F32   ? ((const float *)c->data)[i]
                   : c->dtype == CLOOB_F64 ? ((const double *)c->data)[i]
                                           : bf16_to_float(((const uint16_t *)c->data)[i]);
        sum += v * v;
    }
    return sqrt(sum);
}

static void check_range(void *arg, int64_t begin, int64_t end, int thread)
{
    rows_check *c = arg;
    c->bad[thread] = -1;
    for (int64_t r = begin; r < end; r++)
        if (!(fabs(row_length(c, r) - 1) <= c->tolerance)) { /* NaN too */
            c->bad[thread] = r;
            return;
        }
}

static cloob_status check_rows(cloob_ctx *ctx, const char *name, const void *data, const loss_plan *p, int64_t n,
                               int64_t first)
{
    rows_check c = { .data = data, .dtype = p->s.dtype, .dim = p->s.dim, .tolerance = loss_unit_tolerance(p->s.dtype) };
    if (n == 0 || !data) return CLOOB_OK;
    pool_for(ctx, n, 64, check_range, &c);
    for (int i = 0; i < pool_ranges(ctx, n, 64); i++)
        if (c.bad[i] >= 0) return loss_fail_row(ctx, name, first + c.bad[i], row_length(&c, c.bad[i]));
    return CLOOB_OK;
}

cloob_status loss_check_host(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, void *stream)
{
    (void)stream;
    CLOOB_TRY(check_rows(ctx, "x", in->x, p, p->s.rows, p->first));
    CLOOB_TRY(check_rows(ctx, "y", in->y, p, p->s.rows, p->first));
    if (!p->hopfield) return CLOOB_OK;
    CLOOB_TRY(check_rows(ctx, "U", in->u, p, p->s.stored_u, 0));
    return check_rows(ctx, "V", in->v, p, p->s.stored_v, 0);
}

/* ---- the engine -------------------------------------------------------------------------------- */

static size_t workspace(const loss_plan *p) { return p->sigmoid ? sigmoid_bytes(p) : batch_bytes(p); }

static cloob_status prepare(cloob_ctx *ctx, loss_plan *p)
{
    if (loss_is_tiny(p)) return loss_engine_ref.prepare(ctx, p);
    size_t bytes = workspace(p);
    if (bytes <= p->bytes && p->memory) return CLOOB_OK;
    free(p->memory);
    p->memory = aligned_alloc(64, bytes);
    p->bytes = p->memory ? bytes : 0;
    return p->memory ? CLOOB_OK : ctx_no_memory(ctx, bytes, "the objective");
}

static cloob_status run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream,
                        loss_result *r)
{
    if (loss_is_tiny(p)) return loss_engine_ref.run(ctx, p, in, out, stream, r);
    return p->sigmoid ? sigmoid_run(ctx, p, in, out, r) : batch_run(ctx, p, in, out, r);
}

static void release(loss_plan *p)
{
    free(p->memory);
    p->memory = NULL;
}

static size_t bytes_of(const loss_plan *p) { return loss_is_tiny(p) ? 0 : workspace(p); }

const loss_engine loss_engine_cpu = { prepare, loss_check_host, run, release, bytes_of, NULL, NULL };
