/* The settings that a sweep tries: combinations of its axes' values, and the runs that they make; and what it found,
 * as files: results.jsonl, search.json, sweep.md, sweep.json. */
#ifndef LAB_SWEEP_POINTS_H
#define LAB_SWEEP_POINTS_H

#include "lab/sweep/runs.h"
#include "lab/sweep/sweep.h"
#include "core/arena.h"

typedef struct point {
    const run_setting *setting; /* (axes) */
    const char *group;          /* value of `by`; "" without */
    double score;               /* mean of the number to choose by over its seeds; NaN: none */
    bool alive;                 /* still in the search */
    bool chosen;
} point;

typedef struct points {
    const sweep_options *o;
    point *item;
    int64_t count;
    int64_t by; /* which axis; -1: none */
} points;

/* All combinations, or o->random of them. Refuses unknown options and values, an axis that is listed twice, and more
 * than a million combinations. Memory is in the arena. */
cloob_status points_make(cloob_ctx *ctx, arena *a, const sweep_options *o, points *p);

/* The run of a point: epochs 0: as trained; else so many, which is part of its name. */
cloob_status point_run(cloob_ctx *ctx, arena *a, const points *p, const point *at, int64_t seed, int64_t epochs,
                       const char *folder, sweep_run *r);

enum { SWEEP_ROUNDS = 3 }; /* of successive halving */

typedef struct sweep_stage { /* runs that are trained together */
    sweep_run *run;          /* (runs) */
    int64_t *point;          /* (runs) whose each is */
    int64_t runs;
} sweep_stage;

typedef struct sweep {
    const sweep_options *o;
    arena *memory;
    points points;
    sweep_stage search[SWEEP_ROUNDS], final;
    int rounds;
    sweep_summary summary;
} sweep;

/* Once every run has its summary. */
cloob_status sweep_write_tables(cloob_ctx *ctx, sweep *s);
cloob_status ablation_write_tables(cloob_ctx *ctx, sweep *s);

#endif
