/* Encoding and decoding with a finished vocabulary. */
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "data/text/tokenizer_impl.h"
#include "core/file.h"
#include "core/needs.h"

enum { TEXT_LIMIT = 1 << 30 }; /* bytes of one text: positions are 32 bits wide */

void tokenizer_close(tokenizer *t)
{
    if (!t) return;
    free(t->part);
    free(t->text_at);
    free(t->ends);
    free(t->pairs);
    free(t->words.slot);
    if (t->pieces) pieces_release(t->pieces);
    free(t->pieces);
    pipeline_close(t->pipe);
    sbuf_release(&t->text);
    free(t);
}

void tokenizer_set_clean(tokenizer *t, clean_mode mode) { t->clean = mode; }
clean_mode tokenizer_clean(const tokenizer *t) { return t->clean; }

int32_t tokenizer_vocab_size(const tokenizer *t)
{
    return t->pieces ? t->pieces->count : t->pipe ? t->pipe->p.count : FIRST_MERGE + t->merges + 2;
}

int32_t tokenizer_start_id(const tokenizer *t)
{
    if (t->pipe) return t->pipe->prefixes ? t->pipe->prefix[0] : -1;
    return t->pieces ? -1 : FIRST_MERGE + t->merges;
}

int32_t tokenizer_end_id(const tokenizer *t)
{
    if (t->pipe) return t->pipe->suffixes ? t->pipe->suffix[0] : -1;
    return t->pieces ? t->pieces->end : FIRST_MERGE + t->merges + 1;
}

bool tokenizer_fits(const tokenizer *t, int64_t vocab)
{
    bool fewer = t->pieces || t->pipe || t->smaller || t->clean == CLEAN_HF;
    return tokenizer_vocab_size(t) == vocab || (fewer && tokenizer_vocab_size(t) < vocab);
}

cloob_status tokenizer_of_pipeline(cloob_ctx *ctx, pipeline *p, tokenizer **out)
{
    tokenizer *t = *out = calloc(1, sizeof *t);
    if (t) {
        t->pipe = p;
        return CLOOB_OK;
    }
    pipeline_close(p);
    return ctx_no_memory(ctx, sizeof *t, "a tokenizer");
}

cloob_status tokenizer_of_pieces(cloob_ctx *ctx, pieces *p, tokenizer **out)
{
    tokenizer *t = calloc(1, sizeof *t);
    pieces *kept = malloc(sizeof *kept);
    *out = t;
    if (!t || !kept) {
        free(t), free(kept), pieces_release(p);
        *out = NULL;
        return ctx_no_memory(ctx, sizeof *t, "a tokenizer");
    }
    *kept = *p;
    t->pieces = kept;
    return CLOOB_OK;
}

/* ---- encoding -------------------------------------------------------------------------------------- */

/* What one thread needs from text to text; zero-initialised is empty. */
typedef struct scratch {
    sbuf text;
    int32_t *symbol;
    size_t symbol_cap;
} scratch;

static void scratch_release(scratch *s)
{
    sbuf_release(&s->text);
    free(s->symbol);
}

/* Where ids go: a row of the caller's that is full at cap, or a list that grows. */
typedef struct id_list {
    int32_t *at;
    int64_t n, cap;
    bool row, failed;
} id_list;

static bool add_ids(id_list *l, const int32_t *id, int64_t n)
{
    if (l->n + n > l->cap && l->row) n = l->cap - l->n;
    if (l->n + n > l->cap) {
        int64_t cap = 2 * l->cap + n + 16;
        int32_t *at = realloc(l->at, (size_t)cap * sizeof *at);
        if (!at) return !(l->failed = true);
        l->at = at;
        l->cap = cap;
    }
    memcpy(l->at + l->n, id, (size_t)n * sizeof *id);
    l->n += n;
    return true;
}

static bool add_id(id_list *l, int32_t id)
{
    if (l->n == l->cap) return add_ids(l, &id, 1);
    l->at[l->n++] = id;
    return true;
}

static bool is_full(const id_list *l) { return l->failed || (l->row && l->n == l->cap); }

/* A word that is not one token: its bytes, merged. */
static bool add_pieces(const tokenizer *t, const word *w, scratch *s, id_list *out)
{
    int64_t n = (int64_t)w->bytes;
    if (w->bytes > s->symbol_cap) {
        size_t cap = 2 * w->bytes + 64;
        int32_t *symbol = realloc(s->symbol, cap * sizeof *symbol);
        if (!symbol) return false;
        s->symbol = symbol;
        s->symbol_cap = cap;
    }
    for (int64_t i = 0; i < n; i++) s->symbol[i] = t->byte_id[(unsigned char)w->at[i]];
    s->symbol[n - 1] += BYTES;
    return bpe_merge(t, s->symbol, &n) && add_ids(out, s->symbol, n);
}

static bool add_words(const tokenizer *t, const char *text, size_t bytes, scratch *s, id_list *out)
{
    word w;
    for (size_t pos = 0; !is_full(out) && words_next(t->clean, text, bytes, &pos, &w);) {
        int32_t id = w.kind == WORD_START ? tokenizer_start_id(t) : w.kind == WORD_END ? tokenizer_end_id(t) : -1;
        if (id < 0) id = text_table_find(&t->words, t, w.at, w.bytes);
        if (id >= 0 ? !add_id(out, id) : !add_pieces(t, &w, s, out)) return false;
    }
    return !out->failed;
}

/* A part of a text as transformers cleans it for SigLIP: lower case, no punctuation, one space. */
static cloob_status siglip_part(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, sbuf *clean,
                                sbuf *ids)
{
    clean->len = 0;
    if (!bytes) return CLOOB_OK;
    sbuf_add(clean, text, bytes);
    CLOOB_TRY(text_lower(ctx, clean));
    text_drop_punctuation(clean);
    CLOOB_TRY(text_fold_space(ctx, clean));
    return pieces_encode_hf(ctx, t->pieces, clean->data ? clean->data : "", clean->len, ids);
}

/* U+2581 in front and nowhere else; the special tokens take the white space around them. */
static cloob_status siglip_text(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, sbuf *clean,
                                sbuf *ids)
{
    static const char mark[] = "\xe2\x96\x81", *const names[] = { "</s>", "<unk>" };
    sbuf valid = { 0 }, all = { 0 };
    size_t begin = 0;
    cloob_status status = CLOOB_OK;
    text_put_valid(text, bytes, &valid);
    sbuf_puts(&all, mark);
    for (size_t i = 0; i < valid.len; i++) {
        bool space = valid.len - i >= 3 && memcmp(valid.data + i, mark, 3) == 0;
        sbuf_putc(&all, space ? ' ' : valid.data[i]);
        if (space) i += 2;
    }
    if (all.failed || valid.failed) status = ctx_no_memory(ctx, bytes, "encoding a text");
    for (size_t i = 0; i < all.len && status == CLOOB_OK; i++)
        for (int k = 0; k < 2; k++) {
            size_t n = strlen(names[k]);
            if (all.len - i < n || memcmp(all.data + i, names[k], n) != 0) continue;
            int32_t id = k ? t->pieces->unknown : t->pieces->end;
            bool empty = begin == 0 && i == strlen(mark); /* the mark alone is dropped */
            if (!empty) status = siglip_part(ctx, t, all.data + begin, i - begin, clean, ids);
            sbuf_add(ids, (const char *)&id, sizeof id);
            begin = i + n, i = begin - 1;
            break;
        }
    if (status == CLOOB_OK && all.len > begin)
        status = siglip_part(ctx, t, all.data + begin, all.len - begin, clean, ids);
    sbuf_release(&valid);
    sbuf_release(&all);
    return status;
}

/* SentencePiece: the whole text at once, since its path is one. */
static cloob_status encode_pieces(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, scratch *s,
                                  id_list *out)
{
    sbuf ids = { 0 };
    cloob_status status = CLOOB_OK;
    s->text.len = 0;
    if (t->pipe) status = pipeline_encode(ctx, t->pipe, text, bytes, &ids);
    else if (t->pieces->hf) status = siglip_text(ctx, t, text, bytes, &s->text, &ids);
    else {
        if (t->pieces->canonicalize) {
            status = text_clean_cased(ctx, t->clean, text, bytes, &s->text);
            pieces_canonicalize(&s->text);
            if (status == CLOOB_OK) status = text_lower(ctx, &s->text);
        } else text_put_valid(text, bytes, &s->text);
        if (status == CLOOB_OK && s->text.failed) status = ctx_no_memory(ctx, bytes, "encoding a text");
        if (status == CLOOB_OK)
            status = pieces_encode(ctx, t->pieces, s->text.data ? s->text.data : "", s->text.len, &ids);
    }
    if (status == CLOOB_OK && ids.len && !add_ids(out, (const int32_t *)(const void *)ids.data, (int64_t)(ids.len / 4)))
        status = ctx_no_memory(ctx, ids.len, "ids");
    sbuf_release(&ids);
    return status;
}

static cloob_status encode_part(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, scratch *s,
                                id_list *out)
{
    s->text.len = 0;
    CLOOB_TRY(text_clean_words(ctx, t->clean, text, bytes, &s->text));
    if (s->text.failed || (s->text.len && !add_words(t, s->text.data, s->text.len, s, out)))
        return ctx_no_memory(ctx, bytes * 32, "encoding a text");
    return CLOOB_OK;
}

/* transformers finds its special names in the original text, and cleans the text between them. */
static cloob_status encode_hf(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, scratch *s,
                              id_list *out)
{
    const char padding[2] = { t->pad_special && t->pad < BYTES ? t->text.data[t->text_at[t->pad]] : '\0', '\0' };
    const char *const names[] = { "<|startoftext|>", "<|endoftext|>", padding };
    const int32_t special[] = { tokenizer_start_id(t), tokenizer_end_id(t), t->pad };
    size_t begin = 0;
    for (size_t i = 0; i < bytes && !is_full(out); i++)
        for (int k = 0; k < 3; k++) {
            size_t n = strlen(names[k]);
            if (!n || bytes - i < n || memcmp(text + i, names[k], n) != 0) continue;
            CLOOB_TRY(encode_part(ctx, t, text + begin, i - begin, s, out));
            if (!is_full(out) && !add_id(out, special[k])) return ctx_no_memory(ctx, bytes, "ids");
            begin = i + n, i = begin - 1;
            break;
        }
    return is_full(out) ? CLOOB_OK : encode_part(ctx, t, text + begin, bytes - begin, s, out);
}

static cloob_status encode(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, scratch *s, id_list *out)
{
    if (bytes <= TEXT_LIMIT && (t->pieces || t->pipe)) return encode_pieces(ctx, t, text, bytes, s, out);
    if (bytes > TEXT_LIMIT) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a text of %zu bytes; the limit is 1 GiB", bytes);
    return (t->clean == CLEAN_HF ? encode_hf : encode_part)(ctx, t, text, bytes, s, out);
}

cloob_status tokenizer_encode(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, int32_t **ids,
                              int64_t *count)
{
    scratch s = { 0 };
    id_list list = { .at = malloc(64 * sizeof(int32_t)), .cap = 64 };
    *ids = NULL;
    *count = 0;
    if (!list.at) return ctx_no_memory(ctx, 64 * sizeof(int32_t), "ids");
    cloob_status status = encode(ctx, t, text, bytes, &s, &list);
    scratch_release(&s);
    if (status != CLOOB_OK) {
        free(list.at);
        return status;
    }
    *ids = list.at;
    *count = list.n;
    return CLOOB_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------ */

/* SigLIP's: ids, end, and the padding of its vocabulary; no start. */
static cloob_status pieces_row(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, int64_t length,
                               scratch *s, int32_t *row)
{
    id_list list = { .at = row, .cap = length - 1, .row = true };
    CLOOB_TRY(encode(ctx, t, text, bytes, s, &list));
    row[list.n] = t->pieces->end;
    for (int64_t i = list.n + 1; i < length; i++) row[i] = t->pieces->pad;
    return CLOOB_OK;
}

static cloob_status encode_row(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, int64_t length,
                               scratch *s, int32_t *row)
{
    if (t->pipe && bytes <= TEXT_LIMIT) return pipeline_row(ctx, t->pipe, text, bytes, length, row);
    if (t->pieces) return pieces_row(ctx, t, text, bytes, length, s, row);
    id_list list = { .at = row + 1, .cap = length > 2 ? length - 2 : 0, .row = true };
    row[0] = tokenizer_start_id(t);
    if (list.cap) CLOOB_TRY(encode(ctx, t, text, bytes, s, &list));
    int64_t end = length > 1 ? list.n + 1 : 0;
    row[end] = tokenizer_end_id(t);
    for (int64_t i = end + 1; i < length; i++) row[i] = t->pad;
    return CLOOB_OK;
}

static cloob_status check_length(cloob_ctx *ctx, int64_t length)
{
    if (length >= 1) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a row of %lld tokens; at least 1 is needed for the end of the text",
                    (long long)length);
}

cloob_status tokenizer_encode_row(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, int64_t length,
                                  int32_t *row)
{
    scratch s = { 0 };
    CLOOB_TRY(check_length(ctx, length));
    cloob_status status = encode_row(ctx, t, text, bytes, length, &s, row);
    scratch_release(&s);
    return status;
}

typedef struct rows_job {
    const tokenizer *t;
    const char *const *text;
    int32_t *rows;
    int64_t length;
    cloob_ctx **worker; /* one per range */
    cloob_status *status;
} rows_job;

static void encode_range(void *arg, int64_t begin, int64_t end, int thread)
{
    rows_job *j = arg;
    scratch s = { 0 };
    for (int64_t i = begin; i < end && j->status[thread] == CLOOB_OK; i++)
        j->status[thread] =
            encode_row(j->worker[thread], j->t, j->text[i], strlen(j->text[i]), j->length, &s, j->rows + i * j->length);
    scratch_release(&s);
}

static cloob_status run_rows(cloob_ctx *ctx, rows_job *j, int64_t n, int64_t grain, int ranges)
{
    for (int i = 0; i < ranges; i++)
        if (!(j->worker[i] = ctx_worker(ctx))) return ctx_no_memory(ctx, sizeof(cloob_ctx), "worker contexts");
    pool_for(ctx, n, grain, encode_range, j);
    for (int i = 0; i < ranges; i++)
        if (j->status[i] != CLOOB_OK) return ctx_fail(ctx, j->status[i], "%s", cloob_error(j->worker[i]));
    return CLOOB_OK;
}

cloob_status tokenizer_encode_rows(cloob_ctx *ctx, const tokenizer *t, const char *const *text, int64_t n,
                                   int64_t length, int32_t *rows)
{
    enum { GRAIN = 256 };
    CLOOB_TRY(check_length(ctx, length));
    int ranges = pool_ranges(ctx, n, GRAIN);
    rows_job j = {
        t, text, rows, length, calloc((size_t)ranges, sizeof *j.worker), calloc((size_t)ranges, sizeof *j.status)
    };
    cloob_status status =
        j.worker && j.status ? run_rows(ctx, &j, n, GRAIN, ranges) : ctx_no_memory(ctx, 64, "worker contexts");
    for (int i = 0; j.worker && i < ranges; i++) cloob_ctx_destroy(j.worker[i]);
    free(j.worker);
    free(j.status);
    return status;
}

/* ---- decoding -------------------------------------------------------------------------------------- */

cloob_status tokenizer_decode(cloob_ctx *ctx, const tokenizer *t, const int32_t *ids, int64_t count, sbuf *out)
{
    sbuf raw = { 0 };
    int32_t size = tokenizer_vocab_size(t);
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= size) {
            sbuf_release(&raw);
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "id %d is outside the vocabulary of %d", ids[i], size);
        }
        if (t->pieces || t->pipe) {
            if (t->pipe) pipeline_put(t->pipe, ids[i], &raw);
            else pieces_put(t->pieces, ids[i], &raw);
            continue;
        }
        if (ids[i] >= FIRST_MERGE + t->merges) continue;
        sbuf_add(&raw, t->text.data + t->text_at[ids[i]], t->text_at[ids[i] + 1] - t->text_at[ids[i]]);
        if (t->ends[ids[i]]) sbuf_putc(&raw, ' ');
    }
    if (raw.len && raw.data[raw.len - 1] == ' ') raw.len--;
    if (raw.len) text_put_valid(raw.data, raw.len, out);
    out->failed |= raw.failed;
    sbuf_release(&raw);
    return out->failed ? ctx_no_memory(ctx, (size_t)count * 8, "the text of ids") : CLOOB_OK;
}

/* ---- the public interface ---------------------------------------------------------------------------- */

cloob_status cloob_tokenizer_open(cloob_ctx *ctx, const char *path, cloob_tokenizer **out)
{
    API_NEEDS(ctx, path && out);
    return tokenizer_open(ctx, path, out);
}

cloob_status cloob_tokenizer_train(cloob_ctx *ctx, const char *path, int32_t size, cloob_tokenizer **out)
{
    API_NEEDS(ctx, path && out);
    return tokenizer_train(ctx, path, size, out);
}

cloob_status cloob_tokenizer_save(cloob_ctx *ctx, const cloob_tokenizer *t, const char *path)
{
    API_NEEDS(ctx, t && path);
    sbuf text = { 0 };
    tokenizer_save(t, &text);
    return file_write_text(ctx, path, &text);
}

void cloob_tokenizer_close(cloob_tokenizer *t)
{
    if (!t) return;
    tokenizer_close(t);
}

int32_t cloob_tokenizer_vocab_size(const cloob_tokenizer *t) { return t ? tokenizer_vocab_size(t) : 0; }
int32_t cloob_tokenizer_start_id(const cloob_tokenizer *t) { return t ? tokenizer_start_id(t) : 0; }
int32_t cloob_tokenizer_end_id(const cloob_tokenizer *t) { return t ? tokenizer_end_id(t) : 0; }

cloob_status cloob_tokenizer_encode(cloob_ctx *ctx, const cloob_tokenizer *t, const char *text, size_t bytes,
                                    int32_t **ids, int64_t *count)
{
    API_NEEDS(ctx, t && text && ids && count);
    return tokenizer_encode(ctx, t, text, bytes, ids, count);
}

cloob_status cloob_tokenizer_encode_rows(cloob_ctx *ctx, const cloob_tokenizer *t, const char *const *text, int64_t n,
                                         int64_t length, int32_t *rows)
{
    API_NEEDS(ctx, t && n >= 0 && (n == 0 || (text && rows)));
    return tokenizer_encode_rows(ctx, t, text, n, length, rows);
}

cloob_status cloob_tokenizer_decode(cloob_ctx *ctx, const cloob_tokenizer *t, const int32_t *ids, int64_t count,
                                    char **text)
{
    API_NEEDS(ctx, t && text && count >= 0 && (count == 0 || ids));
    sbuf out = { 0 };
    sbuf_puts(&out, "");
    cloob_status status = tokenizer_decode(ctx, t, ids, count, &out);
    *text = status == CLOOB_OK ? sbuf_detach(&out) : NULL;
    sbuf_release(&out);
    return status;
}
