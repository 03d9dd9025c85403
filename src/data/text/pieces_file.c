/* Reads and writes SentencePiece vocabularies: its protobuf file and cloob's text form. */
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

static void put_varint(sbuf *out, uint64_t v)
{
    for (; v > 127; v >>= 7) sbuf_putc(out, (char)(v | 128));
    sbuf_putc(out, (char)v);
}

static void put_field(sbuf *out, int number, uint64_t value)
{
    put_varint(out, (uint64_t)number << 3);
    put_varint(out, value);
}

static void put_bytes(sbuf *out, int number, const char *data, size_t n)
{
    put_varint(out, (uint64_t)number << 3 | 2);
    put_varint(out, n);
    if (n) sbuf_add(out, data, n);
}

void pieces_save_model(const pieces *p, sbuf *out)
{
    sbuf part = { 0 };
    for (int32_t i = 0; i < p->count; i++) {
        const piece_row *e = &p->piece[i];
        char score[4];
        memcpy(score, &e->score, sizeof score); /* little endian, as every machine that we build for */
        part.len = 0;
        put_bytes(&part, 1, p->text.data + e->at, e->bytes);
        put_varint(&part, 2 << 3 | 5);
        sbuf_add(&part, score, sizeof score);
        put_field(&part, 3, e->type);
        put_bytes(out, 1, part.data, part.len);
    }
    part.len = 0;
    put_field(&part, 3, p->bpe ? 2 : 1);
    put_field(&part, 35, p->byte_fallback);
    put_field(&part, 40, (uint64_t)p->unknown);
    put_field(&part, 41, UINT64_MAX); /* no start */
    put_field(&part, 42, (uint64_t)p->end);
    put_field(&part, 43, p->pad == p->end ? UINT64_MAX : (uint64_t)p->pad);
    put_bytes(out, 2, part.data, part.len);
    part.len = 0;
    put_bytes(&part, 1, "cloob", 5);
    put_bytes(&part, 2, p->charsmap.data, p->charsmap.len);
    put_field(&part, 3, p->prefix);
    put_field(&part, 4, p->fold_spaces);
    put_bytes(out, 3, part.data, part.len);
    out->failed |= part.failed;
    sbuf_release(&part);
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
    if (p->hf) json_put_int(&w, "hf", 1);
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
                   .canonicalize = flag(root, "canonicalize"),
                   .hf = flag(root, "hf") };
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
