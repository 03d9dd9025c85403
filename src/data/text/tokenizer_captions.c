/* Files of captions for learning a vocabulary: a caption per line, or the `title` column of a table with
 * tabs. */
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "io/gzip.h"
#include "data/text/tokenizer_count.h"

typedef struct captions {
    caption *item;
    int64_t n, cap;
} captions;

static cloob_status add(cloob_ctx *ctx, captions *c, const char *at, size_t bytes)
{
    if (!heap_grow(&c->item, c->n, &c->cap, sizeof *c->item))
        return ctx_no_memory(ctx, (size_t)c->n * sizeof *c->item, "the list of captions");
    c->item[c->n++] = (caption){ at, bytes };
    return CLOOB_OK;
}

/* One field from *at on, up to a tab or the line's end; quotes hide both, as spreadsheets write them. The
 * field comes without its outer quotes (a doubled quote inside stays doubled: words do not mind). Moves *at
 * past it; *last tells whether the row ends here. */
static caption next_field(const char **at, const char *end, bool *last)
{
    const char *p = *at, *begin = p, *stop;
    if (p < end && *p == '"') {
        for (begin = ++p; p < end && (*p != '"' || (p + 1 < end && p[1] == '"')); p++) p += *p == '"';
        stop = p < end ? p : end;
        while (p < end && *p != '\t' && *p != '\n') p++;
    } else {
        while (p < end && *p != '\t' && *p != '\n') p++;
        stop = p;
    }
    *last = p >= end || *p == '\n';
    *at = p < end ? p + 1 : end;
    if (stop > begin && stop[-1] == '\r') stop--;
    return (caption){ begin, (size_t)(stop - begin) };
}

/* Which column of the first row is `title`; -1 when the file is not such a table. */
static int title_column(const char *text, const char *end)
{
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    const char *at = text, *stop = newline ? newline : end;
    bool last = text == end;
    if (!memchr(text, '\t', (size_t)(stop - text))) return -1;
    for (int column = 0; !last; column++) {
        caption field = next_field(&at, stop, &last);
        if (field.bytes == 5 && memcmp(field.at, "title", 5) == 0) return column;
    }
    return -1;
}

static cloob_status read_table(cloob_ctx *ctx, const char *text, const char *end, int column, captions *out)
{
    bool last = false;
    while (!last) next_field(&text, end, &last); /* the header */
    while (text < end) {
        last = false;
        for (int i = 0; !last; i++) {
            caption field = next_field(&text, end, &last);
            if (i == column) CLOOB_TRY(add(ctx, out, field.at, field.bytes));
        }
    }
    return CLOOB_OK;
}

static cloob_status read_lines(cloob_ctx *ctx, const char *text, const char *end, captions *out)
{
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        CLOOB_TRY(add(ctx, out, text, (size_t)(stop - text)));
        text = stop + 1;
    }
    return CLOOB_OK;
}

static cloob_status learn_text(cloob_ctx *ctx, const char *text, size_t bytes, int32_t size, const char *name,
                               tokenizer **out)
{
    captions c = { 0 };
    const char *end = text + bytes;
    int column = bytes ? title_column(text, end) : -1;
    cloob_status status = column >= 0 ? read_table(ctx, text, end, column, &c) : read_lines(ctx, text, end, &c);
    if (status == CLOOB_OK) status = tokenizer_learn(ctx, c.item, c.n, size, name, out);
    free(c.item);
    return status;
}

cloob_status tokenizer_train(cloob_ctx *ctx, const char *path, int32_t size, tokenizer **out)
{
    file_map map;
    sbuf plain = { 0 };
    *out = NULL;
    CLOOB_TRY(file_map_open(ctx, path, &map));
    cloob_status status = CLOOB_OK;
    bool packed = gzip_is(map.data, map.size);
    if (packed) status = gzip_expand(ctx, map.data, map.size, (size_t)1 << 36, path, &plain);
    if (status == CLOOB_OK && packed)
        status = learn_text(ctx, plain.data ? plain.data : "", plain.len, size, path, out);
    else if (status == CLOOB_OK) status = learn_text(ctx, (const char *)map.data, map.size, size, path, out);
    sbuf_release(&plain);
    file_map_close(&map);
    return status;
}

cloob_status tokenizer_train_texts(cloob_ctx *ctx, const char *const *text, int64_t n, int32_t size, tokenizer **out)
{
    captions c = { 0 };
    cloob_status status = CLOOB_OK;
    *out = NULL;
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) status = add(ctx, &c, text[i], strlen(text[i]));
    if (status == CLOOB_OK) status = tokenizer_learn(ctx, c.item, c.n, size, "the captions", out);
    free(c.item);
    return status;
}
