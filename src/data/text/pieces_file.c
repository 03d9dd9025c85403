/* Reads and writes SentencePiece vocabularies: its protobuf file, tokenizers' JSON, cloob's text form. */
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/text/pieces.h"

/* ---- protobuf: enough of it for a ModelProto ------------------------------------------------------ */

typedef struct wire {
    const unsigned char *at, *end;
} wire;

static bool varint(wire *w, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        unsigned char b = *w->at++;
        *v |= (uint64_t)(b & 127) << shift;
        if (!(b & 128)) return true;
    }
    return false;
}

typedef struct field {
    uint64_t number, value; /* value: of a number */
    wire body;              /* of bytes and messages */
    bool fixed, bytes;
} field;

/* The next field; false at the end, and with *bad set where the bytes make none. */
static bool next_field(wire *w, field *f, bool *bad)
{
    uint64_t key, n;
    if (w->at == w->end || *bad) return false;
    *bad = true;
    if (!varint(w, &key)) return false;
    *f = (field){ .number = key >> 3, .fixed = (key & 7) == 5, .bytes = (key & 7) == 2 };
    size_t left;
    switch (key & 7) {
    case 0:
        if (!varint(w, &f->value)) return false;
        break;
    case 2:
        if (!varint(w, &n)) return false;
        left = (size_t)(w->end - w->at);
        if (n > left) return false;
        f->body = (wire){ w->at, w->at + n };
        w->at += n;
        break;
    case 1:
    case 5:
        n = (key & 7) == 5 ? 4 : 8;
        if ((size_t)(w->end - w->at) < n) return false;
        for (uint64_t i = 0; i < n; i++) f->value |= (uint64_t)w->at[i] << (8 * i);
        w->at += n;
        break;
    default: return false;
    }
    *bad = false;
    return true;
}

static float as_float(uint64_t bits)
{
    uint32_t u = (uint32_t)bits;
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static bool read_piece(wire w, pieces *p, bool *bad)
{
    field f;
    wire text = { 0 };
    float score = 0;
    uint64_t type = PIECE_NORMAL;
    while (next_field(&w, &f, bad)) {
        if (f.number == 1 && f.bytes) text = f.body;
        if (f.number == 2 && f.fixed) score = as_float(f.value);
        if (f.number == 3) type = f.value;
    }
    if (*bad || !text.at || type < PIECE_NORMAL || type > PIECE_BYTE) return false;
    return pieces_add(p, (const char *)text.at, (size_t)(text.end - text.at), score, (piece_type)type);
}

typedef struct trainer {
    uint64_t kind; /* 1: unigram, 2: BPE */
    int64_t end, pad;
} trainer;

static void read_trainer(wire w, pieces *p, trainer *t, bool *bad)
{
    field f;
    while (next_field(&w, &f, bad)) {
        if (f.number == 3) t->kind = f.value;
        if (f.number == 35) p->byte_fallback = f.value != 0;
        if (f.number == 42) t->end = (int64_t)(int32_t)f.value;
        if (f.number == 43) t->pad = (int64_t)(int32_t)f.value;
    }
}

static void read_normalizer(wire w, pieces *p, bool *bad)
{
    field f;
    while (next_field(&w, &f, bad)) {
        if (f.number == 2 && f.bytes) sbuf_add(&p->charsmap, (const char *)f.body.at, (size_t)(f.body.end - f.body.at));
        if (f.number == 3) p->prefix = f.value != 0;
        if (f.number == 4) p->fold_spaces = f.value != 0;
    }
}

/* The first field of a ModelProto is a piece, whose first field is its text. */
bool pieces_is_model(const void *data, size_t size)
{
    wire w = { data, (const unsigned char *)data + size };
    field f, inner;
    bool bad = false;
    if (size < 8 || !next_field(&w, &f, &bad) || f.number != 1 || !f.bytes) return false;
    return next_field(&f.body, &inner, &bad) && inner.number == 1 && inner.bytes;
}

/* Where a vocabulary of Gemma's kind ends in </s> too, it is filled up with <pad>; T5's with </s>, as SigLIP has it. */
static cloob_status set_ends(cloob_ctx *ctx, pieces *p, const char *name, int64_t end, int64_t pad)
{
    if (end < 0 || end >= p->count) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no end-of-text piece in it", name);
    p->end = (int32_t)end;
    p->pad = p->byte_fallback && pad >= 0 && pad < p->count ? (int32_t)pad : p->end;
    return CLOOB_OK;
}

cloob_status pieces_read_model(cloob_ctx *ctx, const void *data, size_t size, const char *name, pieces *p)
{
    wire w = { data, (const unsigned char *)data + size };
    trainer t = { 1, 2, -1 };
    field f;
    bool bad = false;
    *p = (pieces){ .prefix = true, .fold_spaces = true, .canonicalize = true };
    while (next_field(&w, &f, &bad)) {
        if (f.number == 1 && f.bytes && !read_piece(f.body, p, &bad)) bad = true;
        if (f.number == 2 && f.bytes) read_trainer(f.body, p, &t, &bad);
        if (f.number == 3 && f.bytes) read_normalizer(f.body, p, &bad);
    }
    if (bad || p->charsmap.failed)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not a sentencepiece model, or cut short", name);
    if (t.kind != 1 && t.kind != 2)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: a sentencepiece model of type %llu; unigram and BPE are known",
                        name, (unsigned long long)t.kind);
    p->bpe = t.kind == 2;
    CLOOB_TRY(set_ends(ctx, p, name, t.end, t.pad));
    return pieces_finish(ctx, p, name);
}

/* ---- tokenizer.json ------------------------------------------------------------------------------ */

static bool add_base64(sbuf *out, const char *text)
{
    unsigned char *data;
    size_t bytes;
    if (!base64_decode(text, strlen(text), &data, &bytes)) return false;
    sbuf_add(out, data, bytes);
    free(data);
    return true;
}

static cloob_status read_normalizers(cloob_ctx *ctx, const json *v, const char *name, pieces *p)
{
    static const char *const known[] = { "Lowercase", "Strip", "Replace",
                                         "Prepend" }; /* what cleaning and Metaspace do */
    const char *type = json_string(json_get(v, "type"));
    if (!v || v->kind == JSON_NULL) return CLOOB_OK;
    if (type && strcmp(type, "Sequence") == 0) {
        const json *list = json_get(v, "normalizers");
        for (const json *e = list ? list->child : NULL; e; e = e->next) CLOOB_TRY(read_normalizers(ctx, e, name, p));
        return CLOOB_OK;
    }
    if (type && strcmp(type, "Precompiled") == 0) {
        const char *map = json_string(json_get(v, "precompiled_charsmap"));
        return map && add_base64(&p->charsmap, map)
                   ? CLOOB_OK
                   : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: its precompiled_charsmap is not base64", name);
    }
    for (size_t i = 0; type && i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i]) == 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: a normalizer of type %.60s is not known", name, type ? type : "?");
}

static bool is_special(const json *root, int64_t id)
{
    const json *added = json_get(root, "added_tokens");
    for (const json *e = added ? added->child : NULL; e; e = e->next) {
        int64_t at;
        const json *special = json_get(e, "special");
        if (json_int(json_get(e, "id"), &at) && at == id) return special && special->boolean;
    }
    return false;
}

static cloob_status read_vocab(cloob_ctx *ctx, const json *root, const json *vocab, int64_t unknown, const char *name,
                               pieces *p, int64_t ends[2])
{
    int64_t id = 0;
    for (const json *e = vocab->child; e; e = e->next, id++) {
        const char *text = e->kind == JSON_ARRAY && e->count == 2 ? json_string(e->child) : NULL;
        if (!text || e->child->next->kind != JSON_NUMBER)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: entry %lld of its vocabulary is not a piece with a score", name,
                            (long long)id);
        bool byte = p->byte_fallback && strlen(text) == 6 && strncmp(text, "<0x", 3) == 0;
        piece_type type = id == unknown          ? PIECE_UNKNOWN
                          : byte                 ? PIECE_BYTE
                          : is_special(root, id) ? PIECE_CONTROL
                                                 : PIECE_NORMAL;
        if (strcmp(text, "</s>") == 0 || strcmp(text, "<eos>") == 0) ends[0] = id;
        if (strcmp(text, "<pad>") == 0) ends[1] = id;
        if (!pieces_add(p, text, strlen(text), (float)e->child->next->number, type))
            return ctx_no_memory(ctx, 1 << 20, name);
    }
    return CLOOB_OK;
}

cloob_status pieces_read_json(cloob_ctx *ctx, const json *root, const char *name, pieces *p)
{
    const json *model = json_get(root, "model"), *vocab = json_get(model, "vocab"),
               *bytes = json_get(model, "byte_fallback");
    int64_t unknown = -1, ends[2] = { -1, -1 };
    *p = (pieces){ .prefix = true, .fold_spaces = true, .wide = true, .canonicalize = true };
    if (!vocab || vocab->kind != JSON_ARRAY || !json_int(json_get(model, "unk_id"), &unknown))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a unigram model without vocab or unk_id", name);
    p->byte_fallback = bytes && bytes->boolean;
    CLOOB_TRY(read_normalizers(ctx, json_get(root, "normalizer"), name, p));
    CLOOB_TRY(read_vocab(ctx, root, vocab, unknown, name, p, ends));
    CLOOB_TRY(set_ends(ctx, p, name, ends[0], ends[1]));
    return pieces_finish(ctx, p, name);
}

/* ---- cloob's text form ------------------------------------------------------------------------------------ */

#define MARK_KEY "cloob_pieces"
static const char MARK[] = "{\"" MARK_KEY "\":1,"; /* what pieces_save begins with */

bool pieces_is_text(const char *text, size_t size)
{
    return size > sizeof MARK && memcmp(text, MARK, sizeof MARK - 1) == 0;
}

static void put_pieces(json_out *w, const pieces *p)
{
    json_begin(w, "pieces", '[');
    for (int32_t i = 0; i < p->count; i++) {
        sbuf text = { 0 };
        sbuf_add(&text, p->text.data + p->piece[i].at, p->piece[i].bytes);
        json_begin(w, NULL, '[');
        json_put_text(w, NULL, text.data ? text.data : "");
        json_put_number(w, NULL, (double)p->piece[i].score);
        json_put_int(w, NULL, p->piece[i].type);
        json_end(w);
        w->failed |= text.failed;
        sbuf_release(&text);
    }
    json_end(w);
}

void pieces_save(const pieces *p, sbuf *out)
{
    json_out w = json_out_on(out);
    sbuf hex = { 0 };
    for (size_t i = 0; i < p->charsmap.len; i++) sbuf_printf(&hex, "%02x", (unsigned char)p->charsmap.data[i]);
    json_begin(&w, NULL, '{');
    json_put_int(&w, MARK_KEY, 1);
    json_put_int(&w, "bpe", p->bpe);
    json_put_int(&w, "byte_fallback", p->byte_fallback);
    json_put_int(&w, "prefix", p->prefix);
    json_put_int(&w, "fold_spaces", p->fold_spaces);
    json_put_int(&w, "wide", p->wide);
    json_put_int(&w, "canonicalize", p->canonicalize);
    json_put_int(&w, "end", p->end);
    json_put_int(&w, "pad", p->pad);
    json_put_text(&w, "charsmap", hex.data ? hex.data : "");
    put_pieces(&w, p);
    json_end(&w);
    w.failed |= hex.failed;
    sbuf_release(&hex);
    json_out_back(&w, out);
}

static bool flag(const json *root, const char *key)
{
    int64_t v = 0;
    return json_int(json_get(root, key), &v) && v == 1;
}

static bool add_hex(sbuf *out, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (; text[0] && text[1]; text += 2) {
        const char *high = strchr(digits, text[0]), *low = strchr(digits, text[1]);
        if (!high || !low) return false;
        sbuf_putc(out, (char)((high - digits) << 4 | (low - digits)));
    }
    return !*text;
}

static cloob_status read_saved(cloob_ctx *ctx, const json *root, const char *name, pieces *p)
{
    const json *list = json_get(root, "pieces");
    const char *map = json_string(json_get(root, "charsmap"));
    int64_t end = -1, pad = -1;
    *p = (pieces){ .bpe = flag(root, "bpe"),
                   .byte_fallback = flag(root, "byte_fallback"),
                   .prefix = flag(root, "prefix"),
                   .fold_spaces = flag(root, "fold_spaces"),
                   .wide = flag(root, "wide"),
                   .canonicalize = flag(root, "canonicalize") };
    bool good = map && add_hex(&p->charsmap, map) && list && list->kind == JSON_ARRAY &&
                json_int(json_get(root, "end"), &end) && json_int(json_get(root, "pad"), &pad);
    for (const json *e = good ? list->child : NULL; e && good; e = e->next) {
        int64_t type = 0;
        const char *text = e->kind == JSON_ARRAY && e->count == 3 ? json_string(e->child) : NULL;
        good = text && e->child->next->kind == JSON_NUMBER && json_int(e->child->next->next, &type) &&
               type >= PIECE_NORMAL && type <= PIECE_BYTE &&
               pieces_add(p, text, strlen(text), (float)e->child->next->number, (piece_type)type);
    }
    if (!good || end < 0 || end >= p->count || pad < 0 || pad >= p->count)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a damaged list of pieces", name);
    p->end = (int32_t)end, p->pad = (int32_t)pad;
    return pieces_finish(ctx, p, name);
}

cloob_status pieces_read_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, pieces *p)
{
    arena a = { 0 };
    json *root;
    *p = (pieces){ 0 };
    cloob_status status = json_parse(ctx, &a, text, size, name, &root);
    if (status == CLOOB_OK) status = read_saved(ctx, root, name, p);
    arena_release(&a);
    return status;
}
