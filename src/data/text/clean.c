/* The stages of text cleaning, applied to code points. */
#include "data/text/clean.h"

#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/text/unicode.h"
#include "data/text/tokenizer.h"

/* ---- code points in a growing array ------------------------------------------------------------ */

static bool codes_reserve(codes *c, size_t more)
{
    if (c->failed) return false;
    if (c->cap - c->n >= more) return true;
    size_t cap = c->cap + c->cap / 2 + more + 64;
    uint32_t *at = cap > SIZE_MAX / sizeof *at ? NULL : realloc(c->at, cap * sizeof *at);
    if (!at) {
        c->failed = true;
        return false;
    }
    c->at = at;
    c->cap = cap;
    return true;
}

void codes_add(codes *c, uint32_t code)
{
    if (c->n < c->cap || codes_reserve(c, 1)) c->at[c->n++] = code;
}

void codes_add_all(codes *c, const uint32_t *code, size_t n)
{
    if (!n || !codes_reserve(c, n)) return;
    memcpy(c->at + c->n, code, n * sizeof *code);
    c->n += n;
}

void codes_release(codes *c)
{
    free(c->at);
    *c = (codes){ 0 };
}

void codes_replace(codes *c, codes *by)
{
    by->failed |= c->failed;
    codes_release(c);
    *c = *by;
    *by = (codes){ 0 };
}

bool uni_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* ---- cleaning ---------------------------------------------------------------------------------- */

/* Whether cleaning the text only means folding white space and lower-casing ASCII. */
static bool is_plain(const char *text, size_t bytes)
{
    const unsigned char *t = (const unsigned char *)text;
    unsigned odd = 0;
    for (size_t i = 0; i < bytes; i++)
        odd |= (unsigned)(t[i] >= 0x7F) | (unsigned)(t[i] == '&') |
               (unsigned)((t[i] < 0x20) & (t[i] != '\n') & (t[i] != '\t') & (t[i] != '\r'));
    return !odd;
}

/* Number of bytes at t that a decoder replaces by one U+FFFD: the longest prefix of a valid sequence, or one byte. */
static size_t broken_length(const unsigned char *t, size_t n)
{
    size_t want = t[0] >= 0xC2 && t[0] < 0xE0   ? 2
                  : t[0] >= 0xE0 && t[0] < 0xF0 ? 3
                  : t[0] >= 0xF0 && t[0] < 0xF5 ? 4
                                                : 1,
           k = 1;
    unsigned low = t[0] == 0xE0   ? 0xA0
                   : t[0] == 0xF0 ? 0x90
                                  : 0x80,
             high = t[0] == 0xED   ? 0x9F
                    : t[0] == 0xF4 ? 0x8F
                                   : 0xBF;
    for (; k < want && k < n && t[k] >= low && t[k] <= high; k++) low = 0x80, high = 0xBF;
    return k;
}

void codes_decode(const char *text, size_t bytes, codes *out)
{
    for (size_t i = 0; i < bytes;) {
        uint32_t c;
        int n = utf8_decode(text + i, bytes - i, &c);
        codes_add(out, n ? c : 0xFFFD);
        i += n ? (size_t)n : broken_length((const unsigned char *)text + i, bytes - i);
    }
}

static void unescape(codes *text)
{
    codes out = { 0 };
    html_unescape(text->at, text->n, &out);
    codes_replace(text, &out);
}

/* Replaces runs of white space by one space, and removes them at both ends. */
static void fold_space(codes *text)
{
    size_t n = 0;
    bool pending = false;
    for (size_t i = 0; i < text->n; i++) {
        if (uni_is_space(text->at[i])) {
            pending = n > 0;
            continue;
        }
        if (pending) text->at[n++] = ' ', pending = false;
        text->at[n++] = text->at[i];
    }
    text->n = n;
}

void codes_encode(const codes *text, sbuf *out)
{
    char bytes[256];
    size_t n = 0;
    for (size_t i = 0; i < text->n && !text->failed; i++) {
        n += (size_t)utf8_encode(text->at[i], bytes + n);
        if (n > sizeof bytes - 4) sbuf_add(out, bytes, n), n = 0;
    }
    sbuf_add(out, bytes, n);
    out->failed |= text->failed;
}

void text_put_valid(const char *text, size_t bytes, sbuf *out)
{
    codes t = { 0 };
    codes_decode(text, bytes, &t);
    codes_encode(&t, out);
    codes_release(&t);
}

const char *text_clean_name(clean_mode mode)
{
    return mode == CLEAN_BASIC ? "basic" : mode == CLEAN_HF ? "hf" : "full";
}

static void lower(codes *text)
{
    codes low = { 0 };
    uni_lower(text->at, text->n, &low);
    codes_replace(text, &low);
}

static cloob_status finish(cloob_ctx *ctx, codes *t, size_t bytes, sbuf *out)
{
    codes_encode(t, out);
    codes_release(t);
    return out->failed ? ctx_no_memory(ctx, bytes * 8, "a caption") : CLOOB_OK;
}

/* Whether c is a combining mark added after Unicode 9, or the second character of the only such canonical pair. */
static bool is_mark_after_unicode_9(uint32_t c)
{
    static const uint32_t range[][2] = {
        { 0x7fd, 0x7fd },     { 0x898, 0x89f },     { 0x8ca, 0x8d3 },     { 0x9fe, 0x9fe },     { 0xc3c, 0xc3c },
        { 0xd3b, 0xd3c },     { 0xeba, 0xeba },     { 0x1715, 0x1715 },   { 0x1abf, 0x1ace },   { 0x1df6, 0x1dfa },
        { 0xa82c, 0xa82c },   { 0x10d24, 0x10d27 }, { 0x10eab, 0x10eac }, { 0x10efd, 0x10eff }, { 0x10f46, 0x10f50 },
        { 0x10f82, 0x10f85 }, { 0x11070, 0x11070 }, { 0x1133b, 0x1133b }, { 0x1145e, 0x1145e }, { 0x11839, 0x1183a },
        { 0x11930, 0x11930 }, { 0x1193d, 0x1193e }, { 0x11943, 0x11943 }, { 0x119e0, 0x119e0 }, { 0x11a34, 0x11a34 },
        { 0x11a47, 0x11a47 }, { 0x11a99, 0x11a99 }, { 0x11d42, 0x11d42 }, { 0x11d44, 0x11d45 }, { 0x11d97, 0x11d97 },
        { 0x11f41, 0x11f42 }, { 0x16ff0, 0x16ff1 }, { 0x1e08f, 0x1e08f }, { 0x1e130, 0x1e136 }, { 0x1e2ae, 0x1e2ae },
        { 0x1e2ec, 0x1e2ef }, { 0x1e4ec, 0x1e4ef },
    };
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c <= range[i][1]) return c >= range[i][0];
    return false;
}

/* Normal form C as in transformers' tokenizers, which use Unicode 9: marks added later are not reordered, and other
 * marks are not moved across them. */
void text_nfc_of_unicode_9(codes *text)
{
    codes all = { 0 }, part = { 0 };
    for (size_t i = 0; i <= text->n; i++) {
        if (i < text->n && !is_mark_after_unicode_9(text->at[i])) {
            codes_add(&part, text->at[i]);
            continue;
        }
        uni_nfc(&part);
        codes_add_all(&all, part.at, part.n);
        if (i < text->n) codes_add(&all, text->at[i]);
        part.n = 0;
    }
    all.failed |= part.failed;
    codes_release(&part);
    codes_replace(text, &all);
}

static void clean(clean_mode mode, const char *text, size_t bytes, codes *t)
{
    codes_decode(text, bytes, t);
    if (mode == CLEAN_FULL) text_repair(t);
    if (mode == CLEAN_HF) text_nfc_of_unicode_9(t);
    else unescape(t), unescape(t), fold_space(t);
}

cloob_status text_clean_cased(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out)
{
    codes t = { 0 };
    clean(mode, text, bytes, &t);
    return finish(ctx, &t, bytes, out);
}

cloob_status text_clean(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out)
{
    codes t = { 0 };
    clean(mode, text, bytes, &t);
    lower(&t);
    return finish(ctx, &t, bytes, out);
}

cloob_status text_lower(cloob_ctx *ctx, sbuf *text)
{
    codes t = { 0 };
    codes_decode(text->data ? text->data : "", text->len, &t);
    lower(&t);
    text->len = 0;
    return finish(ctx, &t, text->cap, text);
}

bool text_is_punctuation(char c)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
}

void text_plain_words(sbuf *text)
{
    codes t = { 0 };
    size_t n = 0;
    codes_decode(text->data ? text->data : "", text->len, &t);
    lower(&t);
    for (size_t i = 0; i < t.n; i++)
        if (t.at[i] >= 0x80 || !text_is_punctuation((char)t.at[i])) t.at[n++] = t.at[i];
    t.n = n;
    fold_space(&t);
    text->len = 0;
    codes_encode(&t, text);
    codes_release(&t);
}

void text_canonicalize(sbuf *text)
{
    size_t n = 0;
    bool space = true;
    for (size_t i = 0; i < text->len; i++) {
        char c = text->data[i];
        bool gap = c == ' ' || c == '_' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
        if ((text_is_punctuation(c) && !gap) || (gap && space)) continue;
        text->data[n++] = gap ? ' ' : c;
        space = gap;
    }
    if (n && text->data[n - 1] == ' ') n--;
    text->len = n;
}

cloob_status text_clean_words(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out)
{
    if (!is_plain(text, bytes)) return text_clean(ctx, mode, text, bytes, out);
    size_t start = out->len;
    sbuf_add(out, text, bytes);
    if (out->failed) return ctx_no_memory(ctx, bytes, "a caption");
    for (size_t i = start; i < start + bytes; i++)
        out->data[i] = (char)(out->data[i] | ((out->data[i] >= 'A') & (out->data[i] <= 'Z')) << 5);
    return CLOOB_OK;
}
