/* Eigenvalues: Householder reflections to tridiagonal form, then implicit QL steps with Wilkinson's shift. Inverse: by
 * Cholesky's factor. */
#include "tensor/cpu/linalg.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu/clones.h"
#include "tensor/cpu/gemm.h"

enum { QL_STEPS = 60 }; /* per eigenvalue; two or three are usual */

/* ---- tridiagonal form ---------------------------------------------------------------------------- */

/* Reflects row i of A (its first i elements, v) onto its last element: A <- (I - 2vv'/v'v) A (I - 2vv'/v'v)
 * on the leading i x i block, through p = A v / h and q = p - (v.p / 2h) v. Returns the new off-diagonal. */
CPU_CLONES static double reflect(double *A, int64_t n, int64_t i, double *p)
{
    double *v = A + i * n, scale = 0, h = 0, along = 0;
    for (int64_t k = 0; k < i; k++) scale += fabs(v[k]);
    if (i == 1 || scale == 0) return v[i - 1];
    for (int64_t k = 0; k < i; k++) v[k] /= scale, h += v[k] * v[k];
    double last = v[i - 1], off = last > 0 ? -sqrt(h) : sqrt(h);
    h -= last * off; /* half of |v|^2 once v's last element is changed */
    v[i - 1] = last - off;
    for (int64_t j = 0; j < i; j++) { /* the lower triangle row by row: what its row j gives to p[j] and those before */
        double sum = A[j * n + j] * v[j];
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < j; k++) {
            sum += A[j * n + k] * v[k];
            p[k] += A[j * n + k] * v[j];
        }
        p[j] = sum;
    }
    for (int64_t j = 0; j < i; j++) p[j] /= h, along += p[j] * v[j];
    for (int64_t j = 0; j < i; j++) p[j] -= along / (2 * h) * v[j];
    for (int64_t j = 0; j < i; j++)
        for (int64_t k = 0; k <= j; k++) A[j * n + k] -= v[j] * p[k] + p[j] * v[k];
    return scale * off;
}

/* diagonal (n), off (n): off[i] couples i and i + 1. */
static void tridiagonal(double *diagonal, double *off, double *A, int64_t n)
{
    double *p = diagonal; /* free until the end of each step: only its first i elements are used */
    for (int64_t i = n - 1; i > 0; i--) off[i - 1] = reflect(A, n, i, p);
    if (n) off[n - 1] = 0;
    for (int64_t i = 0; i < n; i++) diagonal[i] = A[i * n + i];
}

/* ---- QL ------------------------------------------------------------------------------------------ */

static int64_t first_split(const double *d, const double *e, int64_t l, int64_t n)
{
    for (; l < n - 1; l++)
        if (fabs(e[l]) <= DBL_EPSILON * (fabs(d[l]) + fabs(d[l + 1]))) break;
    return l;
}

/* sqrt(a a + b b) without overflow; hypot would need a newer libm (GLIBC_2.35) than everything else here. */
static double length(double a, double b)
{
    double large = fmax(fabs(a), fabs(b)), small = fmin(fabs(a), fabs(b));
    return large > 0 ? large * sqrt(1 + small / large * (small / large)) : 0;
}

/* One implicit QL step on the unreduced block l..m. */
static void ql_step(double *d, double *e, int64_t l, int64_t m)
{
    double g = (d[l + 1] - d[l]) / (2 * e[l]), r = length(g, 1), s = 1, c = 1, p = 0;
    g = d[m] - d[l] + e[l] / (g + copysign(r, g));
    for (int64_t i = m - 1; i >= l; i--) {
        double f = s * e[i], b = c * e[i];
        e[i + 1] = r = length(f, g);
        if (r == 0) { /* the block splits here */
            d[i + 1] -= p;
            e[m] = 0;
            return;
        }
        s = f / r, c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
    }
    d[l] -= p, e[l] = g, e[m] = 0;
}

static bool ql(double *d, double *e, int64_t n)
{
    for (int64_t l = 0; l < n; l++)
        for (int steps = 0;; steps++) {
            int64_t m = first_split(d, e, l, n);
            if (m == l) break;
            if (steps == QL_STEPS) return false;
            ql_step(d, e, l, m);
        }
    return true;
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

cloob_status linalg_eigenvalues(cloob_ctx *ctx, double *value, double *A, int64_t n)
{
    double *off = malloc((size_t)(n + 1) * sizeof *off);
    if (!off) return ctx_no_memory(ctx, (size_t)n * sizeof *off, "eigenvalues");
    tridiagonal(value, off, A, n);
    bool done = ql(value, off, n);
    free(off);
    if (!done)
        return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "eigenvalues of a %lld x %lld matrix did not converge", (long long)n,
                        (long long)n);
    qsort(value, (size_t)n, sizeof *value, descending);
    return CLOOB_OK;
}

/* ---- inverse ------------------------------------------------------------------------------------- */

/* Replaces A = L L' (n, n), rows ld apart, by X = L^-1, with zeros above its diagonal. Of its parts (P R'; R S):
 *
 *     X_P = inverse factor of P,   W = R X_P',   X_S = inverse factor of S - W W',   X = (X_P 0; -X_S W X_P  X_S)
 *
 * work: n n / 3 elements. False: not positive definite. */
static bool invert_factor(cloob_ctx *ctx, double *A, int64_t n, int64_t ld, double *work)
{
    if (n == 1) {
        bool positive = *A > 0;
        *A = 1 / sqrt(*A);
        return positive;
    }
    int64_t p = n / 2, q = n - p;
    double *R = A + p * ld, *S = R + p, *W = work;
    if (!invert_factor(ctx, A, p, ld, work)) return false;
    cpu_dgemm(ctx, false, true, q, p, p, 1, R, ld, A, ld, 0, W, p);
    cpu_dgemm(ctx, false, true, q, q, p, -1, W, p, W, p, 1, S, ld);
    if (!invert_factor(ctx, S, q, ld, work + p * q)) return false;
    cpu_dgemm(ctx, false, false, q, p, q, 1, S, ld, W, p, 0, R, ld);
    cpu_dgemm(ctx, false, false, q, p, p, -1, R, ld, A, ld, 0, W, p);
    for (int64_t i = 0; i < q; i++) memcpy(R + i * ld, W + i * p, (size_t)p * sizeof *R);
    for (int64_t i = 0; i < p; i++) memset(A + i * ld + p, 0, (size_t)q * sizeof *A);
    return true;
}

/* A^-1 = X' X: the condition of L, not of A, bounds the error, so matrices close to singular can be inverted. */
cloob_status linalg_spd_inverse(cloob_ctx *ctx, double *A, int64_t n)
{
    size_t bytes = (size_t)(n * n + 1) * sizeof(double);
    double *work = malloc(bytes);
    if (!work) return ctx_no_memory(ctx, bytes, "an inverse");
    bool positive = n == 0 || invert_factor(ctx, A, n, n, work);
    if (positive && n) {
        cpu_dgemm(ctx, true, false, n, n, n, 1, A, n, A, n, 0, work, n);
        memcpy(A, work, (size_t)(n * n) * sizeof *A);
    }
    free(work);
    return positive ? CLOOB_OK
                    : ctx_fail(ctx, CLOOB_ERR_NUMERIC, "a %lld x %lld matrix is not positive definite", (long long)n,
                               (long long)n);
}
