/* Coverage of the sphere, spectrum of the covariance, similarities of pairs. */
#include "eval/analysis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/file.h"
#include "core/needs.h"
#include "core/sbuf.h"
#include "eval/metrics.h"
#include "eval/rows.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linalg.h"
#include "tensor/cpu/vmath.h"

/* ---- uniformity: sums over all pairs, tile by tile, in double between the rows of a tile  */

typedef struct pair_sums {
    double arc, potential;
    double pad[6]; /* one cache line per thread */
} pair_sums;

/* Row i of a tile beyond the diagonal. */
static void add_row(pair_sums *out, const float *s, int64_t n)
{
    float arc[TILE_COLUMNS], potential[TILE_COLUMNS];
    double arcs = 0, potentials = 0;
    for (int64_t j = 0; j < n; j++) arc[j] = vmath_asin(s[j]);
    for (int64_t j = 0; j < n; j++) potential[j] = vmath_exp_or_zero(4.0f * s[j] - 4.0f); /* |x - y|^2 = 2 - 2 x.y */
    for (int64_t j = 0; j < n; j++) arcs += arc[j];
    for (int64_t j = 0; j < n; j++) potentials += potential[j];
    out->arc += arcs;
    out->potential += potentials;
}

static void visit(void *arg, const tile *t)
{
    pair_sums *out = (pair_sums *)arg + t->thread;
    for (int64_t i = t->i0; i < t->i0 + t->ni; i++) {
        int64_t skip = i + 1 > t->j0 ? i + 1 - t->j0 : 0;
        if (skip < t->nj) add_row(out, t->s + (i - t->i0) * t->nj + skip, t->nj - skip);
    }
}

cloob_status uniformity_run(cloob_ctx *ctx, coverage *out, const unit_rows *x)
{
    int threads = tiles_threads(ctx, x);
    double N = (double)x->src.N, arc = 0, potential = 0;
    if (x->src.N < 2) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: uniformity needs two rows", x->src.name);
    pair_sums *part = calloc((size_t)threads, sizeof *part);
    if (!part) return ctx_no_memory(ctx, (size_t)threads * sizeof *part, "sums");
    cloob_status status = tiles_run(ctx, x, x, TILES_UPPER, &(tile_visitor){ visit, NULL, part });
    for (int k = 0; k < threads; k++) arc += part[k].arc, potential += part[k].potential;
    free(part);
    out->ajne = 0.25 + arc / (M_PI * N);
    out->uniformity = log(potential / (0.5 * N * (N - 1)));
    return status;
}

/* ---- separation ------------------------------------------------------------------------------ */

static void keep_nearest(void *arg, const tile *t)
{
    float *nearest = arg; /* of each row, which one thread owns */
    for (int64_t i = t->i0; i < t->i0 + t->ni; i++)
        for (int64_t j = t->j0; j < t->j0 + t->nj; j++) {
            float s = t->s[(i - t->i0) * t->nj + (j - t->j0)];
            if (j != i && s > nearest[i]) nearest[i] = s;
        }
}

cloob_status separation_run(cloob_ctx *ctx, separation *out, const unit_rows *x, double beta)
{
    int64_t n = x->src.N;
    double N = (double)n;
    if (n < 2 || !(beta > 0) || !isfinite(beta))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: separation needs two rows and a scale above 0", x->src.name);
    float *nearest = malloc((size_t)n * sizeof *nearest);
    if (!nearest) return ctx_no_memory(ctx, (size_t)n * sizeof *nearest, "separation");
    for (int64_t i = 0; i < n; i++) nearest[i] = -2;
    cloob_status status = tiles_run(ctx, x, x, TILES_ALL, &(tile_visitor){ keep_nearest, NULL, nearest });
    *out = (separation){ .needed = 2 / (beta * N) + log(2 * (N - 1) * N * beta) / beta, .smallest = 2 };
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        double apart = 1 - (double)nearest[i];
        out->rows += apart >= out->needed;
        out->smallest = fmin(out->smallest, apart);
        out->mean += apart / N;
    }
    free(nearest);
    return status;
}

/* ---- mean, covariance, eigenvalues ----------------------------------------------------------- */

enum { BLOCK_ROWS = 2048 };

int64_t spectrum_effective(const double *value, int64_t n, double share)
{
    double total = 0, sum = 0;
    int64_t below = 0;
    for (int64_t i = 0; i < n; i++) total += value[i];
    if (total <= 1e-12) return 0; /* rows that differ only by rounding: no variance */
    for (int64_t i = 0; i < n; i++) {
        sum += value[i];
        if (sum / total < share) below++;
    }
    return below < n ? below + 1 : n;
}

/* C (D, D): the covariance of the unit rows, formed in double by blocks in two passes, mean first. C is 0 on entry. */
static cloob_status covariance(cloob_ctx *ctx, const unit_rows *x, double *C)
{
    int64_t D = x->src.D, N = x->src.N;
    double *mean = calloc((size_t)(BLOCK_ROWS + 1) * (size_t)D, sizeof *mean), *wide = mean + D;
    float *block = malloc((size_t)(BLOCK_ROWS * D) * sizeof *block);
    for (int pass = 0; pass < 2 && mean && block; pass++)
        for (int64_t at = 0, n; at < N; at += n) {
            n = min64(BLOCK_ROWS, N - at);
            unit_rows_read(x, at, n, block);
            for (int64_t i = 0; i < n; i++)
                for (int64_t k = 0; k < D; k++)
                    if (pass == 0) mean[k] += block[i * D + k];
                    else wide[i * D + k] = block[i * D + k] - mean[k] / (double)N;
            if (pass) cpu_dgemm(ctx, true, false, D, D, n, 1 / (double)(N - 1), wide, D, wide, D, 1, C, D);
        }
    bool room = mean && block;
    free(mean), free(block);
    return room ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(BLOCK_ROWS * D) * 12, "a covariance");
}

/* Eigenvalues of the covariance (divided by N - 1) of the unit rows, and how many of them matter: a low effective
 * number means that few features carry all the variance ("explaining away"). Needs two rows and D^2 doubles. share:
 * 0.99 in the paper. */
static cloob_status spectrum_run(cloob_ctx *ctx, coverage *out, const unit_rows *x, double share)
{
    int64_t D = x->src.D;
    if (x->src.N < 2) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a covariance needs two rows", x->src.name);
    double *C = calloc((size_t)(D * D), sizeof *C);
    out->eigenvalue = malloc((size_t)D * sizeof *out->eigenvalue);
    cloob_status status = CLOOB_OK;
    if (!C || !out->eigenvalue) status = ctx_no_memory(ctx, (size_t)(D * D) * sizeof *C, "a covariance");
    if (status == CLOOB_OK) status = covariance(ctx, x, C);
    if (status == CLOOB_OK) status = linalg_eigenvalues(ctx, out->eigenvalue, C, D);
    free(C);
    CLOOB_TRY(status);
    out->dimensions = D;
    for (int64_t k = 0; k < D; k++) {
        if (out->eigenvalue[k] < 0) out->eigenvalue[k] = 0; /* rounding */
        out->variance += out->eigenvalue[k];
    }
    out->effective = spectrum_effective(out->eigenvalue, D, share);
    return CLOOB_OK;
}

/* ---- similarities of matched pairs, and of the most similar unmatched ones -------------------------- */

/* For each image, its 10, 100 and 1000 most similar texts other than its own. An objective that overfits raises the
 * similarities of matched pairs together with those of the top-10 unmatched. */
static const int64_t sizes[UNMATCHED_SETS] = { 10, 100, 1000 };
enum { KEEP = 1000 };

typedef struct set_sums {
    double sum, square;
    int64_t bin[SIMILARITY_BINS];
} set_sums;

typedef struct worker { /* one thread's rows */
    near_row *best;     /* (TILE_ROWS + 1, KEEP): a heap for each row, then scratch */
    int64_t held[TILE_ROWS];
    set_sums unmatched[UNMATCHED_SETS];
} worker;

static void visit_similarities(void *arg, const tile *t)
{
    worker *w = (worker *)arg + t->thread;
    for (int64_t i = 0; i < t->ni; i++)
        for (int64_t j = 0; j < t->nj; j++)
            if (t->j0 + j != t->i0 + i)
                best_offer(w->best + i * KEEP, &w->held[i], KEEP, t->j0 + j, t->s[i * t->nj + j]);
}

static int bin_of(double s)
{
    double b = floor((s + 1) * (SIMILARITY_BINS / 2));
    return b < 0 ? 0 : b >= SIMILARITY_BINS ? SIMILARITY_BINS - 1 : (int)b;
}

static void add_value(set_sums *sums, double s)
{
    sums->sum += s;
    sums->square += s * s;
    sums->bin[bin_of(s)]++;
}

/* The 10 largest are among the 100 largest, and those among the 1000. */
static void rows_done(void *arg, int64_t i0, int64_t ni, int thread)
{
    worker *w = (worker *)arg + thread;
    near_row *scratch = w->best + TILE_ROWS * KEEP;
    (void)i0;
    for (int64_t i = 0; i < ni; i++) {
        near_row *row = w->best + i * KEEP;
        int64_t n = w->held[i];
        for (int set = UNMATCHED_SETS - 1; set >= 0; set--) {
            int64_t kept = 0;
            for (int64_t j = 0; j < n; j++) best_offer(scratch, &kept, sizes[set], row[j].entry, row[j].score);
            n = kept;
            memcpy(row, scratch, (size_t)n * sizeof *row);
            for (int64_t j = 0; j < n; j++) add_value(&w->unmatched[set], row[j].score);
        }
        w->held[i] = 0;
    }
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void finish_set(similarity_set *out, const set_sums *sums, int64_t asked, int64_t k, int64_t count)
{
    double mean = sums->sum / (double)count, variance = sums->square / (double)count - mean * mean;
    *out = (similarity_set){ asked, k, count, mean, sqrt(variance > 0 ? variance : 0), { 0 } };
    memcpy(out->bin, sums->bin, sizeof out->bin);
}

static cloob_status run_matched(cloob_ctx *ctx, pair_similarity *out, const unit_rows *x, const unit_rows *y)
{
    int64_t D = x->src.D, N = x->src.N;
    float *a = malloc((size_t)D * 2 * sizeof *a), *b = a + D;
    set_sums sums = { 0 };
    if (!a) return ctx_no_memory(ctx, (size_t)D * 2 * sizeof *a, "a pair of rows");
    for (int64_t i = 0; i < N; i++) {
        double s = 0;
        unit_rows_read(x, i, 1, a);
        unit_rows_read(y, i, 1, b);
        for (int64_t k = 0; k < D; k++) s += (double)a[k] * b[k];
        add_value(&sums, s);
    }
    free(a);
    finish_set(&out->matched, &sums, 1, 1, N);
    out->alignment = 2 - 2 * out->matched.mean;
    return CLOOB_OK;
}

static void merge_threads(pair_similarity *out, const worker *w, int threads, int64_t N)
{
    for (int set = 0; set < UNMATCHED_SETS; set++) {
        set_sums all = { 0 };
        int64_t k = sizes[set] < N - 1 ? sizes[set] : N - 1;
        for (int t = 0; t < threads; t++) {
            const set_sums *part = &w[t].unmatched[set];
            all.sum += part->sum, all.square += part->square;
            for (int b = 0; b < SIMILARITY_BINS; b++) all.bin[b] += part->bin[b];
        }
        finish_set(&out->unmatched[set], &all, sizes[set], k, N * k);
    }
}

static cloob_status run_unmatched(cloob_ctx *ctx, pair_similarity *out, const unit_rows *x, const unit_rows *y)
{
    int threads = tiles_threads(ctx, x);
    size_t each = (size_t)(TILE_ROWS + 1) * KEEP;
    worker *w = calloc((size_t)threads, sizeof *w);
    near_row *best = malloc((size_t)threads * each * sizeof *best);
    cloob_status status = ctx_no_memory(ctx, (size_t)threads * each * sizeof *best, "the largest similarities");
    if (w && best) {
        for (int t = 0; t < threads; t++) w[t].best = best + (size_t)t * each;
        status = tiles_run(ctx, x, y, TILES_ALL, &(tile_visitor){ visit_similarities, rows_done, w });
        if (status == CLOOB_OK) merge_threads(out, w, threads, x->src.N);
    }
    free(w), free(best);
    return status;
}

/* ---- the whole analysis ---------------------------------------------------------------------- */

static cloob_status run_spread(cloob_ctx *ctx, coverage *out, const unit_rows *x, double share)
{
    ctx_log(ctx, CLOOB_LOG_INFO, "%s: %lld x %lld: covariance and %.3g pairs", x->src.name, (long long)x->src.N,
            (long long)x->src.D, 0.5 * (double)x->src.N * (double)(x->src.N - 1));
    CLOOB_TRY(spectrum_run(ctx, out, x, share));
    return uniformity_run(ctx, out, x);
}

/* x, y: the same N and D, N at least 2. Streams x y^T; memory is 1000 candidates per row of a tile and thread. */
static cloob_status run_pair(cloob_ctx *ctx, embedding_analysis *out, const unit_rows *x, const unit_rows *y)
{
    CLOOB_TRY(unit_rows_match(ctx, x, y));
    out->paired = true;
    CLOOB_TRY(run_spread(ctx, &out->y, y, out->share));
    ctx_log(ctx, CLOOB_LOG_INFO, "matched and unmatched similarities");
    CLOOB_TRY(run_matched(ctx, &out->similarity, x, y));
    return run_unmatched(ctx, &out->similarity, x, y);
}

cloob_status analysis_run(cloob_ctx *ctx, embedding_analysis *out, const rows *image, const rows *text, double share)
{
    unit_rows x, y;
    memset(out, 0, sizeof *out);
    if (!(share > 0 && share < 1))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "share %g: needs a number between 0 and 1", share);
    out->rows = image->N, out->share = share;
    CLOOB_TRY(unit_rows_init(ctx, &x, image));
    out->scaled = x.scaled;
    cloob_status status = CLOOB_OK;
    if (text) {
        status = unit_rows_init(ctx, &y, text);
        if (status == CLOOB_OK) {
            out->scaled += y.scaled;
            status = run_pair(ctx, out, &x, &y);
            unit_rows_release(&y);
        }
    }
    if (status == CLOOB_OK) status = run_spread(ctx, &out->x, &x, share);
    unit_rows_release(&x);
    return status;
}

void analysis_release(embedding_analysis *a)
{
    if (!a) return;
    free(a->x.eigenvalue), free(a->y.eigenvalue);
    a->x.eigenvalue = a->y.eigenvalue = NULL;
}

/* ---- files --------------------------------------------------------------------------------------- */

static void put_eigenvalues(sbuf *s, const embedding_analysis *a)
{
    sbuf_puts(s, a->paired ? "index\tx\ty\n" : "index\tx\n");
    for (int64_t i = 0; i < a->x.dimensions; i++) {
        sbuf_printf(s, "%lld\t%.9g", (long long)i + 1, a->x.eigenvalue[i]);
        if (a->paired) sbuf_printf(s, "\t%.9g", a->y.eigenvalue[i]);
        sbuf_putc(s, '\n');
    }
}

static void put_similarities(sbuf *s, const pair_similarity *m)
{
    sbuf_puts(s, "from\tto\tmatched");
    for (int k = 0; k < UNMATCHED_SETS; k++) sbuf_printf(s, "\ttop%lld_unmatched", (long long)m->unmatched[k].asked);
    for (int b = 0; b < SIMILARITY_BINS; b++) {
        sbuf_printf(s, "\n%.2f\t%.2f\t%lld", b / 100.0 - 1, (b + 1) / 100.0 - 1, (long long)m->matched.bin[b]);
        for (int k = 0; k < UNMATCHED_SETS; k++) sbuf_printf(s, "\t%lld", (long long)m->unmatched[k].bin[b]);
    }
    sbuf_putc(s, '\n');
}

cloob_status analysis_write(cloob_ctx *ctx, const embedding_analysis *a, const embedding_analysis *reference,
                            const char *folder)
{
    API_NEEDS(ctx, a && folder);
    sbuf values = { 0 }, bins = { 0 };
    char *text = analysis_json(a, reference);
    cloob_status status = text ? file_make_dirs(ctx, folder) : ctx_no_memory(ctx, 4096, "analysis.json");
    if (status == CLOOB_OK)
        status = file_write_in(ctx, folder, "analysis.json", &(sbuf){ .data = text, .len = strlen(text) });
    put_eigenvalues(&values, a);
    if (status == CLOOB_OK) status = file_write_in(ctx, folder, "eigenvalues.tsv", &values);
    if (a->paired) put_similarities(&bins, &a->similarity);
    if (status == CLOOB_OK && a->paired) status = file_write_in(ctx, folder, "similarities.tsv", &bins);
    sbuf_release(&values), sbuf_release(&bins);
    free(text);
    return status;
}
