/* The stages of cleaning, one after the other, over code points. */
#include "data/text/clean.h"

#include "core/text.h"
#include "data/text/repair.h"

/* True when cleaning would only fold white space and lower the case of ASCII. */
static bool is_plain(const char *text, size_t bytes)
{
    const unsigned char *t = (const unsigned char *)text;
    unsigned odd = 0;
    for (size_t i = 0; i < bytes; i++)
        odd |= (unsigned)(t[i] >= 0x7F) | (unsigned)(t[i] == '&') |
               (unsigned)((t[i] < 0x20) & (t[i] != '\n') & (t[i] != '\t') & (t[i] != '\r'));
    return !odd;
}

/* How many bytes at t a decoder gives up on at once: a sequence that broke off, without the byte that broke
 * it. */
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

static void decode(const char *text, size_t bytes, codes *out)
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
    out.failed |= text->failed;
    codes_release(text);
    *text = out;
}

/* One space between words, none at the ends. */
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

static void put_utf8(const codes *text, sbuf *out)
{
    char bytes[256];
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++) {
        n += (size_t)utf8_encode(text->at[i], bytes + n);
        if (n > sizeof bytes - 4) sbuf_add(out, bytes, n), n = 0;
    }
    sbuf_add(out, bytes, n);
}

void text_put_valid(const char *text, size_t bytes, sbuf *out)
{
    codes t = { 0 };
    decode(text, bytes, &t);
    put_utf8(&t, out);
    out->failed |= t.failed;
    codes_release(&t);
}

const char *text_clean_name(cloob_clean mode)
{
    return mode == CLOOB_CLEAN_BASIC ? "basic" : mode == CLOOB_CLEAN_HF ? "hf" : "full";
}

/* No sigma is a final one, as every character is lowered alone. */
static void lower_each(const codes *text, codes *out)
{
    for (size_t i = 0; i < text->n; i++) uni_lower(text->at + i, 1, out);
}

static cloob_status finish(cloob_ctx *ctx, codes *t, size_t bytes, sbuf *out)
{
    bool failed = t->failed;
    if (!failed) put_utf8(t, out);
    codes_release(t);
    return failed || out->failed ? ctx_no_memory(ctx, bytes * 8, "a caption") : CLOOB_OK;
}

static void clean(cloob_clean mode, const char *text, size_t bytes, codes *t)
{
    decode(text, bytes, t);
    if (mode == CLOOB_CLEAN_FULL) text_repair(t);
    if (mode == CLOOB_CLEAN_HF) uni_nfc(t);
    else {
        unescape(t);
        unescape(t);
        fold_space(t);
    }
}

cloob_status text_clean_cased(cloob_ctx *ctx, cloob_clean mode, const char *text, size_t bytes, sbuf *out)
{
    codes t = { 0 };
    clean(mode, text, bytes, &t);
    return finish(ctx, &t, bytes, out);
}

cloob_status text_lower(cloob_ctx *ctx, sbuf *text)
{
    codes t = { 0 }, low = { 0 };
    decode(text->data ? text->data : "", text->len, &t);
    uni_lower(t.at, t.n, &low);
    low.failed |= t.failed;
    codes_release(&t);
    text->len = 0;
    return finish(ctx, &low, text->cap, text);
}

cloob_status text_clean(cloob_ctx *ctx, cloob_clean mode, const char *text, size_t bytes, sbuf *out)
{
    codes t = { 0 }, low = { 0 };
    clean(mode, text, bytes, &t);
    if (mode == CLOOB_CLEAN_HF) lower_each(&t, &low);
    else uni_lower(t.at, t.n, &low);
    low.failed |= t.failed;
    codes_release(&t);
    return finish(ctx, &low, bytes, out);
}

cloob_status text_clean_words(cloob_ctx *ctx, cloob_clean mode, const char *text, size_t bytes, sbuf *out)
{
    if (!is_plain(text, bytes)) return text_clean(ctx, mode, text, bytes, out);
    size_t start = out->len;
    sbuf_add(out, text, bytes);
    if (out->failed) return ctx_no_memory(ctx, bytes, "a caption");
    for (size_t i = start; i < start + bytes; i++)
        out->data[i] = (char)(out->data[i] | ((out->data[i] >= 'A') & (out->data[i] <= 'Z')) << 5);
    return CLOOB_OK;
}
