/* Reads and writes vocabularies: merges files and tokenizer.json.
 *
 * A merges file has CLIP's form: a first line with "#version", then two symbols per line, in which a byte is a
 * printable character and "</w>" ends a word. CLIP uses the first 48,894 lines of its longer file; cloob does the same
 * with files of other programs. The first line of cloob's own files has the number of merges and how texts are
 * cleaned. */
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/text.h"
#include "data/text/unicode.h"
#include "data/text/tokenizer_impl.h"
#include "io/gzip.h"
#include "data/text/tokenizer.h"

enum { FILE_LIMIT = 1 << 26 }; /* bytes of a merges file; CLIP's has 3 MB */

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
    CLOOB_TRY(token_create(ctx, &r.t));
    cloob_status status = read_merges(&r);
    free(r.stem.slot);
    free(r.whole.slot);
    if (status != CLOOB_OK) tokenizer_close(r.t);
    else *out = r.t;
    return status;
}

cloob_status tokenizer_open(cloob_ctx *ctx, const char *path, tokenizer **out)
{
    file_bytes file;
    sbuf plain = { 0 };
    *out = NULL;
    if (!uni_complete())
        ctx_log(ctx, CLOOB_LOG_WARN, "built without utf8proc: ids of texts beyond ASCII may differ from CLIP's");
    CLOOB_TRY(file_read(ctx, path, FILE_LIMIT, &file));
    cloob_status status = CLOOB_OK;
    if (pieces_is_model(file.data, file.size)) {
        pieces p;
        status = pieces_read_model(ctx, file.data, file.size, path, &p);
        if (status == CLOOB_OK) status = tokenizer_of_pieces(ctx, &p, out);
        else pieces_release(&p);
    } else if (file.size && file.data[0] == '{' && !pieces_is_text((const char *)file.data, file.size)) {
        status = tokenizer_read_json(ctx, (const char *)file.data, file.size, path, out);
    } else if (!gzip_is(file.data, file.size)) {
        status = tokenizer_open_text(ctx, file.data, file.size, path, out);
    } else {
        status = gzip_expand(ctx, file.data, file.size, FILE_LIMIT, path, &plain);
        if (status == CLOOB_OK) status = tokenizer_open_text(ctx, plain.data ? plain.data : "", plain.len, path, out);
    }
    sbuf_release(&plain);
    file_bytes_release(&file);
    return status;
}

void tokenizer_save(const tokenizer *t, sbuf *out)
{
    sbuf body = { 0 };
    if (t->pieces) {
        pieces_save(t->pieces, out);
        return;
    }
    for (int32_t m = 0; m < t->merges; m++) {
        if (m) sbuf_putc(&body, '\n');
        token_put_symbols(t, t->part[m][0], &body);
        sbuf_putc(&body, ' ');
        token_put_symbols(t, t->part[m][1], &body);
    }
    sbuf_printf(out, "#version: 0.2 cloob merges=%d clean=%s hash=%016llx\n", t->merges, text_clean_name(t->clean),
                (unsigned long long)body_hash(body.data, body.len));
    if (body.len) sbuf_add(out, body.data, body.len);
    out->failed |= body.failed;
    sbuf_release(&body);
}

/* One file of a folder; an unknown kind leaves *out NULL. */
static cloob_status open_neighbour(cloob_ctx *ctx, const char *path, int64_t vocab, tokenizer **out)
{
    cloob_status status = tokenizer_open(ctx, path, out);
    if (status == CLOOB_ERR_UNSUPPORTED || status == CLOOB_ERR_FORMAT) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; texts need a vocabulary", cloob_error(ctx));
        return CLOOB_OK;
    }
    if (status != CLOOB_OK || tokenizer_fits(*out, vocab)) return status;
    ctx_log(ctx, CLOOB_LOG_WARN, "%s: %d tokens, the model has %lld; it is not used", path, tokenizer_vocab_size(*out),
            (long long)vocab);
    tokenizer_close(*out);
    *out = NULL;
    return CLOOB_OK;
}

cloob_status tokenizer_open_folder(cloob_ctx *ctx, const char *folder, int64_t vocab, tokenizer **out)
{
    static const char *const files[] = { "spiece.model", "tokenizer.model", "tokenizer.json" };
    cloob_status status = CLOOB_OK;
    *out = NULL;
    for (size_t i = 0; file_is_dir(folder) && status == CLOOB_OK && !*out && i < sizeof files / sizeof *files; i++) {
        char *path = file_join(folder, files[i]);
        if (!path) return ctx_no_memory(ctx, strlen(folder), files[i]);
        if (file_exists(path)) status = open_neighbour(ctx, path, vocab, out);
        free(path);
    }
    return status;
}

/* ---- Hugging Face's tokenizer.json: BPE of CLIP's kind, and unigram ---------------------------- */

/* One merge as a line of a merges file: "a b", or ["a", "b"] in newer files. */
static bool put_merge(const json *e, sbuf *out)
{
    const char *one = json_string(e);
    if (!one && e->kind == JSON_ARRAY && e->count == 2) {
        const char *left = json_string(e->child), *right = json_string(e->child->next);
        if (!left || !right) return false;
        sbuf_printf(out, "%s %s\n", left, right);
        return true;
    }
    if (!one) return false;
    sbuf_printf(out, "%s\n", one);
    return true;
}

/* CLIP's ids follow from the merges; a vocabulary that numbers them otherwise is another kind. */
static cloob_status check_ids(cloob_ctx *ctx, const tokenizer *t, const json *vocab, const char *name)
{
    int64_t size = 0, start = -1, end = -1, id;
    json_int(json_get(vocab, "<|startoftext|>"), &start);
    json_int(json_get(vocab, "<|endoftext|>"), &end);
    for (const json *e = vocab->child; e; e = e->next, size++) {
        sbuf spelled = { 0 };
        if (!json_int(e, &id) || id < 0 || id >= tokenizer_vocab_size(t)) break;
        if (id < tokenizer_start_id(t)) token_put_symbols(t, (int32_t)id, &spelled);
        bool same = id >= tokenizer_start_id(t) ||
                    (spelled.data && strlen(e->key) == spelled.len && memcmp(spelled.data, e->key, spelled.len) == 0);
        sbuf_release(&spelled);
        if (!same) break;
    }
    if (size == tokenizer_vocab_size(t) && size == vocab->count && start == tokenizer_start_id(t) &&
        end == tokenizer_end_id(t))
        return CLOOB_OK;
    return ctx_fail(
        ctx, CLOOB_ERR_UNSUPPORTED,
        "%s: a BPE vocabulary that is not numbered as CLIP's (bytes, bytes at a word's end, merges, start, end)", name);
}

static cloob_status read_bpe(cloob_ctx *ctx, const json *model, const char *name, tokenizer **out)
{
    const json *merges = json_get(model, "merges"), *vocab = json_get(model, "vocab");
    sbuf text = { 0 };
    if (!merges || merges->kind != JSON_ARRAY || !vocab || vocab->kind != JSON_OBJECT)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a BPE model without merges and vocab", name);
    sbuf_puts(&text, "#version: 0.2\n");
    bool good = true;
    for (const json *e = merges->child; e && good; e = e->next) good = put_merge(e, &text);
    cloob_status status = !good || text.failed
                              ? ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a merge that is not two symbols", name)
                              : tokenizer_open_text(ctx, text.data, text.len, name, out);
    sbuf_release(&text);
    if (status == CLOOB_OK) status = check_ids(ctx, *out, vocab, name);
    if (status != CLOOB_OK) tokenizer_close(*out), *out = NULL;
    else tokenizer_set_clean(*out, CLEAN_HF);
    return status;
}

cloob_status tokenizer_read_json(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out)
{
    arena a = { 0 };
    json *root;
    *out = NULL;
    cloob_status status = json_parse(ctx, &a, text, size, name, &root);
    const json *model = status == CLOOB_OK ? json_get(root, "model") : NULL;
    const char *type = json_string(json_get(model, "type"));
    if (status == CLOOB_OK && type && strcmp(type, "BPE") == 0) status = read_bpe(ctx, model, name, out);
    else if (status == CLOOB_OK && type && strcmp(type, "Unigram") == 0) {
        pieces p;
        status = pieces_read_json(ctx, root, name, &p);
        if (status == CLOOB_OK) status = tokenizer_of_pieces(ctx, &p, out);
        else pieces_release(&p);
    } else if (status == CLOOB_OK)
        status = ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                          "%s: a tokenizer of type %.60s; BPE of CLIP's kind and Unigram are known", name,
                          type ? type : "?");
    arena_release(&a);
    return status;
}
