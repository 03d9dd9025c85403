/* A state machine over the bytes, equivalent to pandas' parser. */
#include "data/sets/csv.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"

enum { END = -1 };

void csv_init(csv_reader *r, char separator, csv_read_fn *read, void *arg, const char *name)
{
    r->separator = separator;
    r->read = read;
    r->arg = arg;
    r->name = name;
    r->offset = 0;
    r->line = 1;
    r->at = r->size = 0;
    r->ended = false;
}

static cloob_status refill(csv_reader *r)
{
    r->at = r->size = 0;
    while (r->size < sizeof r->chunk && !r->ended) {
        size_t got;
        CLOOB_TRY(r->read(r->arg, r->chunk + r->size, sizeof r->chunk - r->size, &got));
        r->size += got;
        if (got == 0) r->ended = true;
    }
    return CLOOB_OK;
}

/* The next byte without taking it, or END. */
static cloob_status peek(csv_reader *r, int *c)
{
    if (r->at == r->size) CLOOB_TRY(refill(r));
    *c = r->at < r->size ? (unsigned char)r->chunk[r->at] : END;
    return CLOOB_OK;
}

static void take(csv_reader *r)
{
    if (r->chunk[r->at] == '\n') r->line++;
    r->at++;
    r->offset++;
}

/* ---- fields ------------------------------------------------------------------------------------------- */

static cloob_status field_begin(cloob_ctx *ctx, csv_row *row)
{
    if (!heap_grow(&row->field, row->count, &row->capacity, sizeof *row->field))
        return ctx_no_memory(ctx, (size_t)row->count * sizeof *row->field, "the fields of a row");
    row->field[row->count++] = row->text.len;
    return CLOOB_OK;
}

static void put(csv_row *row, int c) { sbuf_putc(&row->text, c ? (char)c : ' '); }

static bool is_break(int c) { return c == '\n' || c == '\r'; }

/* Everything up to the separator or the end of the line. Most bytes of most files pass here: whole runs at
 * once. */
static cloob_status plain_part(csv_reader *r, csv_row *row, int *stop)
{
    while (r->offset - row->offset <= CSV_ROW_LIMIT) { /* above the limit, which the caller reports */
        CLOOB_TRY(peek(r, stop));
        size_t from = r->at;
        while (r->at < r->size) {
            char c = r->chunk[r->at];
            if (c == r->separator || is_break(c) || c == '\0') break;
            r->at++;
        }
        sbuf_add(&row->text, r->chunk + from, r->at - from);
        r->offset += (int64_t)(r->at - from);
        if (r->at == r->size && *stop != END) continue;
        if (*stop == END) return CLOOB_OK;
        *stop = (unsigned char)r->chunk[r->at];
        if (*stop != '\0' || r->separator == '\0') return CLOOB_OK;
        put(row, ' ');
        take(r);
    }
    return CLOOB_OK;
}

static cloob_status open_quote(cloob_ctx *ctx, const csv_reader *r, const csv_row *row)
{
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the row that begins in line %lld has a quote that is never closed",
                    r->name, (long long)row->line);
}

/* After the opening quote; ends behind the closing one. */
static cloob_status quoted_part(cloob_ctx *ctx, csv_reader *r, csv_row *row)
{
    for (int c;;) {
        CLOOB_TRY(peek(r, &c));
        if (c == END || r->offset - row->offset > CSV_ROW_LIMIT) return open_quote(ctx, r, row);
        take(r);
        if (c != '"') {
            put(row, c);
            continue;
        }
        CLOOB_TRY(peek(r, &c));
        if (c != '"') return CLOOB_OK;
        take(r);
        put(row, '"');
    }
}

static cloob_status read_field(cloob_ctx *ctx, csv_reader *r, csv_row *row, bool *quoted, int *stop)
{
    CLOOB_TRY(field_begin(ctx, row));
    CLOOB_TRY(peek(r, stop));
    if (*stop == '"') {
        *quoted = true;
        take(r);
        CLOOB_TRY(quoted_part(ctx, r, row));
    }
    CLOOB_TRY(plain_part(r, row, stop));
    if (r->offset - row->offset > CSV_ROW_LIMIT)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the row that begins in line %lld has more than %d bytes", r->name,
                        (long long)row->line, CSV_ROW_LIMIT);
    sbuf_putc(&row->text, '\0');
    return row->text.failed ? ctx_no_memory(ctx, row->text.len, "a row") : CLOOB_OK;
}

/* ---- rows --------------------------------------------------------------------------------------------- */

static cloob_status skip_mark(csv_reader *r)
{
    int c;
    CLOOB_TRY(peek(r, &c));
    if (r->size >= 3 && memcmp(r->chunk, "\xEF\xBB\xBF", 3) == 0) {
        r->at += 3;
        r->offset += 3;
    }
    return CLOOB_OK;
}

static cloob_status end_line(csv_reader *r)
{
    int c;
    CLOOB_TRY(peek(r, &c));
    if (c == '\r') {
        take(r);
        CLOOB_TRY(peek(r, &c));
        if (c != '\n') { /* a bare CR ends a line too */
            r->line++;
            return CLOOB_OK;
        }
    }
    if (c == '\n') take(r);
    return CLOOB_OK;
}

static bool blank(const csv_row *row, bool quoted)
{
    if (quoted || row->count != 1) return false;
    return row->text.data[strspn(row->text.data, " \t")] == '\0';
}

static cloob_status read_row(cloob_ctx *ctx, csv_reader *r, csv_row *row, bool *quoted)
{
    int c, stop;
    row->count = 0;
    row->text.len = 0;
    row->offset = r->offset;
    row->line = r->line;
    *quoted = false;
    CLOOB_TRY(peek(r, &c));
    if (c == END) return CLOOB_OK;
    do {
        CLOOB_TRY(read_field(ctx, r, row, quoted, &stop));
        if (stop == (unsigned char)r->separator) take(r);
    } while (stop != END && !is_break(stop));
    CLOOB_TRY(end_line(r));
    row->bytes = r->offset - row->offset;
    return CLOOB_OK;
}

cloob_status csv_next(cloob_ctx *ctx, csv_reader *r, csv_row *row)
{
    bool quoted;
    if (r->offset == 0) CLOOB_TRY(skip_mark(r));
    do {
        CLOOB_TRY(read_row(ctx, r, row, &quoted));
    } while (row->count && blank(row, quoted));
    return CLOOB_OK;
}

const char *csv_field(const csv_row *row, int i)
{
    return i >= 0 && i < row->count ? row->text.data + row->field[i] : NULL;
}

int csv_find(const csv_row *header, const char *name)
{
    for (int i = 0; i < header->count; i++)
        if (strcmp(csv_field(header, i), name) == 0) return i;
    return -1;
}

void csv_row_release(csv_row *row)
{
    sbuf_release(&row->text);
    free(row->field);
    *row = (csv_row){ 0 };
}

/* ---- from memory -------------------------------------------------------------------------------- */

cloob_status csv_read_bytes(void *arg, void *out, size_t n, size_t *got)
{
    csv_bytes *m = arg;
    *got = n < m->left ? n : m->left;
    memcpy(out, m->at, *got);
    m->at += *got;
    m->left -= *got;
    return CLOOB_OK;
}

cloob_status csv_parse_row(cloob_ctx *ctx, const char *bytes, size_t n, char separator, const char *name, csv_row *row)
{
    csv_bytes m = { bytes, n };
    csv_reader *r = malloc(sizeof *r);
    bool quoted;
    if (!r) return ctx_no_memory(ctx, sizeof *r, name);
    csv_init(r, separator, csv_read_bytes, &m, name);
    cloob_status status = read_row(ctx, r, row, &quoted);
    free(r);
    return status;
}
