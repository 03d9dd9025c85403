/* CLIP's BPE: reads and writes merges files.
 *
 * A merges file starts with a line "#version", followed by two symbols per line; bytes are written as printable
 * characters, and "</w>" ends a word. CLIP uses only the first 48,894 lines of its file, and cloob does so for files of
 * other programs. The first line of cloob's own files has the number of merges and the cleaning mode. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/text.h"
#include "data/text/tokenizer_impl.h"

enum { TOKEN_LIMIT = 1024 }; /* bytes of one token, in its printable form */

static const char MARK[] = "</w>", *const names[] = { "<|startoftext|>", "<|endoftext|>" };
enum { MARK_BYTES = sizeof MARK - 1 };

static bool ends_word(const char *symbol, size_t n)
{
    return n > MARK_BYTES && memcmp(symbol + n - MARK_BYTES, MARK, MARK_BYTES) == 0;
}

/* ---- building ------------------------------------------------------------------------------------ */

/* Adds the pieces of single bytes: printable bytes in order of value, then the others. The printable form of the former
 * is the byte itself. */
static bool add_bytes(pieces *p, bool ends)
{
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < BYTES; b++) {
            char text[2 + MARK_BYTES];
            uint32_t code;
            size_t n = (size_t)byte_spell((unsigned char)b, text);
            utf8_decode(text, n, &code);
            if ((code < BYTES) != (pass == 0)) continue;
            if (ends) memcpy(text + n, MARK, MARK_BYTES), n += MARK_BYTES;
            if (!pieces_add(p, text, n, 0, PIECE_NORMAL)) return false;
        }
    return true;
}

cloob_status merges_begin(cloob_ctx *ctx, int64_t most, tokenizer **out)
{
    CLOOB_TRY(tokenizer_create(ctx, FORM_MERGES, out));
    tokenizer *t = *out;
    t->p = (pieces){ .model = PIECES_MERGES, .word_ends = true, .no_unknown = true };
    t->added = calloc(3, sizeof *t->added);
    if (t->added && pieces_reserve(&t->p, FIRST_MERGE + most + 2) && add_bytes(&t->p, false) && add_bytes(&t->p, true))
        return CLOOB_OK;
    return tokenizer_or_close(ctx_no_memory(ctx, (size_t)most * sizeof(struct hash_map_entry), "a vocabulary"), out);
}

cloob_status merges_add(cloob_ctx *ctx, tokenizer *t, int32_t left, int32_t right, int32_t *id)
{
    pieces *p = &t->p;
    char text[TOKEN_LIMIT];
    const piece_row *a = &p->piece[left], *b = &p->piece[right];
    size_t n = a->bytes + b->bytes;
    int32_t rank = p->count - FIRST_MERGE;
    if (n > TOKEN_LIMIT)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "merge %d makes a token of %zu bytes; the limit is %d", rank + 1, n,
                        TOKEN_LIMIT);
    memcpy(text, p->text.data + a->at, a->bytes);
    memcpy(text + a->bytes, p->text.data + b->at, b->bytes);
    if (pieces_find(p, text, n) >= 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "an earlier line already makes this token");
    if (rank) sbuf_putc(&t->source, '\n');
    sbuf_add(&t->source, text, a->bytes);
    sbuf_putc(&t->source, ' ');
    sbuf_add(&t->source, text + a->bytes, b->bytes);
    *id = p->count;
    bool added =
        !t->source.failed && pieces_add(p, text, n, 0, PIECE_NORMAL) && pieces_add_pair(p, left, right, rank, *id);
    return added ? CLOOB_OK : ctx_no_memory(ctx, p->text.len, "the texts of a vocabulary");
}

/* Marks the tokens that are obtained by merging their characters. */
static cloob_status mark_words(cloob_ctx *ctx, pieces *p)
{
    sbuf ids = { 0 };
    cloob_status status = CLOOB_OK;
    for (int32_t id = 0; id < p->count && status == CLOOB_OK; id++) {
        const piece_row *e = &p->piece[id];
        const char *text = p->text.data + e->at;
        if (e->type != PIECE_NORMAL || !ends_word(text, e->bytes)) continue;
        ids.len = 0;
        status = pieces_cut(ctx, p, text, e->bytes, &ids);
        p->piece[id].whole = ids.len == sizeof id && memcmp(ids.data, &id, sizeof id) == 0;
    }
    if (ids.failed) status = ctx_no_memory(ctx, sizeof(int32_t), "the words of a vocabulary");
    sbuf_release(&ids);
    return status;
}

cloob_status merges_end(cloob_ctx *ctx, tokenizer *t)
{
    t->prefix[0] = t->p.count, t->suffix[0] = t->p.count + 1;
    t->prefixes = t->suffixes = 1;
    for (int i = 0; i < 2; i++)
        if (!pieces_add(&t->p, names[i], strlen(names[i]), 0, PIECE_CONTROL))
            return ctx_no_memory(ctx, t->p.text.len, "the texts of a vocabulary");
    merges_set_steps(t);
    return mark_words(ctx, &t->p);
}

/* As in transformers: special tokens are found in the original text, and the text between them is normalised. */
void merges_set_steps(tokenizer *t)
{
    bool hf = t->clean == CLEAN_HF;
    t->steps = t->normalizers = 0;
    t->added_count = 0;
    t->prepare = hf ? PREPARE_NOTHING : PREPARE_WORDS;
    if (hf) {
        steps_add(t, (step){ .kind = STEP_NFC });
        steps_add(t, (step){ .kind = STEP_LOWER });
        for (int i = 0; i < 2; i++)
            t->added[t->added_count++] =
                (added_token){ .text = names[i], .bytes = strlen(names[i]), .id = i ? t->suffix[0] : t->prefix[0] };
    }
    if (hf && t->pad_special && t->pad < BYTES && t->p.piece[t->pad].bytes == 1) {
        t->pad_name[0] = t->p.text.data[t->p.piece[t->pad].at];
        t->added[t->added_count++] = (added_token){ .text = t->pad_name, .bytes = 1, .id = t->pad };
    }
    steps_add(t, (step){ .kind = STEP_SPLIT_CLIP, .left = hf });
    steps_add(t, (step){ .kind = STEP_SPLIT_BYTES });
}

/* ---- reading ------------------------------------------------------------------------------------- */

typedef struct reader {
    cloob_ctx *ctx;
    const char *name, *at, *end;
    int64_t line;
    tokenizer *t;
} reader;

static cloob_status bad(reader *r, const char *why)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: line %lld: %s", r->name, (long long)r->line, why);
}

static bool next_line(reader *r, const char **line, size_t *n)
{
    r->line++;
    return text_line(&r->at, r->end, line, n);
}

static cloob_status read_merge(reader *r, const char *line, size_t n)
{
    const char *gap = memchr(line, ' ', n), *second = gap ? gap + 1 : NULL;
    size_t first = gap ? (size_t)(gap - line) : 0, rest = gap ? n - first - 1 : 0;
    if (!first || !rest || memchr(second, ' ', rest)) return bad(r, "not two symbols separated by a space");
    int32_t left = pieces_find(&r->t->p, line, first), right = pieces_find(&r->t->p, second, rest), id;
    if (left < 0 || right < 0) return bad(r, "a symbol that no earlier line makes, or an invalid character");
    if (ends_word(line, first)) return bad(r, "the first symbol ends a word, so nothing can follow it");
    cloob_status s = merges_add(r->ctx, r->t, left, right, &id);
    return s == CLOOB_OK ? s : ctx_wrap(r->ctx, s, "%s: line %lld", r->name, (long long)r->line);
}

typedef struct header {
    bool clip;      /* OpenAI's file, which has more lines than CLIP uses */
    int64_t merges; /* -1: not specified */
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
    if (hash && strtoull(hash + strlen(" hash="), NULL, 16) != fnv_add(FNV_START, r->at, (size_t)(r->end - r->at)))
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT,
                        "%s: damaged or cut short (its hash differs from the first line's); get the file again",
                        r->name);
    return CLOOB_OK;
}

static int64_t count_lines(const char *at, const char *end)
{
    int64_t n = 1;
    for (; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++) n++;
    return n;
}

static cloob_status read_lines(reader *r, const header *h, int64_t limit)
{
    const char *line;
    size_t n;
    int64_t merges = 0, want = h->merges >= 0 ? h->merges : h->clip ? CLIP_MERGES : -1;
    for (; merges < limit && next_line(r, &line, &n); merges++) {
        if (n == 0 && r->at == r->end) break; /* an empty last line */
        CLOOB_TRY(read_merge(r, line, n));
    }
    if (want >= 0 && merges < want)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: cut short (%lld of %lld merges); get the file again", r->name,
                        (long long)merges, (long long)want);
    if (h->merges >= 0 && r->at != r->end) return bad(r, "text after the last merge");
    r->t->clean = h->clean;
    r->t->pad = (int32_t)h->pad;
    r->t->smaller = h->smaller;
    r->t->pad_special = h->pad_special;
    return merges_end(r->ctx, r->t);
}

cloob_status merges_read(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out)
{
    reader r = { .ctx = ctx, .name = name, .at = text, .end = text + size };
    header h;
    CLOOB_TRY(read_header(&r, &h));
    int64_t lines = count_lines(r.at, r.end), limit = h.merges >= 0 ? h.merges : CLIP_MERGES;
    CLOOB_TRY(merges_begin(ctx, lines < limit ? lines : limit, out));
    r.t = *out;
    return tokenizer_or_close(read_lines(&r, &h, limit), out);
}

/* ---- writing ------------------------------------------------------------------------------------- */

void merges_save(const tokenizer *t, sbuf *out)
{
    const char *body = t->source.data ? t->source.data : "";
    sbuf_printf(out, "#version: 0.2 cloob merges=%d clean=%s hash=%016llx", t->p.count - FIRST_MERGE - 2,
                text_clean_name(t->clean), (unsigned long long)fnv_add(FNV_START, body, t->source.len));
    if (t->pad || t->pad_special) sbuf_printf(out, " pad=%d%s", t->pad, t->pad_special ? " special" : "");
    sbuf_puts(out, t->smaller ? " smaller\n" : "\n");
    sbuf_add(out, body, t->source.len);
}
