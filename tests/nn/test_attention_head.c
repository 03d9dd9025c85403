/* Attention of inference by packed panels: near the definition at odd sizes, causal or not, with a wide distance
 * between rows; a row does not depend on what a causal mask hides. */
#include "check.h"

#include "core/rng.h"
#include "nn/cpu/attention.h"

enum { LD = 150, MOST = 100 };

static float *random_floats(int64_t n, uint64_t key)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(4 * rng_uniform(key, (uint64_t)i) - 2);
    return x;
}

/* Element i of a factor. */
static double element(const attention_head *h, const void *x, int64_t i)
{
    return (double)(h->bf16 ? bf16_up(((const uint16_t *)x)[i]) : ((const float *)x)[i]);
}

/* y (e) and, as the return value, the log-sum-exp of query t, in double. */
static double define(const attention_head *h, int64_t t, double *y)
{
    double p[MOST], top = -1e30, sum = 0;
    int64_t keys = h->causal ? t + 1 : h->T;
    for (int64_t k = 0; k < keys; k++) {
        p[k] = 0;
        for (int64_t i = 0; i < h->e; i++)
            p[k] += element(h, h->q, t * h->ld + i) * element(h, h->k, k * h->ld + i) * (double)h->scale;
        top = fmax(top, p[k]);
    }
    for (int64_t k = 0; k < keys; k++) sum += p[k] = exp(p[k] - top);
    for (int64_t i = 0; i < h->e; i++) {
        y[i] = 0;
        for (int64_t k = 0; k < keys; k++) y[i] += p[k] / sum * element(h, h->v, k * h->ld + i);
    }
    return top + log(sum);
}

static double error_of(const attention_head *h)
{
    double most = 0, want[MOST];
    for (int64_t t = 0; t < h->T; t++) {
        most = fmax(most, fabs(define(h, t, want) - (double)h->lse[t]));
        for (int64_t i = 0; i < h->e; i++) most = fmax(most, fabs(want[i] - (double)h->y.at[t * h->y.ld + i]));
    }
    return most;
}

/* Adds d to element i of a factor. */
static void change(void *x, int64_t i, float d, bool bf16)
{
    if (bf16) ((uint16_t *)x)[i] = bf16_down(bf16_up(((uint16_t *)x)[i]) + d);
    else ((float *)x)[i] += d;
}

/* bf16: probabilities are rounded to 8 bits, and values are at most 2. */
static void run(int64_t T, int64_t e, bool causal, bool bf16)
{
    float lse[MOST] = { 0 }, *in[3], *y = random_floats(T * LD, 4), guard = y[e], early[MOST];
    float *room = aligned_alloc(64, (size_t)attention_head_room(T, e, bf16) * sizeof *room);
    double limit = bf16 ? 1e-2 : 2e-5;
    for (int i = 0; i < 3; i++) {
        in[i] = random_floats(T * LD, (uint64_t)i + 1);
        if (bf16) bf16_round((uint16_t *)(void *)in[i], in[i], T * LD);
    }
    attention_head h = { .q = in[0],
                         .k = in[1],
                         .v = in[2],
                         .y = { y, LD },
                         .ld = LD,
                         .T = T,
                         .e = e,
                         .bf16 = bf16,
                         .causal = causal,
                         .scale = 0.3f,
                         .lse = lse,
                         .room = room };
    CHECK(attention_head_room(T, e, bf16) % 16 == 0);
    attention_head_run(&h);
    CHECK(error_of(&h) < limit);
    CHECK(y[e] == guard); /* what lies between rows stays */
    memcpy(early, y + T / 2 * LD, (size_t)e * sizeof *y);
    for (int64_t i = 0; i < e; i++) change(in[1], (T - 1) * LD + i, 1, bf16), change(in[2], (T - 1) * LD + i, -1, bf16);
    attention_head_run(&h);
    CHECK(error_of(&h) < limit);
    if (T > 2) CHECK((memcmp(early, y + T / 2 * LD, (size_t)e * sizeof *y) == 0) == causal);
    for (int i = 0; i < 3; i++) free(in[i]);
    free(y), free(room);
}

static void heads_are_right_at_odd_sizes(void)
{
    static const int64_t lengths[] = { 1, 2, 5, 6, 7, 16, 17, 33, 50, 77, MOST }, widths[] = { 1, 8, 20, 32, 64, 80 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
            for (int way = 0; way < 4; way++) run(lengths[i], widths[k], way % 2, way / 2);
}

int main(void)
{
    RUN(heads_are_right_at_odd_sizes);
    return check_summary();
}
