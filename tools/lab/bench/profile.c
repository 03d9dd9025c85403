/* The time of a training step, op by op (cloob bench step --profile).
 *
 * The executors report every call before it starts. The device is synchronised there, so that a call's time is its own:
 * a profiled step is slower than a timed one, most of all on a GPU, where calls no longer overlap. */
#include "lab/bench/profile.h"

#include <stdlib.h>
#include <string.h>

#include "core/limits.h"

static profile_row *row_of(profile *p, const char *name)
{
    for (int i = 0; i < p->rows; i++)
        if (strcmp(p->row[i].name, name) == 0) return &p->row[i];
    if (p->rows == PROFILE_ROWS - 1) name = "other ops";
    p->row[p->rows] = (profile_row){ .name = name };
    return &p->row[p->rows++];
}

static void on_call(void *user, const char *name, const op_group *call)
{
    profile *p = user;
    (void)call;
    if (p->status == CLOOB_OK) p->status = p->dev->sync(p->ctx, p->dev);
    double now = clock_seconds();
    if (p->now) {
        profile_row *r = row_of(p, p->now);
        r->calls++;
        r->ms += 1e3 * (now - p->since);
    }
    p->now = name;
    p->since = now;
}

void profile_attach(cloob_ctx *ctx, profile *p, step *s, device *dev)
{
    *p = (profile){ .ctx = ctx, .dev = dev };
    for (int text = 0; text < 2; text++) exec_on_call(step_tower(s, text), on_call, p);
}

static int slowest_first(const void *a, const void *b)
{
    const profile_row *x = a, *y = b;
    return x->ms != y->ms ? (x->ms < y->ms ? 1 : -1) : strcmp(x->name, y->name);
}

cloob_status profile_finish(profile *p, step *s, int runs, double step_ms)
{
    double towers = 0;
    for (int text = 0; text < 2; text++) exec_on_call(step_tower(s, text), NULL, NULL);
    for (int i = 0; i < p->rows; i++) {
        p->row[i].ms /= runs;
        p->row[i].calls /= runs;
        towers += p->row[i].ms;
    }
    qsort(p->row, (size_t)p->rows, sizeof *p->row, slowest_first);
    p->step_ms = step_ms;
    p->rest_ms = step_ms > towers ? step_ms - towers : 0;
    return p->status;
}
