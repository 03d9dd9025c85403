/* Encodes texts to ids and rows, and decodes ids. */
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/needs.h"
#include "core/pool.h"
#include "data/text/tokenizer_impl.h"

enum { TEXT_LIMIT = 1 << 30 }; /* bytes of one text, so that positions fit into 32 bits */

/* ---- create and close ---------------------------------------------------------------------------- */

cloob_status tokenizer_create(cloob_ctx *ctx, tokenizer_form form, tokenizer **out)
{
    tokenizer *t = *out = calloc(1, sizeof *t);
    if (!t) return ctx_no_memory(ctx, sizeof *t, "a tokenizer");
    t->form = form;
    t->strip_sep = -1;
    return CLOOB_OK;
}

void cloob_tokenizer_close(tokenizer *t)
{
    if (!t) return;
    free(t->added);
    pieces_release(&t->p);
    sbuf_release(&t->source);
    arena_release(&t->a);
    free(t);
}

cloob_status tokenizer_or_close(cloob_status status, tokenizer **t)
{
    if (status == CLOOB_OK) return status;
    cloob_tokenizer_close(*t);
    *t = NULL;
    return status;
}

/* the steps of a tokenizer.json are fixed */
void tokenizer_set_clean(tokenizer *t, clean_mode mode)
{
    t->clean = t->form == FORM_JSON ? CLEAN_FULL : mode;
    if (t->form == FORM_MERGES) merges_set_steps(t);
}

clean_mode tokenizer_clean(const tokenizer *t) { return t->clean; }
int32_t cloob_tokenizer_vocab_size(const tokenizer *t) { return t ? t->p.count : 0; }
int32_t cloob_tokenizer_start_id(const tokenizer *t) { return !t ? 0 : t->prefixes ? t->prefix[0] : -1; }
int32_t cloob_tokenizer_end_id(const tokenizer *t) { return !t ? 0 : t->suffixes ? t->suffix[0] : -1; }

bool tokenizer_fits(const tokenizer *t, int64_t vocab)
{
    bool fewer = t->form != FORM_MERGES || t->smaller || t->clean == CLEAN_HF;
    return cloob_tokenizer_vocab_size(t) == vocab || (fewer && cloob_tokenizer_vocab_size(t) < vocab);
}

/* ---- added tokens -------------------------------------------------------------------------------- */

static bool is_word(const char *text, size_t n, size_t at, bool before)
{
    size_t used;
    if (before ? at == 0 : at >= n) return false;
    if (before)
        for (at--; at && ((unsigned char)text[at] & 0xC0) == 0x80;) at--;
    uint32_t c = steps_code_at(text + at, n - at, &used);
    return c == '_' || uni_is_letter(c) || uni_is_number(c);
}

/* The longest added token at text[i], among those with the given `normalized`; NULL if there is none. */
static const added_token *added_at(const tokenizer *t, const char *text, size_t n, size_t i, bool normalized)
{
    const added_token *best = NULL;
    for (int64_t k = 0; k < t->added_count; k++) {
        const added_token *a = &t->added[k];
        if (a->normalized != normalized || a->bytes > n - i || a->text[0] != text[i] ||
            memcmp(text + i, a->text, a->bytes) != 0 || (best && best->bytes >= a->bytes))
            continue;
        if (a->single_word && (is_word(text, n, i, true) || is_word(text, n, i + a->bytes, false))) continue;
        best = a;
    }
    return best;
}

static cloob_status encode_part(const encoder *e, const char *text, size_t n, bool normalized, bool first);

/* Splits the text at added tokens of this form (original or normalised) and encodes the rest. */
static cloob_status encode_split(const encoder *e, const char *text, size_t n, bool normalized, bool first)
{
    const tokenizer *t = e->t;
    size_t begin = 0;
    bool starts[256] = { false };
    for (int64_t k = 0; k < t->added_count; k++)
        if (t->added[k].normalized == normalized) starts[(unsigned char)t->added[k].text[0]] = true;
    for (size_t i = 0; i < n && t->added_count;) {
        const added_token *a = starts[(unsigned char)text[i]] ? added_at(t, text, n, i, normalized) : NULL;
        if (!a) {
            i++;
            continue;
        }
        size_t end = i + a->bytes, used, from = i;
        for (size_t k = i; a->lstrip && k > begin;) {
            for (k--; k > begin && ((unsigned char)text[k] & 0xC0) == 0x80;) k--;
            if (!steps_is_space(steps_code_at(text + k, n - k, &used))) break;
            from = k;
        }
        while (a->rstrip && end < n && steps_is_space(steps_code_at(text + end, n - end, &used))) end += used;
        /* a text of only the U+2581 mark is dropped */
        bool empty = t->prepare == PREPARE_SIGLIP && !begin && from == META_BYTES;
        if (from > begin && !empty) CLOOB_TRY(encode_part(e, text + begin, from - begin, normalized, first && !begin));
        sbuf_add(e->ids, &a->id, sizeof a->id);
        begin = i = end;
    }
    return n > begin ? encode_part(e, text + begin, n - begin, normalized, first && !begin) : CLOOB_OK;
}

/* Encodes text between added tokens: original text is normalised and split again, normalised text is cut into words. */
static cloob_status encode_part(const encoder *e, const char *text, size_t n, bool normalized, bool first)
{
    sbuf clean = { 0 };
    if (normalized) return steps_cut(e, text, n, first);
    if (!e->t->normalizers) return encode_split(e, text, n, true, first);
    sbuf_add(&clean, text, n);
    steps_normalise(e->t, &clean);
    cloob_status status = clean.failed ? ctx_no_memory(e->ctx, n, "encoding a text") : CLOOB_OK;
    if (status == CLOOB_OK && clean.len) status = encode_split(e, clean.data, clean.len, true, first);
    sbuf_release(&clean);
    return status;
}

/* ---- texts and rows ------------------------------------------------------------------------------ */

static void put_marked(const char *text, size_t bytes, sbuf *out)
{
    sbuf valid = { 0 };
    text_put_valid(text, bytes, &valid);
    sbuf_puts(out, META);
    for (size_t i = 0; i < valid.len; i++) {
        bool mark = valid.len - i >= META_BYTES && memcmp(valid.data + i, META, META_BYTES) == 0;
        sbuf_putc(out, mark ? ' ' : valid.data[i]);
        if (mark) i += META_BYTES - 1;
    }
    out->failed |= valid.failed;
    sbuf_release(&valid);
}

static cloob_status prepare(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, sbuf *out)
{
    switch (t->prepare) {
    case PREPARE_NOTHING: text_put_valid(text, bytes, out); break;
    case PREPARE_SIGLIP: put_marked(text, bytes, out); break;
    case PREPARE_WORDS: CLOOB_TRY(text_clean_words(ctx, t->clean, text, bytes, out)); break;
    default:
        CLOOB_TRY(text_clean_cased(ctx, t->clean, text, bytes, out));
        if (t->prepare == PREPARE_CANONICAL) text_canonicalize(out);
        if (t->prepare != PREPARE_WHITESPACE) CLOOB_TRY(text_lower(ctx, out));
    }
    return out->failed ? ctx_no_memory(ctx, bytes, "encoding a text") : CLOOB_OK;
}

/* Buffers that a thread reuses for all its texts; zero-initialised is empty. */
typedef struct scratch {
    sbuf text, ids;
} scratch;

static void scratch_release(scratch *s)
{
    sbuf_release(&s->text);
    sbuf_release(&s->ids);
}

/* Writes the ids of a text to s->ids. */
static cloob_status encode(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, scratch *s)
{
    encoder e = { ctx, t, &s->ids };
    if (bytes > TEXT_LIMIT)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a text of %zu bytes is too long; the limit is 1 GiB", bytes);
    s->text.len = s->ids.len = 0;
    CLOOB_TRY(prepare(ctx, t, text, bytes, &s->text));
    if (s->text.len) CLOOB_TRY(encode_split(&e, s->text.data, s->text.len, false, true));
    return s->ids.failed ? ctx_no_memory(ctx, 4 * bytes, "ids") : CLOOB_OK;
}

cloob_status cloob_tokenizer_encode(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, int32_t **ids,
                                    int64_t *count)
{
    API_NEEDS(ctx, t && text && ids && count);
    scratch s = { 0 };
    *ids = NULL;
    *count = 0;
    cloob_status status = encode(ctx, t, text, bytes, &s);
    size_t n = s.ids.len;
    if (status == CLOOB_OK && !(*ids = malloc(n + sizeof **ids))) status = ctx_no_memory(ctx, n, "ids");
    if (status == CLOOB_OK && n) memcpy(*ids, s.ids.data, n);
    if (status == CLOOB_OK) *count = (int64_t)(n / sizeof **ids);
    scratch_release(&s);
    return status;
}

/* Fills a row. If it is too short for everything, the suffix has priority, then the prefix. */
static cloob_status encode_row(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, int64_t length,
                               scratch *s, int32_t *row)
{
    CLOOB_TRY(encode(ctx, t, text, bytes, s));
    int64_t suffixes = t->suffixes < length ? t->suffixes : length, left = length - suffixes;
    int64_t prefixes = t->prefixes < left ? t->prefixes : left, at = 0, n = (int64_t)(s->ids.len / sizeof *row);
    if (n > left - prefixes) n = left - prefixes;
    for (int64_t pads = left - prefixes - n; t->pad_left && at < pads;) row[at++] = t->pad;
    for (int64_t i = 0; i < prefixes; i++) row[at++] = t->prefix[i];
    if (n) memcpy(row + at, s->ids.data, (size_t)n * sizeof *row), at += n;
    for (int64_t i = 0; i < suffixes; i++) row[at++] = t->suffix[i];
    while (at < length) row[at++] = t->pad;
    for (int64_t i = 0; t->strip_sep >= 0 && i < length; i++)
        if (row[i] == t->strip_sep) row[i] = 0;
    return CLOOB_OK;
}

static cloob_status check_length(cloob_ctx *ctx, int64_t length)
{
    if (length >= 1) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "a row of %lld tokens is too short; at least 1 is needed for the end token", (long long)length);
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
} rows_job;

static cloob_status encode_range(cloob_ctx *ctx, void *arg, int64_t begin, int64_t end, int thread)
{
    rows_job *j = arg;
    scratch s = { 0 };
    cloob_status status = CLOOB_OK;
    (void)thread;
    for (int64_t i = begin; i < end && status == CLOOB_OK; i++)
        status = encode_row(ctx, j->t, j->text[i], strlen(j->text[i]), j->length, &s, j->rows + i * j->length);
    scratch_release(&s);
    return status;
}

cloob_status cloob_tokenizer_encode_rows(cloob_ctx *ctx, const tokenizer *t, const char *const *text, int64_t n,
                                         int64_t length, int32_t *rows)
{
    enum { GRAIN = 256 };
    API_NEEDS(ctx, t && n >= 0 && (n == 0 || (text && rows)));
    CLOOB_TRY(check_length(ctx, length));
    return pool_try(ctx, n, GRAIN, encode_range, &(rows_job){ t, text, rows, length });
}

/* ---- decoding -------------------------------------------------------------------------------------- */

static bool is_added(const tokenizer *t, int32_t id)
{
    for (int64_t i = 0; i < t->added_count; i++)
        if (t->added[i].id == id) return true;
    return false;
}

/* Appends the text of an id: WordPiece pieces are joined, byte-level characters become bytes, the end-of-word mark
 * becomes a space. */
static void put_id(const tokenizer *t, int32_t id, sbuf *out)
{
    const piece_row *e = &t->p.piece[id];
    const char *text = t->p.text.data + e->at;
    size_t n = e->bytes;
    if (e->type == PIECE_CONTROL || (t->form == FORM_JSON && is_added(t, id))) return;
    if (t->p.model == PIECES_WORDS) {
        bool inside = n > 2 && memcmp(text, "##", 2) == 0;
        if (out->len && !inside) sbuf_putc(out, ' ');
        sbuf_add(out, text + (inside ? 2 : 0), n - (inside ? 2 : 0));
    } else if (t->steps && t->step[t->steps - 1].kind == STEP_SPLIT_BYTES) {
        bool ends = t->p.word_ends && n > 4 && memcmp(text + n - 4, "</w>", 4) == 0;
        byte_unspell(text, ends ? n - 4 : n, out);
        if (ends) sbuf_putc(out, ' ');
    } else pieces_put(&t->p, id, out);
}

cloob_status cloob_tokenizer_decode(cloob_ctx *ctx, const tokenizer *t, const int32_t *ids, int64_t count, char **text)
{
    API_NEEDS(ctx, t && text && count >= 0 && (count == 0 || ids));
    sbuf raw = { 0 }, out = { 0 };
    cloob_status status = CLOOB_OK;
    *text = NULL;
    for (int64_t i = 0; i < count && status == CLOOB_OK; i++) {
        bool known = ids[i] >= 0 && ids[i] < t->p.count;
        if (known) put_id(t, ids[i], &raw);
        else status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "id %d is outside the vocabulary of %d", ids[i], t->p.count);
    }
    if (raw.len && raw.data[raw.len - 1] == ' ') raw.len--;
    if (raw.len) text_put_valid(raw.data, raw.len, &out);
    out.failed |= raw.failed;
    sbuf_release(&raw);
    if (status == CLOOB_OK && !(*text = sbuf_detach(&out)))
        status = ctx_no_memory(ctx, (size_t)count * 8, "the text of ids");
    sbuf_release(&out);
    return status;
}

/* ---- stored forms ---------------------------------------------------------------------------------- */

cloob_status tokenizer_open_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out)
{
    *out = NULL;
    if (pieces_is_text(text, size)) return pieces_read_text(ctx, text, size, name, out);
    if (json_form_is_text(text, size)) return json_form_read(ctx, text, size, name, out);
    return merges_read(ctx, text, size, name, out);
}

void tokenizer_save(const tokenizer *t, sbuf *out)
{
    static void (*const save[])(const tokenizer *t, sbuf *out) = { merges_save, pieces_save, json_form_save };
    save[t->form](t, out);
}

cloob_status cloob_tokenizer_save(cloob_ctx *ctx, const cloob_tokenizer *t, const char *path)
{
    API_NEEDS(ctx, t && path);
    sbuf text = { 0 };
    tokenizer_save(t, &text);
    return file_write_text(ctx, path, &text);
}
