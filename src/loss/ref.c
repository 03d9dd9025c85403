/* The definition, in plain loops and doubles: softmax with its denominator and its full derivative, none of the fast
 * versions' reformulations. With several ranks each computes everything and keeps its own rows. Memory is 8 matrices of
 * N x d doubles and more, time is N^2 d on one thread: for small batches and for checking. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loss/impl.h"
#include "tensor/tensor.h"

typedef struct retrieval {
    const double *states, *stored; /* (N, d), (M, d) */
    double *dstates, *dstored;
    int64_t M;
    double *unit, *dunit; /* (N, d): the retrieved rows, and their gradient */
} retrieval;

typedef struct ref_run {
    int64_t N, d;
    double beta, inv_tau;
    bool leave_one_out;
    double *row, *drow, *mean; /* scratch: scores and their gradients (longest), one retrieved row (d) */
} ref_run;

static double dot(const double *a, const double *b, int64_t d)
{
    double s = 0;
    for (int64_t i = 0; i < d; i++) s += a[i] * b[i];
    return s;
}

static void add_scaled(double *to, double f, const double *from, int64_t d)
{
    for (int64_t i = 0; i < d; i++) to[i] += f * from[i];
}

/* row[j] = softmax_j(beta state.stored_j); mean = sum_j row[j] stored_j; returns |mean| */
static double retrieve_row(const ref_run *r, const retrieval *h, int64_t i)
{
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < h->M; j++) {
        r->row[j] = r->beta * dot(h->states + i * r->d, h->stored + j * r->d, r->d);
        top = fmax(top, r->row[j]);
    }
    for (int64_t j = 0; j < h->M; j++) sum += r->row[j] = exp(r->row[j] - top);
    memset(r->mean, 0, (size_t)r->d * sizeof *r->mean);
    for (int64_t j = 0; j < h->M; j++) add_scaled(r->mean, r->row[j] /= sum, h->stored + j * r->d, r->d);
    return sqrt(dot(r->mean, r->mean, r->d));
}

/* Returns the first row without a direction, or -1. */
static int64_t retrieve_forward(const ref_run *r, retrieval *h)
{
    for (int64_t i = 0; i < r->N; i++) {
        double length = retrieve_row(r, h, i);
        if (!(length > 0)) return i;
        memset(h->unit + i * r->d, 0, (size_t)r->d * sizeof(double));
        add_scaled(h->unit + i * r->d, 1 / length, r->mean, r->d);
    }
    return -1;
}

/* Adds to dstates and dstored; returns d / d beta. */
static double retrieve_backward(const ref_run *r, retrieval *h)
{
    double dbeta = 0;
    for (int64_t i = 0; i < r->N; i++) {
        const double *unit = h->unit + i * r->d, *state = h->states + i * r->d;
        double *dunit = h->dunit + i * r->d, length = retrieve_row(r, h, i), inner = 0;
        add_scaled(dunit, -dot(unit, dunit, r->d), unit, r->d); /* now |mean| times d mean */
        for (int64_t j = 0; j < h->M; j++) {
            r->drow[j] = dot(dunit, h->stored + j * r->d, r->d) / length;
            inner += r->row[j] * r->drow[j];
        }
        for (int64_t j = 0; j < h->M; j++) {
            double ds = r->row[j] * (r->drow[j] - inner); /* of beta state.stored_j */
            dbeta += ds * dot(state, h->stored + j * r->d, r->d);
            add_scaled(h->dstates + i * r->d, r->beta * ds, h->stored + j * r->d, r->d);
            add_scaled(h->dstored + j * r->d, r->beta * ds, state, r->d);
            add_scaled(h->dstored + j * r->d, r->row[j] / length, dunit, r->d);
        }
    }
    return dbeta;
}

/* Mean over anchors of -ln softmax at the positive, the positive left out of the sum for InfoLOOB. Adds the
 * gradients of inv_tau^-1 times the mean to da, db; *dinv_tau gets that of the mean itself. */
static double contrast(const ref_run *r, const double *a, const double *b, double *da, double *db, double *dinv_tau)
{
    double total = 0;
    for (int64_t i = 0; i < r->N; i++) {
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < r->N; j++) {
            r->row[j] = r->inv_tau * dot(a + i * r->d, b + j * r->d, r->d);
            if (j != i || !r->leave_one_out) top = fmax(top, r->row[j]);
        }
        for (int64_t j = 0; j < r->N; j++)
            if (j != i || !r->leave_one_out) sum += exp(r->row[j] - top);
        total += top + log(sum) - r->row[i];
        for (int64_t j = 0; j < r->N; j++) {
            double p = j != i || !r->leave_one_out ? exp(r->row[j] - top) / sum : 0;
            double dk = (p - (i == j)) / (double)r->N;
            *dinv_tau += dk * r->row[j] / r->inv_tau;
            add_scaled(da + i * r->d, dk, b + j * r->d, r->d);
            add_scaled(db + j * r->d, dk, a + i * r->d, r->d);
        }
    }
    return total / (double)r->N;
}

static double softplus(double z) { return fmax(z, 0) + log1p(exp(-fabs(z))); }

/* SigLIP: softplus(-k) at the positive, softplus(k) elsewhere, k = inv_tau a_i.b_j + bias; the sum over all divided by
 * N. Adds its gradients. */
static void sigmoid_pairs(const ref_run *r, double bias, const double *a, const double *b, double *da, double *db,
                          loss_result *out)
{
    double total = 0;
    for (int64_t i = 0; i < r->N; i++)
        for (int64_t j = 0; j < r->N; j++) {
            double s = dot(a + i * r->d, b + j * r->d, r->d), k = r->inv_tau * s + bias, z = i == j ? 1 : -1;
            double dk = -z / (1 + exp(z * k)) / (double)r->N;
            total += softplus(-z * k);
            out->dsum_dinv_tau += dk * s;
            out->dsum_dbias += dk;
            add_scaled(da + i * r->d, dk * r->inv_tau, b + j * r->d, r->d);
            add_scaled(db + j * r->d, dk * r->inv_tau, a + i * r->d, r->d);
        }
    out->image_term = out->text_term = total / (double)r->N / 2;
}

/* ---- from a plan's inputs to doubles and back ---- */

enum { X, Y, U, V, DX, DY, DU, DV, UX, UY, VX, VY, DUX, DUY, DVX, DVY, ROW, DROW, MEAN, PARTS };

typedef struct ref_memory {
    double *block, *part[PARTS];
    void *gathered;
} ref_memory;

static int64_t longest(const loss_plan *p)
{
    int64_t n = p->total;
    if (p->s.stored_u > n) n = p->s.stored_u;
    return p->s.stored_v > n ? p->s.stored_v : n;
}

static cloob_status memory_init(cloob_ctx *ctx, ref_memory *m, const loss_plan *p)
{
    int64_t nd = p->total * p->s.dim, ud = p->s.stored_u * p->s.dim, vd = p->s.stored_v * p->s.dim, at = 0;
    int64_t size[PARTS] = { nd, nd, ud, vd, nd, nd, ud,         vd,         nd,      nd,
                            nd, nd, nd, nd, nd, nd, longest(p), longest(p), p->s.dim };
    int64_t total = 0;
    for (int i = 0; i < PARTS; i++) total += size[i];
    m->block = calloc((size_t)total, sizeof *m->block);
    m->gathered = malloc((size_t)nd * dtype_size(p->s.dtype));
    if (!m->block || !m->gathered) return ctx_no_memory(ctx, (size_t)total * 8, "the reference objective");
    for (int i = 0; i < PARTS; at += size[i++]) m->part[i] = m->block + at;
    return CLOOB_OK;
}

static cloob_status load(cloob_ctx *ctx, loss_plan *p, ref_memory *m, const loss_inputs *in)
{
    int64_t nd = p->total * p->s.dim;
    CLOOB_TRY(comm_all_gather(ctx, p->c, in->x, m->gathered, p->elements, p->s.dtype));
    dtype_convert(CLOOB_F64, m->part[X], p->s.dtype, m->gathered, nd);
    CLOOB_TRY(comm_all_gather(ctx, p->c, in->y, m->gathered, p->elements, p->s.dtype));
    dtype_convert(CLOOB_F64, m->part[Y], p->s.dtype, m->gathered, nd);
    if (p->hopfield && p->s.stored_u > 0)
        dtype_convert(CLOOB_F64, m->part[U], p->s.dtype, in->u, p->s.stored_u * p->s.dim);
    if (p->hopfield && p->s.stored_v > 0)
        dtype_convert(CLOOB_F64, m->part[V], p->s.dtype, in->v, p->s.stored_v * p->s.dim);
    return CLOOB_OK;
}

/* to = from / inv_tau is not needed: contrast already has the loss's units. */
static void store(const loss_plan *p, void *to, const double *from, int64_t n)
{
    if (to && n > 0) dtype_convert(p->s.dtype == CLOOB_F64 ? CLOOB_F64 : CLOOB_F32, to, CLOOB_F64, from, n);
}

static cloob_status hopfield_objective(cloob_ctx *ctx, loss_plan *p, const ref_run *r, double **m, loss_result *out)
{
    bool u = p->s.stored_u > 0, v = p->s.stored_v > 0;
    const double *su = u ? m[U] : m[X], *sv = v ? m[V] : m[Y];
    double *du = u ? m[DU] : m[DX], *dv = v ? m[DV] : m[DY];
    int64_t mu = u ? p->s.stored_u : p->total, mv = v ? p->s.stored_v : p->total;
    retrieval h[4] = { { m[X], su, m[DX], du, mu, m[UX], m[DUX] },
                       { m[Y], su, m[DY], du, mu, m[UY], m[DUY] },
                       { m[X], sv, m[DX], dv, mv, m[VX], m[DVX] },
                       { m[Y], sv, m[DY], dv, mv, m[VY], m[DVY] } };
    for (int k = 0; k < 4; k++) {
        int64_t bad = retrieve_forward(r, &h[k]);
        if (bad >= 0) return loss_fail_retrieval(ctx, k % 2 ? "y" : "x", k < 2 ? "U" : "V", bad);
    }
    int with_ux = p->cross ? VY : UY, with_vy = p->cross ? UX : VX, grad = DUX - UX; /* where gradients are */
    out->image_term = contrast(r, m[UX], m[with_ux], m[DUX], m[with_ux + grad], &out->dsum_dinv_tau);
    out->text_term = contrast(r, m[VY], m[with_vy], m[DVY], m[with_vy + grad], &out->dsum_dinv_tau);
    for (int k = 0; k < 4; k++) out->dsum_dbeta += retrieve_backward(r, &h[k]) * r->inv_tau;
    return CLOOB_OK;
}

static cloob_status run_in(cloob_ctx *ctx, loss_plan *p, ref_memory *mem, const loss_inputs *in,
                           const loss_outputs *out, loss_result *result)
{
    double **m = mem->part;
    ref_run r = { p->total, p->s.dim, p->o.beta, p->o.inv_tau, p->leave_one_out, m[ROW], m[DROW], m[MEAN] };
    CLOOB_TRY(load(ctx, p, mem, in));
    if (p->hopfield) CLOOB_TRY(hopfield_objective(ctx, p, &r, m, result));
    else if (p->sigmoid) sigmoid_pairs(&r, p->o.bias, m[X], m[Y], m[DX], m[DY], result);
    else {
        result->image_term = contrast(&r, m[X], m[Y], m[DX], m[DY], &result->dsum_dinv_tau);
        result->text_term = contrast(&r, m[Y], m[X], m[DY], m[DX], &result->dsum_dinv_tau);
    }
    if (!p->o.gradients) return CLOOB_OK;
    store(p, out->dx, m[DX] + p->first * p->s.dim, p->s.rows * p->s.dim);
    store(p, out->dy, m[DY] + p->first * p->s.dim, p->s.rows * p->s.dim);
    store(p, out->du, m[DU], p->s.stored_u * p->s.dim);
    store(p, out->dv, m[DV], p->s.stored_v * p->s.dim);
    return CLOOB_OK;
}

static cloob_status run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream,
                        loss_result *result)
{
    ref_memory m = { 0 };
    (void)stream;
    cloob_status status = memory_init(ctx, &m, p);
    if (status == CLOOB_OK) status = run_in(ctx, p, &m, in, out, result);
    free(m.block);
    free(m.gathered);
    return status;
}

static cloob_status prepare(cloob_ctx *ctx, loss_plan *p)
{
    (void)ctx, (void)p;
    return CLOOB_OK;
}

static void release(loss_plan *p) { (void)p; }

static size_t bytes_of(const loss_plan *p) { return (void)p, 0; } /* taken for the length of a run */

const loss_engine loss_engine_ref = { prepare, loss_check_host, run, release, bytes_of, NULL, NULL };
