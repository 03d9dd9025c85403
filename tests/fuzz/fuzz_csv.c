/* CSV rows from arbitrary bytes; every row's extent must give the same row again. The first byte chooses the
 * separator. */
#include <stdlib.h>
#include <string.h>

#include "data/sets/csv.h"
#include "fuzz.h"

typedef struct memory {
    const uint8_t *at;
    size_t left;
} memory;

static cloob_status read_memory(void *arg, void *out, size_t n, size_t *got)
{
    memory *m = arg;
    *got = m->left < n ? m->left : n;
    if (*got > 7) *got = 7; /* cut fields apart */
    memcpy(out, m->at, *got);
    m->at += *got;
    m->left -= *got;
    return CLOOB_OK;
}

static void same_again(cloob_ctx *ctx, const uint8_t *data, char separator, const csv_row *row)
{
    csv_row again = { 0 };
    if (csv_parse_row(ctx, (const char *)data + row->offset, (size_t)row->bytes, separator, "again", &again) !=
        CLOOB_OK)
        abort();
    if (again.count != row->count || again.text.len != row->text.len ||
        memcmp(again.text.data, row->text.data, row->text.len) != 0)
        abort();
    csv_row_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    static csv_reader r;
    static const char separators[] = "\t,;|";
    csv_row row = { 0 };
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (size < 1) return 0;
    char separator = separators[data[0] % 4];
    memory m = { data + 1, size - 1 };
    csv_init(&r, separator, read_memory, &m, "fuzz");
    while (csv_next(ctx, &r, &row) == CLOOB_OK && row.count) same_again(ctx, data + 1, separator, &row);
    csv_row_release(&row);
    return 0;
}
