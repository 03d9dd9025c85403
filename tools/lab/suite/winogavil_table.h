/* The published table of WinoGAViL: a CSV file with the columns cue, candidates and associations; the last two hold
 * JSON lists of image names.
 *
 *     winogavil_table t = { 0 };
 *     cloob_status status = winogavil_read(ctx, path, e.name, e.rows, &t);
 *     ...
 *     winogavil_release(&t);
 */
#ifndef BENCHMARK_WINOGAVIL_TABLE_H
#define BENCHMARK_WINOGAVIL_TABLE_H

#include "core/arena.h"
#include "core/ctx.h"

enum { WINOGAVIL_CANDIDATES = 64 }; /* the most of one row */

typedef struct winogavil_row {
    char *text;             /* "A cue" */
    int candidates, belong; /* 0 < belong <= candidates */
    int64_t image[WINOGAVIL_CANDIDATES];
    bool right[WINOGAVIL_CANDIDATES];
} winogavil_row;

typedef struct winogavil_table {
    winogavil_row *row;
    int64_t n, capacity;
    arena memory;
} winogavil_table;

/* `image` names the readable images; a row's image[k] is an index into them. Refuses a table without rows, a row that
 * is incomplete, and one with an image that is not there. Release t in any case. */
cloob_status winogavil_read(cloob_ctx *ctx, const char *path, char *const *image, int64_t images, winogavil_table *t);
void winogavil_release(winogavil_table *t);

#endif
