/* The time of a training step, op by op.
 *
 *     profile p;
 *     profile_attach(ctx, &p, s, dev);       the towers that the last step used
 *     ... runs of the step, each `ms` long ...
 *     CLOOB_TRY(profile_finish(&p, s, runs, ms)); */
#ifndef LAB_BENCH_PROFILE_H
#define LAB_BENCH_PROFILE_H

#include "train/step.h"

enum { PROFILE_ROWS = 256 };

typedef struct profile_row {
    const char *name; /* of an op, or of the kernel that computes several */
    int64_t calls;    /* of one step */
    double ms;        /* of all calls of a step together */
} profile_row;

typedef struct profile {
    profile_row row[PROFILE_ROWS]; /* the slowest first, after profile_finish */
    int rows;
    double step_ms, rest_ms; /* rest: the objective, the optimizer and copies */
    /* while it runs */
    cloob_ctx *ctx;
    device *dev;
    const char *now;
    double since;
    cloob_status status;
} profile;

void profile_attach(cloob_ctx *ctx, profile *p, step *s, device *dev);
/* Sorts the rows and divides them by the number of runs. */
cloob_status profile_finish(profile *p, step *s, int runs, double step_ms);

#endif
