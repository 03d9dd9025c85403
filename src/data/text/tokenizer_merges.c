/* Reads and writes merges files.
 *
 * A merges file has CLIP's form: a first line with "#version", then two symbols per line, in which a byte is a
 * printable character and "</w>" ends a word. CLIP uses the first 48,894 lines of its longer file; cloob does the same
 * with files of other programs. The first line of cloob's own files has the number of merges and how texts are
 * cleaned. */
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/text/unicode.h"
#include "data/text/tokenizer_impl.h"
#include "data/text/tokenizer.h"

typedef struct reader {
    cloob_ctx *ctx;
    const char *name, *at, *end;
    int64_t line;
    tokenizer *t;
    text_table stem, whole; /* tokens inside a word, and at its end */
} reader;

static cloob_status bad(reader *r, const char *why)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: line %lld: %s", r->name, (long long)r->line, why);
}

/* ---- symbols --------------------------------------------------------------------------------------- */

/* The byte that a character of a merges file encodes; -1: none. */
static int byte_of_code(const tokenizer *t, uint32_t code)
{
    for (int b = 0; code >= BYTES && b < BYTES; b++)
        if ((uint32_t)(BYTES + t->byte_id[b] - t->byte_id[0]) == code && t->byte_id[b] >= t->byte_id[0]) return b;
    return code < BYTES && t->byte_id[code] < t->byte_id[0] ? (int)code : -1;
}

static cloob_status read_symbol(reader *r, const char *text, size_t n, int32_t *id)
{
    char raw[TOKEN_LIMIT];
    size_t bytes = 0;
    bool ends = n > 4 && memcmp(text + n - 4, "</w>", 4) == 0;
    for (size_t i = 0, end = ends ? n - 4 : n; i < end;) {
        uint32_t code;
        int used = utf8_decode(text + i, end - i, &code), byte = used ? byte_of_code(r->t, code) : -1;
        if (byte < 0) return bad(r, "a character that encodes no byte");
        if (bytes == sizeof raw) return bad(r, "a symbol that is too long");
        raw[bytes++] = (char)byte;
        i += (size_t)used;
    }
    *id = text_table_find(ends ? &r->whole : &r->stem, r->t, raw, bytes);
    return *id >= 0 ? CLOOB_OK : bad(r, "a symbol that no earlier line makes");
}

static cloob_status add_token(reader *r, int32_t id)
{
    const char *text = r->t->text.data + r->t->text_at[id];
    size_t bytes = r->t->text_at[id + 1] - r->t->text_at[id];
    text_table *table = r->t->ends[id] ? &r->whole : &r->stem;
    if (id >= FIRST_MERGE && text_table_find(table, r->t, text, bytes) >= 0)
        return bad(r, "a token that an earlier line makes");
    return text_table_add(table, text, bytes, id) ? CLOOB_OK : ctx_no_memory(r->ctx, bytes, "a vocabulary");
}

/* ---- lines ----------------------------------------------------------------------------------------- */

static bool next_line(reader *r, const char **line, size_t *n)
{
    if (r->at >= r->end) return false;
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    *line = r->at;
    *n = (size_t)((stop ? stop : r->end) - r->at);
    r->at = stop ? stop + 1 : r->end;
    if (*n && (*line)[*n - 1] == '\r') --*n;
    r->line++;
    return true;
}

static cloob_status read_merge(reader *r, const char *line, size_t n)
{
    const char *gap = memchr(line, ' ', n);
    int32_t left, right, id;
    if (!gap || gap == line || gap == line + n - 1 || memchr(gap + 1, ' ', n - (size_t)(gap + 1 - line)))
        return bad(r, "not two symbols with a space between");
    CLOOB_TRY(read_symbol(r, line, (size_t)(gap - line), &left));
    CLOOB_TRY(read_symbol(r, gap + 1, n - (size_t)(gap + 1 - line), &right));
    if (r->t->ends[left]) return bad(r, "the first symbol ends a word, so nothing can follow it");
    cloob_status s = token_merge(r->ctx, r->t, left, right, &id);
    if (s != CLOOB_OK) return ctx_wrap(r->ctx, s, "%s: line %lld", r->name, (long long)r->line);
    return add_token(r, id);
}

/* FNV-1a of everything after the first line. */
static uint64_t body_hash(const char *text, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001B3u;
    return h;
}

typedef struct header {
    bool clip;      /* OpenAI's file, which has more lines than are used */
    int64_t merges; /* -1: not said */
    clean_mode clean;
    int64_t pad;
    bool smaller, pad_special;
} header;

static cloob_status read_header(reader *r, header *h)
{
    const char *line;
    size_t n;
    char text[160] = "";
    *h = (header){ .merges = -1 };
    if (!next_line(r, &line, &n))
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: empty; a merges file is needed", r->name);
    memcpy(text, line, n < sizeof text - 1 ? n : sizeof text - 1);
    if (!strstr(text, "#version"))
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: the first line has no \"#version\": not a merges file", r->name);
    h->clip = strstr(text, "bpe_simple_vocab_16e6") != NULL;
    const char *ours = strstr(text, " cloob merges=");
    if (!ours) return CLOOB_OK;
    h->merges = strtoll(ours + strlen(" cloob merges="), NULL, 10);
    h->clean = strstr(ours, " clean=basic") ? CLEAN_BASIC : strstr(ours, " clean=hf") ? CLEAN_HF : CLEAN_FULL;
    if (h->merges < 0 || h->merges > VOCAB_LIMIT) return bad(r, "a number of merges out of range");
    const char *pad = strstr(ours, " pad=");
    h->pad = pad ? strtoll(pad + strlen(" pad="), NULL, 10) : 0;
    h->pad_special = strstr(ours, " special") != NULL;
    h->smaller = strstr(ours, " smaller") != NULL;
    if (h->pad < 0 || h->pad >= FIRST_MERGE + h->merges + 2) return bad(r, "a padding token out of range");
    const char *hash = strstr(ours, " hash=");
    if (hash && strtoull(hash + strlen(" hash="), NULL, 16) != body_hash(r->at, (size_t)(r->end - r->at)))
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: damaged or cut short: its hash is not the one in the first line",
                        r->name);
    return CLOOB_OK;
}

static cloob_status read_merges(reader *r)
{
    const char *line;
    size_t n;
    header h;
    CLOOB_TRY(read_header(r, &h));
    r->t->clean = h.clean;
    r->t->pad = (int32_t)h.pad;
    r->t->smaller = h.smaller;
    r->t->pad_special = h.pad_special;
    int64_t limit = h.merges >= 0 ? h.merges : CLIP_MERGES;
    for (int32_t id = 0; id < FIRST_MERGE; id++) CLOOB_TRY(add_token(r, id));
    while (r->t->merges < limit && next_line(r, &line, &n)) {
        if (n == 0 && r->at == r->end) break; /* a last empty line */
        CLOOB_TRY(read_merge(r, line, n));
    }
    int64_t want = h.clip ? CLIP_MERGES : h.merges;
    if (want >= 0 && r->t->merges < want)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: cut short: %d of %lld merges; get the file again", r->name,
                        r->t->merges, (long long)want);
    if (h.merges >= 0 && r->at != r->end) return bad(r, "text after the last merge");
    return token_finish(r->ctx, r->t);
}

/* ---- the interface --------------------------------------------------------------------------------- */

cloob_status tokenizer_open_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out)
{
    reader r = { .ctx = ctx, .name = name, .at = text, .end = text + size };
    *out = NULL;
    if (pieces_is_text(text, size)) {
        pieces p;
        cloob_status read = pieces_read_text(ctx, text, size, name, &p);
        if (read == CLOOB_OK) return tokenizer_of_pieces(ctx, &p, out);
        pieces_release(&p);
        return read;
    }
    if (pipeline_is_text(text, size)) {
        pipeline *pipe;
        CLOOB_TRY(pipeline_read_text(ctx, text, size, name, &pipe));
        return tokenizer_of_pipeline(ctx, pipe, out);
    }
    CLOOB_TRY(token_create(ctx, &r.t));
    cloob_status status = read_merges(&r);
    free(r.stem.slot);
    free(r.whole.slot);
    if (status != CLOOB_OK) tokenizer_close(r.t);
    else *out = r.t;
    return status;
}

void tokenizer_save(const tokenizer *t, sbuf *out)
{
    sbuf body = { 0 };
    if (t->pieces) {
        pieces_save(t->pieces, out);
        return;
    }
    if (t->pipe) {
        pipeline_save(t->pipe, out);
        return;
    }
    for (int32_t m = 0; m < t->merges; m++) {
        if (m) sbuf_putc(&body, '\n');
        token_put_symbols(t, t->part[m][0], &body);
        sbuf_putc(&body, ' ');
        token_put_symbols(t, t->part[m][1], &body);
    }
    sbuf_printf(out, "#version: 0.2 cloob merges=%d clean=%s hash=%016llx", t->merges, text_clean_name(t->clean),
                (unsigned long long)body_hash(body.data, body.len));
    if (t->pad || t->pad_special) sbuf_printf(out, " pad=%d%s", t->pad, t->pad_special ? " special" : "");
    sbuf_puts(out, t->smaller ? " smaller\n" : "\n");
    if (body.len) sbuf_add(out, body.data, body.len);
    out->failed |= body.failed;
    sbuf_release(&body);
}
