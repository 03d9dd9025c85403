/* Numbers in columns, from the tab-separated files a run leaves behind (metrics.tsv, eigenvalues.tsv,
 * similarities.tsv). */
#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H

#include "core/arena.h"
#include "core/ctx.h"

typedef struct table {
    int64_t columns, rows;
    char **name;     /* (columns), of the header */
    double *value;   /* (rows, columns) */
    int64_t damaged; /* lines left out: too few columns, or not numbers */
} table;

/* Everything is in the arena. A file without a header is an error; damaged lines are counted. */
cloob_status table_read(cloob_ctx *ctx, arena *a, const char *path, table *out);

int64_t table_find(const table *t, const char *name); /* the column, or -1 */

static inline double table_at(const table *t, int64_t row, int64_t column)
{
    return t->value[row * t->columns + column];
}

#endif
