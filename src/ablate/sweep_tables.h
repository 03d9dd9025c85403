/* What a sweep found, as files: results.jsonl, search.json, sweep.md, sweep.json. */
#ifndef ABLATE_SWEEP_TABLES_H
#define ABLATE_SWEEP_TABLES_H

#include "ablate/points.h"

enum { SWEEP_ROUNDS = 3 }; /* of successive halving */

typedef struct sweep_stage { /* runs that are trained together */
    ablate_run *run;         /* (runs) */
    int64_t *point;          /* (runs) whose each is */
    int64_t runs;
} sweep_stage;

typedef struct sweep {
    const cloob_sweep_options *o;
    arena *memory;
    points points;
    sweep_stage search[SWEEP_ROUNDS], final;
    int rounds;
    cloob_sweep_summary summary;
} sweep;

/* Once every run has its summary. */
cloob_status sweep_write_tables(cloob_ctx *ctx, sweep *s);

#endif
