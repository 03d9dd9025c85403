/* Counts the words of captions, for learning a vocabulary: one table per thread, merged and sorted at the end. */

#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "data/text/tokenizer_impl.h"
#include "core/arena.h"
#include "core/file.h"
#include "io/gzip.h"

typedef struct slot {
    uint64_t hash;
    size_t at;      /* in text */
    uint32_t bytes; /* 0: empty */
    int64_t count;
} slot;

typedef struct table {
    slot *slot;
    size_t mask, used;
    sbuf text;
} table;

static uint64_t hash_bytes(const char *text, size_t bytes)
{
    uint64_t h = text_key(text, bytes) + bytes;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

static bool table_grow(table *h)
{
    size_t size = h->slot ? 2 * (h->mask + 1) : 4096;
    slot *bigger = calloc(size, sizeof *bigger);
    if (!bigger) return false;
    for (size_t i = 0; h->slot && i <= h->mask; i++) {
        if (!h->slot[i].bytes) continue;
        size_t s = h->slot[i].hash & (size - 1);
        while (bigger[s].bytes) s = (s + 1) & (size - 1);
        bigger[s] = h->slot[i];
    }
    free(h->slot);
    h->slot = bigger;
    h->mask = size - 1;
    return true;
}

static bool table_add(table *h, const char *text, size_t bytes, int64_t count)
{
    if ((!h->slot || 2 * h->used > h->mask) && !table_grow(h)) return false;
    uint64_t hash = hash_bytes(text, bytes);
    size_t s = hash & h->mask;
    for (; h->slot[s].bytes; s = (s + 1) & h->mask) {
        slot *x = &h->slot[s];
        if (x->hash != hash || x->bytes != bytes || memcmp(h->text.data + x->at, text, bytes) != 0) continue;
        x->count += count;
        return true;
    }
    h->slot[s] = (slot){ hash, h->text.len, (uint32_t)bytes, count };
    h->used++;
    sbuf_add(&h->text, text, bytes);
    return !h->text.failed;
}

static bool table_join(table *into, const table *from)
{
    for (size_t i = 0; from->slot && i <= from->mask; i++) {
        const slot *x = &from->slot[i];
        if (x->bytes && !table_add(into, from->text.data + x->at, x->bytes, x->count)) return false;
    }
    return true;
}

static void table_release(table *h)
{
    free(h->slot);
    sbuf_release(&h->text);
}

/* ---- captions -------------------------------------------------------------------------------------- */

typedef struct count_job {
    const cloob_ctx *ctx;
    const caption *captions;
    table *tables;
    bool *failed;
} count_job;

static bool count_caption(cloob_ctx *ctx, table *h, const caption *c, sbuf *clean)
{
    word w;
    clean->len = 0;
    if (text_clean_words(ctx, CLEAN_FULL, c->at, c->bytes, clean) != CLOOB_OK) return false;
    for (size_t pos = 0; clean->len && words_next(CLEAN_FULL, clean->data, clean->len, &pos, &w);)
        if (w.kind == WORD_PLAIN && w.bytes <= COUNT_WORD_LIMIT && !table_add(h, w.at, w.bytes, 1)) return false;
    return true;
}

static void count_range(void *arg, int64_t begin, int64_t end, int thread)
{
    count_job *j = arg;
    sbuf clean = { 0 };
    cloob_ctx *ctx = ctx_worker(j->ctx);
    bool ok = ctx != NULL;
    for (int64_t i = begin; i < end && ok; i++) ok = count_caption(ctx, &j->tables[thread], &j->captions[i], &clean);
    j->failed[thread] = !ok;
    sbuf_release(&clean);
    cloob_ctx_destroy(ctx);
}

static int by_bytes(const void *a, const void *b)
{
    const word_count *x = a, *y = b;
    int c = memcmp(x->at, y->at, x->bytes < y->bytes ? x->bytes : y->bytes);
    return c ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Takes the table's text over. */
static bool list_words(table *h, word_counts *out)
{
    *out = (word_counts){ .item = malloc((h->used + 1) * sizeof *out->item), .text = h->text.data };
    h->text = (sbuf){ 0 };
    if (!out->item) return false;
    for (size_t i = 0; h->slot && i <= h->mask; i++)
        if (h->slot[i].bytes)
            out->item[out->n++] = (word_count){ out->text + h->slot[i].at, h->slot[i].bytes, h->slot[i].count };
    qsort(out->item, (size_t)out->n, sizeof *out->item, by_bytes);
    return true;
}

cloob_status words_count(cloob_ctx *ctx, const caption *captions, int64_t n, word_counts *out)
{
    enum { GRAIN = 1024 };
    int ranges = pool_ranges(ctx, n, GRAIN);
    count_job j = { ctx, captions, calloc((size_t)ranges, sizeof(table)), calloc((size_t)ranges, sizeof(bool)) };
    bool ok = j.tables && j.failed;
    *out = (word_counts){ 0 };
    if (ok) pool_for(ctx, n, GRAIN, count_range, &j);
    for (int i = 0; ok && i < ranges; i++) ok = !j.failed[i] && (i == 0 || table_join(&j.tables[0], &j.tables[i]));
    if (ok) ok = list_words(&j.tables[0], out);
    for (int i = 0; j.tables && i < ranges; i++) table_release(&j.tables[i]);
    free(j.tables);
    free(j.failed);
    if (ok) return CLOOB_OK;
    word_counts_release(out);
    return ctx_no_memory(ctx, (size_t)n * 32, "counting words");
}

void word_counts_release(word_counts *w)
{
    free(w->item);
    free(w->text);
    *w = (word_counts){ 0 };
}

/* ---- files of captions: a caption per line, or the `title` column of a table with tabs --------- */

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

/* One field from *at on, up to a tab or the line's end; quotes hide both, as spreadsheets write them. The field is
 * without its outer quotes (a doubled quote inside stays doubled, which does not change words). Moves *at after it;
 * *last: the row ends here. */
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

/* The column `title` of the first row; -1: the file is not a table. */
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
