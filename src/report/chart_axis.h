/* Where the ticks of an axis are. */
#ifndef REPORT_CHART_AXIS_H
#define REPORT_CHART_AXIS_H

#include <stdbool.h>
#include <stddef.h>

enum { AXIS_TICKS = 24 };

typedef struct chart_axis {
    double low, high; /* of the data, widened to ticks on a plain axis */
    bool log;
    int ticks;
    double tick[AXIS_TICKS];
} chart_axis;

/* low <= high, finite; above 0 where log. At most about `wanted` ticks, at 1, 2 or 5 times a power of ten
 * (log: at powers of ten). */
void chart_axis_init(chart_axis *a, double low, double high, bool log, int wanted);
/* 0 at low, 1 at high. */
double chart_axis_at(const chart_axis *a, double value);
void chart_axis_label(const chart_axis *a, int tick, char *text, size_t bytes);

#endif
