/* Rows of a CSV or TSV, quoted as pandas reads them.
 *
 * A field that begins with a double quote ends at the closing one: separators and line breaks inside
 * belong to it, a doubled quote is one quote, and what follows the closing quote up to the separator is added
 * as it is. A quote elsewhere in a field is an ordinary character. Lines end with LF, CR LF or CR; blank
 * lines are skipped; a byte order mark at the beginning is skipped. A zero byte becomes a space.
 *
 *     csv_reader r;
 *     csv_row row = { 0 };
 *     csv_init(&r, '\t', read, arg, name);
 *     while (csv_next(ctx, &r, &row) == CLOOB_OK && row.count) puts(csv_field(&row, 0));
 *     csv_row_release(&row);
 */
#ifndef DATA_SETS_CSV_H
#define DATA_SETS_CSV_H

#include "core/ctx.h"
#include "core/sbuf.h"

/* Up to n bytes into out; *got is 0 at the end. */
typedef cloob_status csv_read_fn(void *arg, void *out, size_t n, size_t *got);

/* A longer row means an unclosed quote, or a file that is not text. */
enum { CSV_CHUNK = 1 << 16, CSV_ROW_LIMIT = 1 << 26 };

typedef struct csv_reader {
    char separator;
    csv_read_fn *read;
    void *arg;
    const char *name;
    int64_t offset, line; /* of the next byte; line counts from 1 */
    size_t at, size;
    bool ended;
    char chunk[CSV_CHUNK];
} csv_reader;

typedef struct csv_row {
    sbuf text;     /* the fields, each zero-terminated */
    size_t *field; /* where each begins in text */
    int count;
    int64_t capacity;      /* of field */
    int64_t offset, bytes; /* position of the row in the source, with its line break */
    int64_t line;
} csv_row;

void csv_init(csv_reader *r, char separator, csv_read_fn *read, void *arg, const char *name);

/* The next row; row->count is 0 at the end. A quote that is never closed, or a row above the limit, is an
 * error that names the line where the row began. */
cloob_status csv_next(cloob_ctx *ctx, csv_reader *r, csv_row *row);

const char *csv_field(const csv_row *row, int i);      /* NULL when the row has no such field */
int csv_find(const csv_row *header, const char *name); /* -1 when absent */
void csv_row_release(csv_row *row);

/* A csv_read_fn for bytes in memory. */
typedef struct csv_bytes {
    const char *at;
    size_t left;
} csv_bytes;
csv_read_fn csv_read_bytes; /* arg: a csv_bytes, which is advanced */

/* Parses one row in memory, whose extent csv_next returned. */
cloob_status csv_parse_row(cloob_ctx *ctx, const char *bytes, size_t n, char separator, const char *name, csv_row *row);

#endif
