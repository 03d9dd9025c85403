/* Matrices at rest: what wakes is what was laid down, to f32's rounding of the row's largest element, also
 * when both lie in the same memory. */
#include "check.h"
#include "core/rng.h"
#include "loss/cpu.h"

enum { GUARD = 77 };

typedef struct bed {
    float *memory; /* (n, d), and where the high halves lie */
    fixed24 r;     /* its low bytes have a guard behind them */
} bed;

static bed bed_make(int64_t n, int64_t d)
{
    size_t elements = (size_t)(n * d);
    bed b = { malloc(elements * sizeof(float)),
              { n, d, NULL, malloc(elements + 1), malloc((size_t)n * sizeof(double)) } };
    b.r.high = (int16_t *)(void *)b.memory;
    b.r.low[elements] = GUARD;
    return b;
}

static void bed_free(bed *b)
{
    CHECK(b->r.low[b->r.n * b->r.d] == GUARD);
    free(b->memory), free(b->r.low), free(b->r.step);
}

/* Rows of very different lengths; row 1 is zero. */
static void fill(float *m, int64_t n, int64_t d)
{
    uint64_t key = rng_key(3, "rest");
    for (int64_t i = 0; i < n * d; i++) {
        double size = i / d == 1 ? 0 : pow(10, (double)(i / d % 9) * 8 - 40);
        m[i] = (float)(size * rng_normal(key, (uint64_t)i));
    }
}

static double row_reach(const float *m, int64_t d)
{
    double top = 0;
    for (int64_t k = 0; k < d; k++) top = fmax(top, fabs((double)m[k]));
    return top;
}

/* Half a step, and one more rounding to f32. */
static void check_rows(const float *woken, const float *laid, int64_t n, int64_t d)
{
    for (int64_t i = 0; i < n; i++) {
        double limit = row_reach(laid + i * d, d) * (0.5 / 8388607 + 1.0 / 16777216) + 1e-45;
        for (int64_t k = i * d; k < (i + 1) * d; k++) CHECK(fabs((double)woken[k] - (double)laid[k]) <= limit);
    }
}

static void rows_wake_as_they_were_laid(void)
{
    static const int64_t sizes[][2] = { { 1, 1 }, { 2, 3 }, { 7, 255 }, { 5, 256 }, { 11, 513 }, { 40, 64 } };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s][0], d = sizes[s][1];
        size_t bytes = (size_t)(n * d) * sizeof(float);
        float *m = malloc(bytes), *apart = malloc(bytes);
        bed b = bed_make(n, d);
        fill(m, n, d);
        fixed24_pack(&b.r, m);
        fixed24_unpack(&b.r, apart);
        check_rows(apart, m, n, d);
        memcpy(b.memory, m, bytes);
        fixed24_pack(&b.r, b.memory);
        fixed24_unpack(&b.r, b.memory);
        CHECK(memcmp(b.memory, apart, bytes) == 0);
        bed_free(&b), free(m), free(apart);
    }
}

static void what_is_not_finite_stays_so(void)
{
    bed b = bed_make(3, 20);
    for (int k = 0; k < 60; k++) b.memory[k] = 1.5f;
    b.memory[7] = NAN;
    b.memory[45] = -INFINITY;
    fixed24_pack(&b.r, b.memory);
    fixed24_unpack(&b.r, b.memory);
    CHECK(isnan(b.memory[0]) && isnan(b.memory[59]) && b.memory[20] == 1.5f);
    bed_free(&b);
}

int main(void)
{
    RUN(rows_wake_as_they_were_laid);
    RUN(what_is_not_finite_stays_so);
    return check_summary();
}
