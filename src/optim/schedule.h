/* Learning rate by step: linear warm-up, then one of four shapes. A pure function of the step. */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include "core/ctx.h"

typedef enum schedule_kind {
    SCHEDULE_COSINE,
    SCHEDULE_COSINE_RESTARTS,
    SCHEDULE_CONST,
    SCHEDULE_CONST_COOLDOWN
} schedule_kind;

typedef struct schedule {
    schedule_kind kind;
    int64_t warmup, total;
    int64_t cycles;   /* hard restarts: number of cycles in the whole run */
    int64_t cycle;    /* or, above 0, steps of a cycle, from the end of the warm-up on; the last may be cut short */
    int64_t cooldown; /* const-cooldown: steps of linear decay to 0 at the end */
} schedule;

/* "cosine", "cosine-restarts", "const", "const-cooldown". */
bool schedule_from_name(const char *name, schedule_kind *out);

/* The factor of the base rate at a step, counted from 0; the first step of a warm-up has 0, as in the authors' code. */
double schedule_scale(const schedule *s, int64_t step);

/* The cycle of hard restarts that a step is in, counted from 0; 0 during the warm-up and for other shapes. */
int64_t schedule_cycle(const schedule *s, int64_t step);

#endif
