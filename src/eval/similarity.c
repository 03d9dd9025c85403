/* A bounded buffer per row keeps the largest similarities seen so far: whatever is not above the row's
 * threshold is passed over; when the buffer is full its K largest stay and the least of them is the new
 * threshold. */
#include "eval/analysis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/rows.h"

static const int64_t sizes[CLOOB_UNMATCHED_SETS] = { 10, 100, 1000 };
enum { KEEP = 1000, BUFFER = 2 * KEEP };

static void swap(float *a, float *b)
{
    float t = *a;
    *a = *b, *b = t;
}

/* Quickselect with the middle of three as pivot; equal values go to both sides, so equal data stays linear.
 */
void select_largest(float *value, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (k > 0 && k < n && low < high) {
        int64_t middle = low + (high - low) / 2, i = low, j = high;
        if (value[middle] > value[low]) swap(&value[middle], &value[low]);
        if (value[high] > value[low]) swap(&value[high], &value[low]);
        if (value[high] > value[middle]) swap(&value[high], &value[middle]);
        float pivot = value[middle];
        while (i <= j) {
            while (value[i] > pivot) i++;
            while (value[j] < pivot) j--;
            if (i <= j) swap(&value[i++], &value[j--]);
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else return;
    }
}

/* ---- one thread's rows --------------------------------------------------------------------------- */

typedef struct set_sums {
    double sum, square;
    int64_t bin[CLOOB_SIMILARITY_BINS];
} set_sums;

typedef struct worker {
    float *buffer;              /* (TILE_ROWS, BUFFER) */
    float threshold[TILE_ROWS]; /* values at or below it cannot be among the K largest */
    int64_t held[TILE_ROWS];
    set_sums unmatched[CLOOB_UNMATCHED_SETS];
} worker;

static float smallest(const float *value, int64_t n)
{
    float min = value[0];
    for (int64_t i = 1; i < n; i++) min = value[i] < min ? value[i] : min;
    return min;
}

static void offer(worker *w, int64_t row, const float *s, int64_t n, int64_t own)
{
    float *buffer = w->buffer + row * BUFFER, threshold = w->threshold[row];
    int64_t held = w->held[row];
    for (int64_t j = 0; j < n; j++) {
        if (s[j] <= threshold || j == own) continue;
        buffer[held++] = s[j];
        if (held < BUFFER) continue;
        select_largest(buffer, held, KEEP);
        held = KEEP;
        threshold = smallest(buffer, KEEP);
    }
    w->held[row] = held, w->threshold[row] = threshold;
}

static void visit(void *arg, const tile *t)
{
    worker *w = (worker *)arg + t->thread;
    for (int64_t i = 0; i < t->ni; i++) offer(w, i, t->s + i * t->nj, t->nj, t->i0 + i - t->j0);
}

static int bin_of(double s)
{
    double b = floor((s + 1) * (CLOOB_SIMILARITY_BINS / 2));
    return b < 0 ? 0 : b >= CLOOB_SIMILARITY_BINS ? CLOOB_SIMILARITY_BINS - 1 : (int)b;
}

static void add_value(set_sums *sums, double s)
{
    sums->sum += s;
    sums->square += s * s;
    sums->bin[bin_of(s)]++;
}

static void reset_rows(worker *w)
{
    for (int64_t i = 0; i < TILE_ROWS; i++) w->threshold[i] = -INFINITY, w->held[i] = 0;
}

/* The 10 largest are among the 100 largest, and those among the 1000. */
static void rows_done(void *arg, int64_t i0, int64_t ni, int thread)
{
    worker *w = (worker *)arg + thread;
    (void)i0;
    for (int64_t i = 0; i < ni; i++) {
        float *buffer = w->buffer + i * BUFFER;
        int64_t n = w->held[i];
        for (int set = CLOOB_UNMATCHED_SETS - 1; set >= 0; set--) {
            int64_t k = sizes[set] < n ? sizes[set] : n;
            select_largest(buffer, n, k);
            for (int64_t j = 0; j < k; j++) add_value(&w->unmatched[set], buffer[j]);
            n = k;
        }
    }
    reset_rows(w);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void finish_set(cloob_similarity_set *out, const set_sums *sums, int64_t asked, int64_t k, int64_t count)
{
    double mean = sums->sum / (double)count, variance = sums->square / (double)count - mean * mean;
    *out = (cloob_similarity_set){ asked, k, count, mean, sqrt(variance > 0 ? variance : 0), { 0 } };
    memcpy(out->bin, sums->bin, sizeof out->bin);
}

static cloob_status run_matched(cloob_ctx *ctx, cloob_similarity *out, const unit_rows *x, const unit_rows *y)
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

static void merge(cloob_similarity *out, const worker *w, int threads, int64_t N)
{
    for (int set = 0; set < CLOOB_UNMATCHED_SETS; set++) {
        set_sums all = { 0 };
        int64_t k = sizes[set] < N - 1 ? sizes[set] : N - 1;
        for (int t = 0; t < threads; t++) {
            const set_sums *part = &w[t].unmatched[set];
            all.sum += part->sum, all.square += part->square;
            for (int b = 0; b < CLOOB_SIMILARITY_BINS; b++) all.bin[b] += part->bin[b];
        }
        finish_set(&out->unmatched[set], &all, sizes[set], k, N * k);
    }
}

static cloob_status run_unmatched(cloob_ctx *ctx, cloob_similarity *out, const unit_rows *x, const unit_rows *y)
{
    int threads = tiles_threads(ctx, x);
    size_t each = (size_t)TILE_ROWS * BUFFER * sizeof(float);
    worker *w = calloc((size_t)threads, sizeof *w);
    float *buffer = malloc((size_t)threads * each);
    cloob_status status = ctx_no_memory(ctx, (size_t)threads * each, "the largest similarities");
    if (w && buffer) {
        for (int t = 0; t < threads; t++) {
            w[t].buffer = buffer + (size_t)t * TILE_ROWS * BUFFER;
            reset_rows(&w[t]);
        }
        status = tiles_run(ctx, x, y, TILES_ALL, &(tile_visitor){ visit, rows_done, w });
        if (status == CLOOB_OK) merge(out, w, threads, x->src.N);
    }
    free(w), free(buffer);
    return status;
}

cloob_status similarity_run(cloob_ctx *ctx, cloob_similarity *out, const unit_rows *x, const unit_rows *y)
{
    memset(out, 0, sizeof *out);
    CLOOB_TRY(unit_rows_match(ctx, x, y));
    if (x->src.N < 2) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: one pair has no unmatched partner", x->src.name);
    CLOOB_TRY(run_matched(ctx, out, x, y));
    return run_unmatched(ctx, out, x, y);
}
