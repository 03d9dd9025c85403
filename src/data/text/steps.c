/* The steps of a tokenizer: normalizers change a text, pre-tokenizers split it into words. */
#include <string.h>
#include <stdlib.h>

#include "core/text.h"
#include "data/text/tokenizer_impl.h"

bool steps_is_space(uint32_t c) { return uni_is_space(c) && !(c >= 0x1C && c <= 0x1F); }

uint32_t steps_code_at(const char *text, size_t n, size_t *used)
{
    uint32_t c = 0xFFFD;
    int k = utf8_decode(text, n, &c);
    *used = k > 0 ? (size_t)k : 1;
    return k > 0 ? c : 0xFFFD;
}

bool steps_add(tokenizer *t, step s)
{
    if (t->steps == TOKENIZER_STEPS) return false;
    t->step[t->steps++] = s;
    if (s.kind < STEP_SPLIT_SPACES) t->normalizers++;
    return true;
}

/* ---- normalizers --------------------------------------------------------------------------------- */

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Applies a step that maps single code points, to zero or more code points. */
static void change(step_kind kind, uint32_t c, codes *out)
{
    bool gap = c == '\t' || c == '\n' || c == '\r';
    switch (kind) {
    case STEP_LOWER: uni_lower(&c, 1, out); break;
    case STEP_ACCENTS:
        if (!uni_is_mark(c)) codes_add(out, c);
        break;
    case STEP_BERT_CLEAN:
        if (c && c != 0xFFFD && (gap || !uni_is_other(c))) codes_add(out, gap || steps_is_space(c) ? ' ' : c);
        break;
    default: /* STEP_BERT_CHINESE */
        if (is_chinese(c)) codes_add(out, ' ');
        codes_add(out, c);
        if (is_chinese(c)) codes_add(out, ' ');
    }
}

/* Fast path for ASCII: it is in every normal form and easy to lower-case. */
static bool change_ascii(const step *s, sbuf *text)
{
    for (size_t i = 0; i < text->len; i++)
        if ((unsigned char)text->data[i] >= 0x80) return false;
    for (size_t i = 0; i < text->len && s->kind == STEP_LOWER; i++)
        if (text->data[i] >= 'A' && text->data[i] <= 'Z') text->data[i] += 'a' - 'A';
    return true;
}

static void change_codes(const step *s, sbuf *text)
{
    codes in = { 0 }, out = { 0 };
    if (s->kind <= STEP_LOWER && change_ascii(s, text)) return;
    codes_decode(text->data ? text->data : "", text->len, &in);
    if (s->kind == STEP_NFC) text_nfc_of_unicode_9(&in);
    else if (s->kind == STEP_NFD || s->kind == STEP_NFKD) uni_nfd(&in, s->kind == STEP_NFKD);
    else if (s->kind == STEP_NFKC) uni_nfd(&in, true), uni_nfc(&in);
    else {
        for (size_t i = 0; i < in.n; i++) change(s->kind, in.at[i], &out);
        codes_replace(&in, &out);
    }
    text->len = 0;
    codes_encode(&in, text);
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
            uint32_t c = steps_code_at(in->data + end, in->len - end, &used);
            if (s->least > 1 ? c != ' ' : !steps_is_space(c)) break;
            end += used;
            run++;
        }
        if (run >= s->least && run) sbuf_puts(out, s->to);
        else if (run) sbuf_add(out, in->data + i, end - i);
        i = end;
        if (run) continue;
        steps_code_at(in->data + i, in->len - i, &used);
        sbuf_add(out, in->data + i, used);
        i += used;
    }
}

static void strip(const step *s, const sbuf *in, sbuf *out)
{
    size_t begin = 0, end = 0, used;
    bool seen = false;
    for (size_t i = 0; i < in->len; i += used) {
        bool space = steps_is_space(steps_code_at(in->data + i, in->len - i, &used));
        if (space && !seen && s->left) begin = i + used;
        seen |= !space;
        if (!space || !s->right) end = i + used;
    }
    if (end > begin) sbuf_add(out, in->data + begin, end - begin);
}

void steps_normalise(const tokenizer *t, sbuf *text)
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
        case STEP_SIGLIP: text_plain_words(text); continue;
        default: change_codes(s, text); continue;
        }
        out.failed |= text->failed;
        sbuf_release(text);
        *text = out;
    }
}

/* ---- byte-level characters ------------------------------------------------------------------------ */

static bool is_printable(int byte) { return (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD); }

/* Number of unprintable bytes below this one: those below ' ', and 0x7F to 0xA0. */
static int odd_before(int byte) { return byte <= ' ' ? byte : byte <= 0xA0 ? byte - 0x7F + 0x21 : 0x43; }

int byte_spell(unsigned char byte, char out[2])
{
    return utf8_encode(is_printable(byte) ? byte : (uint32_t)(BYTES + odd_before(byte)), out);
}

void byte_unspell(const char *text, size_t n, sbuf *out)
{
    for (size_t i = 0, used; i < n; i += used) {
        uint32_t code = steps_code_at(text + i, n - i, &used), odd = code - BYTES;
        if (code < BYTES && is_printable((int)code)) sbuf_putc(out, (char)code);
        else if (code >= BYTES && odd < 0x44)
            sbuf_putc(out, (char)(odd <= ' ' ? odd : odd < 0x43 ? odd - 0x21 + 0x7F : 0xAD));
    }
}

/* ---- words of CLIP's tokenizer --------------------------------------------------------------------- */

/* Splits cleaned text into words by CLIP's regular expression: special tokens, English contractions, runs of letters,
 * single digits, runs of other characters except white space; the first match is used. */
typedef enum char_kind { SPACE, LETTER, NUMBER, OTHER } char_kind;

static const uint8_t ascii_kind[128] = {
    3, 3, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, /* controls */
    0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, /* digits */
    3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, /* A .. Z */
    3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, /* a .. z */
};

/* The kind of the character at text[0], and its length in bytes. */
static char_kind kind_at(bool hf, const char *text, size_t n, size_t *length)
{
    uint32_t c;
    *length = 1;
    if ((unsigned char)text[0] < 0x80) return (char_kind)ascii_kind[(unsigned char)text[0]];
    int used = utf8_decode(text, n, &c);
    if (!used) return OTHER;
    *length = (size_t)used;
    if (c == 0x345 && !hf)
        return SPACE; /* the combining iota below case-folds to a letter, so it matches none of the classes of CLIP's
                       * expression */
    return uni_is_letter(c) ? LETTER : uni_is_number(c) ? NUMBER : uni_is_space(c) ? SPACE : OTHER;
}

/* Number of bytes of text that spell `name` without case; 0 if they do not. The long s matches s, as in case
 * folding. */
static size_t spells(const char *text, size_t n, const char *name)
{
    size_t i = 0;
    for (; *name; name++) {
        if (i < n && text[i] == *name) i++;
        else if (*name == 's' && n - i >= 2 && (unsigned char)text[i] == 0xC5 && (unsigned char)text[i + 1] == 0xBF)
            i += 2;
        else return 0;
    }
    return i;
}

static size_t special(const char *text, size_t n, word_kind *k)
{
    static const char *const names[] = { "<start_of_text>", "<end_of_text>" };
    for (int i = 0; i < 2; i++) {
        size_t used = spells(text, n, names[i]);
        if (!used) continue;
        if (used == strlen(names[i])) *k = i == 0 ? WORD_START : WORD_END;
        return used;
    }
    return 0;
}

static const char *const endings[] = { "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" };
enum { ENDINGS = sizeof endings / sizeof *endings };

static size_t contraction(bool hf, const char *text, size_t n)
{
    for (size_t i = 0; i < ENDINGS; i++) {
        size_t used = spells(text, n, endings[i]);
        if (used && (!hf || used == strlen(endings[i]))) return used; /* Hugging Face: not with a long s */
    }
    return 0;
}

static size_t run_length(bool hf, const char *text, size_t n, char_kind k)
{
    size_t i = 0, length;
    while (i < n && (unsigned char)text[i] < 0x80 && ascii_kind[(unsigned char)text[i]] == k) i++;
    while (i < n && kind_at(hf, text + i, n - i, &length) == k) i += length;
    return i;
}

/* Whether "|>" at i ends the spelling of a special token that started a word: in transformers' expression, a word also
 * ends here. */
static bool ends_special(const char *text, size_t i)
{
    static const char *const heads[] = { "<|startoftext", "<|endoftext" };
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(heads[k]), length, before;
        if (i < n || memcmp(text + i - n, heads[k], n) != 0) continue;
        if (i == n || (i - n >= 2 && memcmp(text + i - n - 2, "|>", 2) == 0 && ends_special(text, i - n - 2)))
            return true;
        for (before = i - n - 1; before && ((unsigned char)text[before] & 0xC0) == 0x80;) before--;
        return kind_at(true, text + before, i - n - before, &length) != OTHER;
    }
    return false;
}

bool words_next(bool hf, const char *text, size_t bytes, size_t *pos, clip_word *w)
{
    size_t i = *pos, used = 0, length = 1;
    char_kind k = SPACE;
    while (i < bytes && (k = kind_at(hf, text + i, bytes - i, &length)) == SPACE) i += length;
    if (i >= bytes) return false;
    w->kind = WORD_PLAIN;
    if (text[i] == '<' && !hf) used = special(text + i, bytes - i, &w->kind);
    else if (text[i] == '\'') used = contraction(hf, text + i, bytes - i);
    else if (hf && text[i] == '|' && i + 1 < bytes && text[i + 1] == '>' && ends_special(text, i)) used = 2;
    if (!used) used = k == NUMBER ? length : run_length(hf, text + i, bytes - i, k);
    w->at = text + i;
    w->bytes = used;
    *pos = i + used;
    return true;
}

/* ---- pre-tokenizers: each step passes its words to the next ------------------------------------------- */

static cloob_status cut(const encoder *c, int at, const char *word, size_t bytes, bool first);

static cloob_status split_spaces(const encoder *c, int at, const char *text, size_t n, bool first)
{
    size_t begin = 0, used;
    for (size_t i = 0; i < n; i += used)
        if (steps_is_space(steps_code_at(text + i, n - i, &used))) {
            if (i > begin) CLOOB_TRY(cut(c, at, text + begin, i - begin, first && !begin));
            begin = i + used;
        }
    return n > begin ? cut(c, at, text + begin, n - begin, first && !begin) : CLOOB_OK;
}

static bool is_bert_punctuation(uint32_t c) { return c < 0x80 ? text_is_punctuation((char)c) : uni_is_punctuation(c); }

static cloob_status split_bert(const encoder *c, int at, const char *text, size_t n)
{
    size_t begin = 0, used;
    for (size_t i = 0; i < n; i += used) {
        uint32_t code = steps_code_at(text + i, n - i, &used);
        bool space = steps_is_space(code), alone = is_bert_punctuation(code);
        if (!space && !alone) continue;
        if (i > begin) CLOOB_TRY(cut(c, at, text + begin, i - begin, false));
        if (alone) CLOOB_TRY(cut(c, at, text + i, used, false));
        begin = i + used;
    }
    return n > begin ? cut(c, at, text + begin, n - begin, false) : CLOOB_OK;
}

/* Replaces spaces by U+2581, each of which starts a word. */
static cloob_status split_metaspace(const encoder *c, const step *s, int at, const char *text, size_t n, bool first)
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

/* Character classes of GPT-2's regular expression. */
static int byte_kind(uint32_t c) { return steps_is_space(c) ? 0 : uni_is_letter(c) ? 1 : uni_is_number(c) ? 2 : 3; }

/* Bytes of the next word by GPT-2's expression:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2_word(const char *text, size_t n)
{
    size_t used, last = 0, i = 0;
    for (size_t k = 0; k < ENDINGS; k++)
        if (n >= strlen(endings[k]) && memcmp(text, endings[k], strlen(endings[k])) == 0) return strlen(endings[k]);
    size_t start = text[0] == ' ' && n > 1 && byte_kind(steps_code_at(text + 1, n - 1, &used)) ? 1 : 0;
    int kind = byte_kind(steps_code_at(text + start, n - start, &used));
    for (i = start; i < n && byte_kind(steps_code_at(text + i, n - i, &used)) == kind; i += used) last = i;
    if (kind == 0 && i < n && last > 0) return last; /* the last space belongs to the next word */
    return i;
}

/* Replaces the bytes of a word by their characters, and adds the end-of-word mark if the vocabulary has it. */
static cloob_status put_bytes(const encoder *c, int at, const char *word, size_t n)
{
    static const char mark[] = "</w>";
    char small[256], *spelled = 2 * n + sizeof mark <= sizeof small ? small : malloc(2 * n + sizeof mark);
    size_t bytes = 0;
    if (!spelled) return ctx_no_memory(c->ctx, 2 * n, "encoding a text");
    for (size_t i = 0; i < n; i++) bytes += (size_t)byte_spell((unsigned char)word[i], spelled + bytes);
    if (c->t->p.word_ends) memcpy(spelled + bytes, mark, strlen(mark)), bytes += strlen(mark);
    cloob_status status = cut(c, at, spelled, bytes, false);
    if (spelled != small) free(spelled);
    return status;
}

static cloob_status split_bytes(const encoder *c, const step *s, int at, const char *text, size_t n)
{
    sbuf all = { 0 };
    cloob_status status = CLOOB_OK;
    if (!s->right && !s->left) return put_bytes(c, at, text, n);
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

static cloob_status split_clip(const encoder *c, const step *s, int at, const char *text, size_t n)
{
    clip_word w;
    for (size_t pos = 0; words_next(s->left, text, n, &pos, &w);) {
        if (w.kind == WORD_PLAIN) CLOOB_TRY(cut(c, at, w.at, w.bytes, false));
        else sbuf_add(c->ids, w.kind == WORD_START ? c->t->prefix : c->t->suffix, sizeof *c->t->prefix);
    }
    return CLOOB_OK;
}

static cloob_status split_after_space(const encoder *c, const step *s, int at, const char *text, size_t n)
{
    size_t begin = 0, k = strlen(s->from);
    for (size_t i = 0; k && i + k <= n; i++)
        if (memcmp(text + i, s->from, k) == 0) {
            CLOOB_TRY(cut(c, at, text + begin, i + k - begin, false));
            begin = i + k, i = begin - 1;
        }
    return n > begin ? cut(c, at, text + begin, n - begin, false) : CLOOB_OK;
}

static cloob_status cut(const encoder *c, int at, const char *word, size_t bytes, bool first)
{
    const pieces *p = &c->t->p;
    while (at < c->t->steps && c->t->step[at].kind < STEP_SPLIT_SPACES) at++;
    if (at >= c->t->steps)
        return p->sentencepiece ? pieces_encode(c->ctx, p, word, bytes, c->t->prepare == PREPARE_SIGLIP, c->ids)
                                : pieces_cut(c->ctx, p, word, bytes, c->ids);
    const step *s = &c->t->step[at++];
    switch (s->kind) {
    case STEP_SPLIT_SPACES: return split_spaces(c, at, word, bytes, first);
    case STEP_SPLIT_BERT: return split_bert(c, at, word, bytes);
    case STEP_SPLIT_METASPACE: return split_metaspace(c, s, at, word, bytes, first);
    case STEP_SPLIT_BYTES: return split_bytes(c, s, at, word, bytes);
    case STEP_SPLIT_CLIP: return split_clip(c, s, at, word, bytes);
    default: return split_after_space(c, s, at, word, bytes);
    }
}

cloob_status steps_cut(const encoder *e, const char *text, size_t bytes, bool first)
{
    return cut(e, 0, text, bytes, first);
}
