/* Applying a tokenizer.json: added tokens, normalizers, pre-tokenizers, the model, rows. */
#include "data/text/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/text/clean.h"

static const char META[] = "\xe2\x96\x81"; /* U+2581 */

/* Unicode's white space, as Rust has it: without U+001C .. U+001F. */
static bool is_space(uint32_t c) { return uni_is_space(c) && !(c >= 0x1C && c <= 0x1F); }

/* The code point at text[0] and its bytes; text is UTF-8. */
static uint32_t code_at(const char *text, size_t n, size_t *used)
{
    uint32_t c = 0xFFFD;
    int k = utf8_decode(text, n, &c);
    *used = k > 0 ? (size_t)k : 1;
    return k > 0 ? c : 0xFFFD;
}

/* ---- normalizers --------------------------------------------------------------------------------- */

static void decode(const sbuf *in, codes *out)
{
    for (size_t i = 0, used; i < in->len; i += used) codes_add(out, code_at(in->data + i, in->len - i, &used));
}

static void encode(const codes *in, sbuf *out)
{
    char utf8[4];
    out->len = 0;
    for (size_t i = 0; i < in->n && !in->failed; i++) sbuf_add(out, utf8, (size_t)utf8_encode(in->at[i], utf8));
    out->failed |= in->failed;
}

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* One code point of the steps that look at one; several come out, or none. */
static void change(step_kind kind, uint32_t c, codes *out)
{
    bool gap = c == '\t' || c == '\n' || c == '\r';
    switch (kind) {
    case STEP_LOWER: uni_lower(&c, 1, out); break;
    case STEP_ACCENTS:
        if (!uni_is_mark(c)) codes_add(out, c);
        break;
    case STEP_BERT_CLEAN:
        if (c && c != 0xFFFD && (gap || !uni_is_other(c))) codes_add(out, gap || is_space(c) ? ' ' : c);
        break;
    default: /* STEP_BERT_CHINESE */
        if (is_chinese(c)) codes_add(out, ' ');
        codes_add(out, c);
        if (is_chinese(c)) codes_add(out, ' ');
    }
}

static void change_codes(const step *s, sbuf *text)
{
    codes in = { 0 }, out = { 0 };
    decode(text, &in);
    if (s->kind == STEP_NFC) text_nfc_of_unicode_9(&in);
    else if (s->kind == STEP_NFD || s->kind == STEP_NFKD) uni_nfd(&in, s->kind == STEP_NFKD);
    else if (s->kind == STEP_NFKC) uni_nfd(&in, true), uni_nfc(&in);
    else {
        for (size_t i = 0; i < in.n; i++) change(s->kind, in.at[i], &out);
        out.failed |= in.failed;
        codes_release(&in);
        in = out;
    }
    encode(&in, text);
    codes_release(&in);
}

static void replace(const step *s, const sbuf *in, sbuf *out)
{
    size_t n = strlen(s->from), to = strlen(s->to);
    for (size_t i = 0; i < in->len;) {
        bool here = n && in->len - i >= n && memcmp(in->data + i, s->from, n) == 0;
        if (here) sbuf_add(out, s->to, to), i += n;
        else sbuf_putc(out, in->data[i++]);
    }
}

static void replace_spaces(const step *s, const sbuf *in, sbuf *out)
{
    for (size_t i = 0, used; i < in->len;) {
        size_t end = i;
        int64_t run = 0;
        while (end < in->len) {
            uint32_t c = code_at(in->data + end, in->len - end, &used);
            if (s->least > 1 ? c != ' ' : !is_space(c)) break;
            end += used;
            run++;
        }
        if (run >= s->least && run) sbuf_puts(out, s->to);
        else if (run) sbuf_add(out, in->data + i, end - i);
        i = end;
        if (run) continue;
        code_at(in->data + i, in->len - i, &used);
        sbuf_add(out, in->data + i, used);
        i += used;
    }
}

static void strip(const step *s, const sbuf *in, sbuf *out)
{
    size_t begin = 0, end = 0, used;
    bool seen = false;
    for (size_t i = 0; i < in->len; i += used) {
        bool space = is_space(code_at(in->data + i, in->len - i, &used));
        if (space && !seen && s->left) begin = i + used;
        seen |= !space;
        if (!space || !s->right) end = i + used;
    }
    if (end > begin) sbuf_add(out, in->data + begin, end - begin);
}

static void normalise(const pipeline *t, sbuf *text)
{
    for (int i = 0; i < t->steps && t->step[i].kind < STEP_SPLIT_SPACES; i++) {
        const step *s = &t->step[i];
        sbuf out = { 0 };
        switch (s->kind) {
        case STEP_REPLACE: replace(s, text, &out); break;
        case STEP_REPLACE_SPACES: replace_spaces(s, text, &out); break;
        case STEP_STRIP: strip(s, text, &out); break;
        case STEP_PREPEND:
            if (text->len) sbuf_puts(&out, s->to), sbuf_add(&out, text->data, text->len);
            break;
        case STEP_CHARSMAP: pieces_map(&t->p, text->data ? text->data : "", text->len, &out); break;
        default: change_codes(s, text); continue;
        }
        out.failed |= text->failed;
        sbuf_release(text);
        *text = out;
    }
}

/* ---- pre-tokenizers: every step hands its words to the next ---------------------------------------- */

typedef struct cutter {
    cloob_ctx *ctx;
    const pipeline *t;
    sbuf *ids;
} cutter;

static cloob_status cut(const cutter *c, int at, const char *word, size_t bytes, bool first);

static cloob_status split_spaces(const cutter *c, int at, const char *text, size_t n, bool first)
{
    size_t begin = 0, used;
    for (size_t i = 0; i < n; i += used)
        if (is_space(code_at(text + i, n - i, &used))) {
            if (i > begin) CLOOB_TRY(cut(c, at, text + begin, i - begin, first && !begin));
            begin = i + used;
        }
    return n > begin ? cut(c, at, text + begin, n - begin, first && !begin) : CLOOB_OK;
}

static bool is_bert_punctuation(uint32_t c)
{
    bool ascii = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    return ascii || (c >= 0x80 && uni_is_punctuation(c));
}

static cloob_status split_bert(const cutter *c, int at, const char *text, size_t n)
{
    size_t begin = 0, used;
    for (size_t i = 0; i < n; i += used) {
        uint32_t code = code_at(text + i, n - i, &used);
        bool space = is_space(code), alone = is_bert_punctuation(code);
        if (!space && !alone) continue;
        if (i > begin) CLOOB_TRY(cut(c, at, text + begin, i - begin, false));
        if (alone) CLOOB_TRY(cut(c, at, text + i, used, false));
        begin = i + used;
    }
    return n > begin ? cut(c, at, text + begin, n - begin, false) : CLOOB_OK;
}

/* Spaces become U+2581, which begins a word. */
static cloob_status split_metaspace(const cutter *c, const step *s, int at, const char *text, size_t n, bool first)
{
    sbuf all = { 0 };
    cloob_status status = CLOOB_OK;
    bool marked = n && (text[0] == ' ' || (n >= 3 && memcmp(text, META, 3) == 0));
    if (s->left && !marked && (!s->first || first)) sbuf_puts(&all, META);
    for (size_t i = 0; i < n; i++)
        if (text[i] == ' ') sbuf_puts(&all, META);
        else sbuf_putc(&all, text[i]);
    size_t begin = 0;
    for (size_t i = 3; s->right && i + 3 <= all.len && status == CLOOB_OK; i++)
        if (memcmp(all.data + i, META, 3) == 0) {
            status = cut(c, at, all.data + begin, i - begin, first && !begin);
            begin = i, i += 2;
        }
    if (all.failed) status = ctx_no_memory(c->ctx, n, "encoding a text");
    if (status == CLOOB_OK && all.len > begin) status = cut(c, at, all.data + begin, all.len - begin, first && !begin);
    sbuf_release(&all);
    return status;
}

/* The kind of characters that GPT-2's expression takes together. */
static int byte_kind(uint32_t c) { return is_space(c) ? 0 : uni_is_letter(c) ? 1 : uni_is_number(c) ? 2 : 3; }

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ : the bytes of the next word. */
static size_t gpt2_word(const char *text, size_t n)
{
    static const char *const endings[] = { "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" };
    size_t used, last = 0, i = 0;
    for (size_t k = 0; k < sizeof endings / sizeof *endings; k++)
        if (n >= strlen(endings[k]) && memcmp(text, endings[k], strlen(endings[k])) == 0) return strlen(endings[k]);
    size_t start = text[0] == ' ' && n > 1 && byte_kind(code_at(text + 1, n - 1, &used)) ? 1 : 0;
    int kind = byte_kind(code_at(text + start, n - start, &used));
    for (i = start; i < n && byte_kind(code_at(text + i, n - i, &used)) == kind; i += used) last = i;
    if (kind == 0 && i < n && last > 0) return last; /* the last blank belongs to the next word */
    return i;
}

static cloob_status put_bytes(const cutter *c, int at, const char *word, size_t n)
{
    sbuf spelled = { 0 };
    for (size_t i = 0; i < n; i++) sbuf_puts(&spelled, c->t->byte_text[(unsigned char)word[i]]);
    cloob_status status = spelled.failed ? ctx_no_memory(c->ctx, 2 * n, "encoding a text")
                                         : cut(c, at, spelled.data ? spelled.data : "", spelled.len, false);
    sbuf_release(&spelled);
    return status;
}

static cloob_status split_bytes(const cutter *c, const step *s, int at, const char *text, size_t n)
{
    sbuf all = { 0 };
    cloob_status status = CLOOB_OK;
    if (s->left && n && text[0] != ' ') sbuf_putc(&all, ' ');
    sbuf_add(&all, text, n);
    for (size_t i = 0, used; i < all.len && status == CLOOB_OK; i += used) {
        used = s->right ? gpt2_word(all.data + i, all.len - i) : all.len;
        status = put_bytes(c, at, all.data + i, used);
    }
    if (all.failed) status = ctx_no_memory(c->ctx, n, "encoding a text");
    sbuf_release(&all);
    return status;
}

static cloob_status split_after_space(const cutter *c, const step *s, int at, const char *text, size_t n)
{
    size_t begin = 0, k = strlen(s->from);
    for (size_t i = 0; k && i + k <= n; i++)
        if (memcmp(text + i, s->from, k) == 0) {
            CLOOB_TRY(cut(c, at, text + begin, i + k - begin, false));
            begin = i + k, i = begin - 1;
        }
    return n > begin ? cut(c, at, text + begin, n - begin, false) : CLOOB_OK;
}

static cloob_status cut(const cutter *c, int at, const char *word, size_t bytes, bool first)
{
    while (at < c->t->steps && c->t->step[at].kind < STEP_SPLIT_SPACES) at++;
    if (at >= c->t->steps) return pieces_cut(c->ctx, &c->t->p, word, bytes, c->ids);
    const step *s = &c->t->step[at++];
    switch (s->kind) {
    case STEP_SPLIT_SPACES: return split_spaces(c, at, word, bytes, first);
    case STEP_SPLIT_BERT: return split_bert(c, at, word, bytes);
    case STEP_SPLIT_METASPACE: return split_metaspace(c, s, at, word, bytes, first);
    case STEP_SPLIT_BYTES: return split_bytes(c, s, at, word, bytes);
    default: return split_after_space(c, s, at, word, bytes);
    }
}

/* ---- added tokens -------------------------------------------------------------------------------- */

static bool is_word(const char *text, size_t n, size_t at, bool before)
{
    size_t used;
    if (before ? at == 0 : at >= n) return false;
    if (before)
        for (at--; at && ((unsigned char)text[at] & 0xC0) == 0x80;) at--;
    uint32_t c = code_at(text + at, n - at, &used);
    return c == '_' || uni_is_letter(c) || uni_is_number(c);
}

/* The longest added token at text[i]. */
static const added_token *added_at(const pipeline *t, const char *text, size_t n, size_t i, bool normalized)
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

static cloob_status encode_part(const cutter *c, const char *text, size_t n, bool normalized, bool first);

/* Splits at the added tokens that are looked for in this form of the text. */
static cloob_status encode_split(const cutter *c, const char *text, size_t n, bool normalized, bool first)
{
    size_t begin = 0;
    bool starts[256] = { false };
    for (int64_t k = 0; k < c->t->added_count; k++)
        if (c->t->added[k].normalized == normalized) starts[(unsigned char)c->t->added[k].text[0]] = true;
    for (size_t i = 0; i < n;) {
        const added_token *a = starts[(unsigned char)text[i]] ? added_at(c->t, text, n, i, normalized) : NULL;
        if (!a) {
            i++;
            continue;
        }
        size_t end = i + a->bytes, used, from = i;
        for (size_t k = i; a->lstrip && k > begin;) {
            for (k--; k > begin && ((unsigned char)text[k] & 0xC0) == 0x80;) k--;
            if (!is_space(code_at(text + k, n - k, &used))) break;
            from = k;
        }
        while (a->rstrip && end < n && is_space(code_at(text + end, n - end, &used))) end += used;
        if (from > begin) CLOOB_TRY(encode_part(c, text + begin, from - begin, normalized, first && !begin));
        sbuf_add(c->ids, (const char *)&a->id, sizeof a->id);
        begin = i = end;
    }
    return n > begin ? encode_part(c, text + begin, n - begin, normalized, first && !begin) : CLOOB_OK;
}

/* Text between added tokens: raw text is normalised and searched again, normalised text is cut. */
static cloob_status encode_part(const cutter *c, const char *text, size_t n, bool normalized, bool first)
{
    sbuf clean = { 0 };
    if (normalized) return cut(c, 0, text, n, first);
    sbuf_add(&clean, text, n);
    normalise(c->t, &clean);
    cloob_status status = clean.failed ? ctx_no_memory(c->ctx, n, "encoding a text") : CLOOB_OK;
    if (status == CLOOB_OK && clean.len) status = encode_split(c, clean.data, clean.len, true, first);
    sbuf_release(&clean);
    return status;
}

/* Words of WordPiece are put together; characters for bytes become the bytes. */
void pipeline_put(const pipeline *t, int32_t id, sbuf *out)
{
    const piece_row *e = &t->p.piece[id];
    const char *text = t->p.text.data + e->at;
    bool bytes = t->steps && t->step[t->steps - 1].kind == STEP_SPLIT_BYTES, special = false;
    for (int64_t i = 0; i < t->added_count; i++) special |= t->added[i].id == id;
    if (special) return;
    if (t->p.word_pieces) {
        bool inside = e->bytes > 2 && memcmp(text, "##", 2) == 0;
        if (out->len && !inside) sbuf_putc(out, ' ');
        sbuf_add(out, text + (inside ? 2 : 0), e->bytes - (inside ? 2 : 0));
        return;
    }
    if (!bytes) {
        pieces_put(&t->p, id, out);
        return;
    }
    for (size_t i = 0, n; i < e->bytes; i += n) {
        code_at(text + i, e->bytes - i, &n);
        for (int b = 0; b < 256; b++)
            if (strlen(t->byte_text[b]) == n && memcmp(t->byte_text[b], text + i, n) == 0) sbuf_putc(out, (char)b);
    }
}

/* ---- texts and rows ------------------------------------------------------------------------------ */

cloob_status pipeline_encode(cloob_ctx *ctx, const pipeline *t, const char *text, size_t bytes, sbuf *ids)
{
    sbuf clean = { 0 };
    cutter c = { ctx, t, ids };
    cloob_status status = CLOOB_OK;
    if (t->clean == PIPELINE_AS_IS) text_put_valid(text, bytes, &clean);
    else status = text_clean_cased(ctx, CLEAN_FULL, text, bytes, &clean);
    if (t->clean == PIPELINE_CANONICAL) pieces_canonicalize(&clean);
    if (status == CLOOB_OK && t->clean >= PIPELINE_LOWER) status = text_lower(ctx, &clean);
    if (status == CLOOB_OK && clean.failed) status = ctx_no_memory(ctx, bytes, "encoding a text");
    if (status == CLOOB_OK && clean.len) status = encode_split(&c, clean.data, clean.len, false, true);
    if (status == CLOOB_OK && ids->failed) status = ctx_no_memory(ctx, 4 * bytes, "ids");
    sbuf_release(&clean);
    return status;
}

cloob_status pipeline_row(cloob_ctx *ctx, const pipeline *t, const char *text, size_t bytes, int64_t length,
                          int32_t *row)
{
    sbuf ids = { 0 };
    int64_t n = 0, most = length - t->prefixes - t->suffixes, at = 0;
    CLOOB_TRY(pipeline_encode(ctx, t, text, bytes, &ids));
    n = (int64_t)(ids.len / sizeof *row);
    if (n > most) n = most > 0 ? most : 0;
    int64_t all = n + t->prefixes + t->suffixes, pads = all < length ? length - all : 0;
    for (int64_t i = 0; t->pad_left && i < pads; i++) row[at++] = t->pad;
    for (int i = 0; i < t->prefixes && at < length; i++) row[at++] = t->prefix[i];
    if (n) memcpy(row + at, ids.data, (size_t)n * sizeof *row), at += n;
    for (int i = 0; i < t->suffixes && at < length; i++) row[at++] = t->suffix[i];
    while (at < length) row[at++] = t->pad;
    for (int64_t i = 0; t->strip_sep >= 0 && i < length; i++)
        if (row[i] == t->strip_sep) row[i] = 0;
    sbuf_release(&ids);
    return CLOOB_OK;
}
