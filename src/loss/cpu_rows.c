/* Rows: widening, unit length forth and back, and the memory of a tile. */
#include <math.h>

#include "core/pool.h"
#include "loss/cpu.h"
#include "loss/cpu_vec.h"

tiles tiles_carve(carver *c, int64_t d, cloob_dtype dtype)
{
    size_t square = sizeof(float) * TILE * TILE, strip = sizeof(float) * TILE * (size_t)d;
    tiles t = { 0 };
    t.e = carve(c, square);
    t.t = carve(c, square > strip ? square : strip);
    t.panel = carve(c, strip);
    t.anchors = carve(c, strip);
    t.mean_a = carve(c, sizeof(float) * (size_t)d);
    t.mean_b = carve(c, sizeof(float) * (size_t)d);
    t.sums = carve(c, sizeof(double) * (size_t)d);
    if (dtype == CLOOB_F32) return t;
    t.a = carve(c, strip);
    t.b = carve(c, strip);
    return t;
}

const float *rows_f32(const rows *r, int64_t first, int64_t n, float *buffer)
{
    if (r->dtype == CLOOB_F32) return (const float *)r->data + first * r->d;
    vec_widen(buffer, (const uint16_t *)r->data + first * r->d, n * r->d);
    return buffer;
}

typedef struct unit_job {
    float *r, *length;
    const float *g;
    double *dots;
    int64_t d;
} unit_job;

static void unit_range(void *arg, int64_t begin, int64_t end, int thread)
{
    unit_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *r = j->r + i * j->d;
        double length = sqrt(vec_dot(r, r, j->d));
        j->length[i] = (float)length;
        for (int64_t k = 0; length > 0 && k < j->d; k++) r[k] = (float)((double)r[k] / length);
    }
}

int64_t unit_forward(cloob_ctx *ctx, float *r, float *length, int64_t n, int64_t d)
{
    unit_job j = { .r = r, .length = length, .d = d };
    pool_for(ctx, n, 16, unit_range, &j);
    for (int64_t i = 0; i < n; i++)
        if (!(length[i] > 0) || isinf(length[i])) return i;
    return -1;
}

static void unit_backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    unit_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *unit = j->r + i * j->d;
        const float *g = j->g + i * j->d;
        double along = j->dots[i] = vec_dot(unit, g, j->d), length = (double)j->length[i];
        for (int64_t k = 0; k < j->d; k++)
            unit[k] = (float)(((double)g[k] - along * (double)unit[k]) / length);
    }
}

void unit_backward(cloob_ctx *ctx, float *unit, const float *g, const float *length, double *dots, int64_t n,
                   int64_t d)
{
    unit_job j = { unit, (float *)(uintptr_t)length, g, dots, d };
    pool_for(ctx, n, 16, unit_backward_range, &j);
}
