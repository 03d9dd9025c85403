/* Reads and writes SentencePiece vocabularies, as protobuf files and in cloob's text form. */
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/text.h"
#include "data/text/tokenizer_impl.h"

/* ---- protobuf: the subset used by ModelProto ----------------------------------------------------- */

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
    uint64_t number, value; /* value of an integer field */
    wire body;              /* content of a bytes or message field */
    bool fixed, bytes;
} field;

/* Reads the next field; false at the end. Sets *bad if the bytes are invalid. */
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
        f->value = load_le(w->at, (int)n);
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

/* Checks that the first field is a piece whose first field is its text, as in a ModelProto. */
bool pieces_is_model(const void *data, size_t size)
{
    wire w = { data, (const unsigned char *)data + size };
    field f, inner;
    bool bad = false;
    if (size < 8 || !next_field(&w, &f, &bad) || f.number != 1 || !f.bytes) return false;
    return next_field(&f.body, &inner, &bad) && inner.number == 1 && inner.bytes;
}

/* Sets SigLIP's rows: the ids and the end token, padded with the vocabulary's padding; no start token. */
static cloob_status set_ends(cloob_ctx *ctx, tokenizer *t, const char *name, int64_t end, int64_t pad)
{
    if (end < 0 || end >= t->p.count || pad < 0 || pad >= t->p.count)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the vocabulary has no end-of-text piece", name);
    t->suffix[0] = (int32_t)end, t->suffixes = 1;
    t->pad = (int32_t)pad;
    t->p.sentencepiece = true;
    return pieces_finish(ctx, &t->p, name);
}

/* The padding is <pad> for vocabularies like Gemma's (with byte fallback), and </s> for T5's, as in SigLIP. */
static cloob_status read_proto(cloob_ctx *ctx, wire w, const char *name, tokenizer *t)
{
    pieces *p = &t->p;
    trainer r = { 1, 2, -1 };
    field f;
    bool bad = false;
    while (next_field(&w, &f, &bad)) {
        if (f.number == 1 && f.bytes && !read_piece(f.body, p, &bad)) bad = true;
        if (f.number == 2 && f.bytes) read_trainer(f.body, p, &r, &bad);
        if (f.number == 3 && f.bytes) read_normalizer(f.body, p, &bad);
    }
    if (bad || p->charsmap.failed)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not a sentencepiece model, or cut short", name);
    if (r.kind != 1 && r.kind != 2)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: sentencepiece model type %llu is not supported; use unigram or BPE", name,
                        (unsigned long long)r.kind);
    p->model = r.kind == 2 ? PIECES_BPE : PIECES_UNIGRAM;
    return set_ends(ctx, t, name, r.end, p->byte_fallback && r.pad >= 0 && r.pad < p->count ? r.pad : r.end);
}

cloob_status pieces_read_model(cloob_ctx *ctx, const void *data, size_t size, const char *name, tokenizer **out)
{
    wire w = { data, (const unsigned char *)data + size };
    CLOOB_TRY(tokenizer_create(ctx, FORM_PIECES, out));
    (*out)->p.prefix = (*out)->p.fold_spaces = true;
    (*out)->prepare = PREPARE_CANONICAL;
    return tokenizer_or_close(read_proto(ctx, w, name, *out), out);
}

void pieces_save_model(const tokenizer *t, sbuf *out)
{
    const pieces *p = &t->p;
    int32_t end = t->suffix[0];
    sbuf part = { 0 };
    for (int32_t i = 0; i < p->count; i++) {
        const piece_row *e = &p->piece[i];
        proto_bytes(&part, 1, p->text.data + e->at, e->bytes);
        proto_float(&part, 2, e->score);
        proto_int(&part, 3, e->type);
        proto_message(out, 1, &part);
    }
    proto_int(&part, 3, p->model == PIECES_BPE ? 2 : 1);
    proto_int(&part, 35, p->byte_fallback);
    proto_int(&part, 40, p->unknown);
    proto_int(&part, 41, -1); /* no start token */
    proto_int(&part, 42, end);
    proto_int(&part, 43, t->pad == end ? -1 : t->pad);
    proto_message(out, 2, &part);
    proto_text(&part, 1, "cloob");
    proto_bytes(&part, 2, p->charsmap.data ? p->charsmap.data : "", p->charsmap.len);
    proto_int(&part, 3, p->prefix);
    proto_int(&part, 4, p->fold_spaces);
    proto_message(out, 3, &part);
}

/* Special tokens are found in the original text; the text between them is cleaned. */
cloob_status pieces_set_siglip(cloob_ctx *ctx, tokenizer *t)
{
    t->added = calloc(2, sizeof *t->added);
    if (!t->added) return ctx_no_memory(ctx, 2 * sizeof *t->added, "a tokenizer");
    t->added[0] = (added_token){ .text = "</s>", .bytes = 4, .id = t->suffix[0] };
    t->added[1] = (added_token){ .text = "<unk>", .bytes = 5, .id = t->p.unknown };
    t->added_count = 2;
    t->prepare = PREPARE_SIGLIP;
    steps_add(t, (step){ .kind = STEP_SIGLIP });
    return CLOOB_OK;
}

static int32_t find_special(const pieces *p, const char *text)
{
    for (int32_t i = 0; i < p->count; i++)
        if (p->piece[i].bytes == strlen(text) && memcmp(p->text.data + p->piece[i].at, text, strlen(text)) == 0)
            return i;
    return -1;
}

/* Special tokens are found in the original text; the text between them is lower-cased. */
cloob_status pieces_set_rinna(cloob_ctx *ctx, tokenizer *t, const char *name)
{
    static const char *const special[] = { "[CLS]", "[PAD]", "[SEP]", "[MASK]", "<s>", "</s>", "<unk>" };
    enum { COUNT = sizeof special / sizeof *special };
    t->added = calloc(COUNT, sizeof *t->added);
    if (!t->added) return ctx_no_memory(ctx, COUNT * sizeof *t->added, "a tokenizer");
    for (int i = 0; i < COUNT; i++) {
        int32_t id = find_special(&t->p, special[i]);
        if (id < 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not a vocabulary of rinna's models: it has no piece %s", name,
                            special[i]);
        t->added[t->added_count++] = (added_token){ .text = special[i], .bytes = strlen(special[i]), .id = id };
    }
    t->prefix[0] = t->added[0].id, t->prefixes = 1, t->suffixes = 0;
    t->pad = t->added[1].id;
    t->prepare = PREPARE_NOTHING;
    steps_add(t, (step){ .kind = STEP_LOWER });
    return CLOOB_OK;
}

/* ---- cloob's text form ------------------------------------------------------------------------------------ */

#define MARK_KEY "cloob_pieces"
static const char MARK[] = "{\"" MARK_KEY "\":1,"; /* the first bytes of the text form */

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

void pieces_save(const tokenizer *t, sbuf *out)
{
    const pieces *p = &t->p;
    json_out w = json_out_on(out);
    sbuf hex = { 0 };
    for (size_t i = 0; i < p->charsmap.len; i++) sbuf_printf(&hex, "%02x", (unsigned char)p->charsmap.data[i]);
    json_begin(&w, NULL, '{');
    json_members(&w, J_INT(MARK_KEY, 1), J_INT("bpe", p->model == PIECES_BPE), J_INT("byte_fallback", p->byte_fallback),
                 J_INT("prefix", p->prefix), J_INT("fold_spaces", p->fold_spaces), J_INT("wide", p->like_tokenizers),
                 J_INT("canonicalize", t->prepare == PREPARE_CANONICAL));
    if (t->prepare == PREPARE_SIGLIP) json_put_int(&w, "hf", 1);
    if (t->prefixes) json_put_int(&w, "rinna", 1);
    json_members(&w, J_INT("end", t->suffix[0]), J_INT("pad", t->pad), J_TEXT("charsmap", hex.data ? hex.data : ""));
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

static cloob_status read_saved(cloob_ctx *ctx, const json *root, const char *name, tokenizer *t)
{
    const json *list = json_get(root, "pieces");
    const char *map = json_string(json_get(root, "charsmap"));
    int64_t end = -1, pad = -1;
    pieces *p = &t->p;
    *p = (pieces){ .model = flag(root, "bpe") ? PIECES_BPE : PIECES_UNIGRAM,
                   .byte_fallback = flag(root, "byte_fallback"),
                   .prefix = flag(root, "prefix"),
                   .fold_spaces = flag(root, "fold_spaces"),
                   .like_tokenizers = flag(root, "wide") };
    t->prepare = flag(root, "canonicalize") ? PREPARE_CANONICAL : PREPARE_NOTHING;
    bool good = map && add_hex(&p->charsmap, map) && list && list->kind == JSON_ARRAY &&
                json_int(json_get(root, "end"), &end) && json_int(json_get(root, "pad"), &pad);
    for (const json *e = good ? list->child : NULL; e && good; e = e->next) {
        int64_t type = 0;
        const char *text = e->kind == JSON_ARRAY && e->count == 3 ? json_string(e->child) : NULL;
        good = text && e->child->next->kind == JSON_NUMBER && json_int(e->child->next->next, &type) &&
               type >= PIECE_NORMAL && type <= PIECE_BYTE &&
               pieces_add(p, text, strlen(text), (float)e->child->next->number, (piece_type)type);
    }
    if (!good) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a damaged list of pieces", name);
    CLOOB_TRY(set_ends(ctx, t, name, end, pad));
    if (flag(root, "rinna")) return pieces_set_rinna(ctx, t, name);
    return flag(root, "hf") ? pieces_set_siglip(ctx, t) : CLOOB_OK;
}

cloob_status pieces_read_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out)
{
    arena a = { 0 };
    json *root;
    CLOOB_TRY(tokenizer_create(ctx, FORM_PIECES, out));
    cloob_status status = json_parse(ctx, &a, text, size, name, &root);
    if (status == CLOOB_OK) status = read_saved(ctx, root, name, *out);
    arena_release(&a);
    return tokenizer_or_close(status, out);
}
