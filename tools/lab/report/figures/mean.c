/* Repeats of a run as one line: the mean over seeds, with a band of one standard deviation. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report/chart.h"

static bool is_repeat_of(const chart_series *s, const chart_series *first)
{
    return s->repeat && s->group && strcmp(s->group, first->group) == 0;
}

/* y of the series at x; false: it has no such point. Points of repeats mostly have the same index. */
static bool value_at(const chart_series *s, double x, int64_t guess, double *y)
{
    if (guess < s->n && s->x[guess] == x) {
        *y = s->y[guess];
        return true;
    }
    for (int64_t i = 0; i < s->n; i++)
        if (s->x[i] == x) {
            *y = s->y[i];
            return true;
        }
    return false;
}

/* Mean and deviation over all repeats at point i of the first; false where one of them has no value. */
static bool spread_at(const chart *c, const chart_series *first, int64_t i, double *mean, double *deviation)
{
    double sum = 0, squares = 0, y;
    int64_t n = 0;
    for (int64_t k = 0; k < c->count; k++) {
        const chart_series *s = &c->series[k];
        if (!is_repeat_of(s, first) || !s->n) continue;
        if (!value_at(s, first->x[i], i, &y)) return false;
        sum += y, n++;
    }
    *mean = sum / (double)n;
    for (int64_t k = 0; k < c->count; k++) {
        const chart_series *s = &c->series[k];
        if (is_repeat_of(s, first) && value_at(s, first->x[i], i, &y)) squares += (y - *mean) * (y - *mean);
    }
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    return true;
}

static bool add_mean(arena *a, const chart *c, const chart_series *first, chart *out)
{
    char name[200];
    int64_t n = 0;
    for (int64_t k = 0; k < c->count; k++) n += is_repeat_of(&c->series[k], first) && c->series[k].n;
    snprintf(name, sizeof name, "%.150s, mean of %lld", first->group, (long long)n);
    chart_series *s = chart_add(a, out, name, first->color, first->n);
    for (int64_t i = 0; s && i < first->n; i++) {
        double mean, deviation;
        if (!spread_at(c, first, i, &mean, &deviation)) continue;
        chart_band_point(a, out, s, first->n, first->x[i], mean, mean - deviation, mean + deviation);
        if (!s->low || !s->high) return false;
    }
    return s != NULL;
}

bool chart_mean(arena *a, const chart *c, chart *out)
{
    *out = *c;
    out->series = NULL, out->count = out->room = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const chart_series *s = &c->series[i];
        bool seen = false;
        for (int64_t k = 0; s->repeat && k < i; k++) seen |= is_repeat_of(&c->series[k], s) && c->series[k].n;
        if (s->repeat && s->n && !seen && !add_mean(a, c, s, out)) return false;
        if (s->repeat) continue;
        chart_series *kept = chart_add(a, out, s->name, s->color, 0);
        if (!kept) return false;
        *kept = *s;
    }
    return true;
}
