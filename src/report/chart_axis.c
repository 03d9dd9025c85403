/* Ticks at round numbers. */
#include "report/chart_image.h"

#include <math.h>
#include <stdio.h>

/* The smallest of 1, 2, 5 times a power of ten that is not below x. */
static double round_step(double x)
{
    double power = pow(10, floor(log10(x))), part = x / power;
    return power * (part <= 1 + 1e-9 ? 1 : part <= 2 + 1e-9 ? 2 : part <= 5 + 1e-9 ? 5 : 10);
}

static void init_log(chart_axis *a, int wanted)
{
    int from = (int)floor(log10(a->low)), to = (int)ceil(log10(a->high));
    if (to == from) to++;
    int step = (to - from + wanted - 1) / wanted;
    for (int e = from; e <= to && a->ticks < AXIS_TICKS; e += step) a->tick[a->ticks++] = pow(10, e);
    a->low = pow(10, from);
    a->high = pow(10, to);
}

void chart_axis_init(chart_axis *a, double low, double high, bool log, int wanted)
{
    *a = (chart_axis){ .low = low, .high = high, .log = log };
    if (log) {
        init_log(a, wanted);
        return;
    }
    if (!(high - low > 1e-12 * fmax(fabs(low), fabs(high)))) { /* one value: a little room around it */
        double room = low != 0 ? 0.1 * fabs(low) : 1;
        a->low = low - room, a->high = high + room;
    }
    double step = round_step((a->high - a->low) / wanted), first = floor(a->low / step + 1e-9);
    a->low = first * step;
    a->high = ceil(a->high / step - 1e-9) * step;
    for (int i = 0; i < AXIS_TICKS && (first + i) * step <= a->high + 0.5 * step; i++)
        a->tick[a->ticks++] = (first + i) * step;
}

double chart_axis_at(const chart_axis *a, double value)
{
    if (a->log) return log(value / a->low) / log(a->high / a->low);
    return (value - a->low) / (a->high - a->low);
}

void chart_axis_label(const chart_axis *a, int tick, char *text, size_t bytes)
{
    double v = a->tick[tick];
    if (!a->log && fabs(v) < 1e-9 * (a->high - a->low)) v = 0;
    snprintf(text, bytes, "%.4g", v);
}
