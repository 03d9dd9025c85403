/* Reading tab-separated numbers. */
#include "lab/report/run_files.h"

#include <stdlib.h>
#include <string.h>

#include "core/file.h"

static int64_t count_of(const char *text, char c)
{
    int64_t n = 0;
    for (; *text; text++) n += *text == c;
    return n;
}

static cloob_status read_header(cloob_ctx *ctx, arena *a, char *line, const char *path, table *t)
{
    if (!*line) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: is empty; needs a line of column names", path);
    t->columns = count_of(line, '\t') + 1;
    t->name = arena_push(a, (size_t)t->columns * sizeof *t->name);
    if (!t->name) return ctx_no_memory(ctx, 64, path);
    for (int64_t i = 0; i < t->columns; i++) {
        t->name[i] = arena_string(a, strsep(&line, "\t"));
        if (!t->name[i]) return ctx_no_memory(ctx, 64, path);
    }
    return CLOOB_OK;
}

/* "nan" and "inf" are numbers here: a loss may be one. */
static bool read_row(char *line, double *value, int64_t columns)
{
    for (int64_t i = 0; i < columns; i++) {
        char *field = strsep(&line, "\t"), *end;
        if (!field || !*field) return false;
        value[i] = strtod(field, &end);
        if (*end) return false;
    }
    return line == NULL;
}

static cloob_status read_lines(cloob_ctx *ctx, arena *a, char *text, const char *path, table *t)
{
    int64_t room = count_of(text, '\n') + 1;
    char *line = strsep(&text, "\n");
    CLOOB_TRY(read_header(ctx, a, line, path, t));
    size_t bytes = (size_t)(room * t->columns) * sizeof *t->value;
    t->value = arena_push(a, bytes);
    if (!t->value) return ctx_no_memory(ctx, bytes, path);
    while ((line = strsep(&text, "\n"))) {
        if (!*line) continue;
        if (read_row(line, t->value + t->rows * t->columns, t->columns)) t->rows++;
        else t->damaged++;
    }
    return CLOOB_OK;
}

cloob_status table_read(cloob_ctx *ctx, arena *a, const char *path, table *out)
{
    file_bytes bytes;
    *out = (table){ 0 };
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    cloob_status status = read_lines(ctx, a, bytes.data, path, out);
    file_bytes_release(&bytes);
    return status;
}

int64_t table_find(const table *t, const char *name)
{
    for (int64_t i = 0; i < t->columns; i++)
        if (strcmp(t->name[i], name) == 0) return i;
    return -1;
}
