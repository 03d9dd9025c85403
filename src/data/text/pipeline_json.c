/* Reads and stores tokenizer.json. Untrusted: every id is checked, every kind that is not known is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/text/pipeline.h"
#include "data/text/tokenizer_impl.h"

typedef struct reader {
    cloob_ctx *ctx;
    const char *name;
    pipeline *t;
} reader;

static cloob_status bad(const reader *r, const char *what)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %s", r->name, what);
}

static cloob_status unknown_kind(const reader *r, const char *what, const char *type)
{
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED, "%s: a %s of type %.60s is not known", r->name, what,
                    type ? type : "?");
}

static bool is(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

static bool flag(const json *v, const char *key, bool absent)
{
    bool out = absent;
    json_bool(json_get(v, key), &out);
    return out;
}

/* ---- steps --------------------------------------------------------------------------------------- */

static cloob_status add_step(const reader *r, step s, const char *from, const char *to)
{
    pipeline *t = r->t;
    if (t->steps == PIPELINE_STEPS) return bad(r, "more normalizers and pre-tokenizers than any tokenizer has");
    s.from = from ? strdup(from) : NULL;
    s.to = to ? strdup(to) : NULL;
    t->step[t->steps++] = s;
    return (from && !s.from) || (to && !s.to) ? ctx_no_memory(r->ctx, 64, r->name) : CLOOB_OK;
}

static cloob_status add_replace(const reader *r, const json *v)
{
    const json *pattern = json_get(v, "pattern");
    const char *plain = json_string(json_get(pattern, "String")), *regex = json_string(json_get(pattern, "Regex"));
    const char *to = json_string(json_get(v, "content"));
    if (plain && to) return add_step(r, (step){ .kind = STEP_REPLACE }, plain, to);
    bool runs = is(regex, " {2,}"), spaces = is(regex, "\\s+");
    if ((!runs && !spaces) || !to) return unknown_kind(r, "normalizer", regex ? regex : "Replace");
    return add_step(r, (step){ .kind = STEP_REPLACE_SPACES, .least = runs ? 2 : 1 }, NULL, to);
}

static cloob_status add_bert(const reader *r, const json *v)
{
    bool lower = flag(v, "lowercase", true), accents = flag(v, "strip_accents", lower);
    if (flag(v, "clean_text", true)) CLOOB_TRY(add_step(r, (step){ .kind = STEP_BERT_CLEAN }, NULL, NULL));
    if (flag(v, "handle_chinese_chars", true)) CLOOB_TRY(add_step(r, (step){ .kind = STEP_BERT_CHINESE }, NULL, NULL));
    if (accents) {
        CLOOB_TRY(add_step(r, (step){ .kind = STEP_NFD }, NULL, NULL));
        CLOOB_TRY(add_step(r, (step){ .kind = STEP_ACCENTS }, NULL, NULL));
    }
    return lower ? add_step(r, (step){ .kind = STEP_LOWER }, NULL, NULL) : CLOOB_OK;
}

static cloob_status add_charsmap(const reader *r, const json *v)
{
    const char *map = json_string(json_get(v, "precompiled_charsmap"));
    unsigned char *data;
    size_t bytes;
    if (!map || r->t->p.charsmap.len || !base64_decode(map, strlen(map), &data, &bytes))
        return bad(r, "its precompiled_charsmap is not base64");
    sbuf_add(&r->t->p.charsmap, (const char *)data, bytes);
    free(data);
    return add_step(r, (step){ .kind = STEP_CHARSMAP }, NULL, NULL);
}

static cloob_status read_normalizer(const reader *r, const json *v)
{
    static const char *const plain[] = { "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents" };
    const char *type = json_string(json_get(v, "type"));
    if (!v || v->kind == JSON_NULL) return CLOOB_OK;
    if (is(type, "Sequence")) {
        for (const json *e = json_first(json_get(v, "normalizers")); e; e = json_next(e))
            CLOOB_TRY(read_normalizer(r, e));
        return CLOOB_OK;
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (is(type, plain[i])) {
            step s = { .kind = (step_kind)i };
            s.left = flag(v, "strip_left", true), s.right = flag(v, "strip_right", true);
            return add_step(r, s, NULL, NULL);
        }
    if (is(type, "Precompiled")) return add_charsmap(r, v);
    if (is(type, "BertNormalizer")) return add_bert(r, v);
    if (is(type, "Replace")) return add_replace(r, v);
    const char *prepend = json_string(json_get(v, "prepend"));
    if (is(type, "Prepend") && prepend) return add_step(r, (step){ .kind = STEP_PREPEND }, NULL, prepend);
    return unknown_kind(r, "normalizer", type);
}

static cloob_status add_metaspace(const reader *r, const json *v)
{
    const char *scheme = json_string(json_get(v, "prepend_scheme")), *mark = json_string(json_get(v, "replacement"));
    step s = { .kind = STEP_SPLIT_METASPACE, .right = flag(v, "split", true) };
    s.left = scheme ? !is(scheme, "never") : flag(v, "add_prefix_space", true);
    s.first = is(scheme, "first");
    if (mark && !is(mark, "\xe2\x96\x81")) return unknown_kind(r, "Metaspace", mark);
    return add_step(r, s, NULL, NULL);
}

static cloob_status add_split(const reader *r, const json *v)
{
    const char *plain = json_string(json_get(json_get(v, "pattern"), "String")),
               *behavior = json_string(json_get(v, "behavior"));
    if (!plain || !is(behavior, "MergedWithPrevious") || flag(v, "invert", false))
        return unknown_kind(r, "Split pre-tokenizer", behavior);
    return add_step(r, (step){ .kind = STEP_SPLIT_AFTER_SPACE }, plain, NULL);
}

static cloob_status read_splitter(const reader *r, const json *v)
{
    const char *type = json_string(json_get(v, "type"));
    if (!v || v->kind == JSON_NULL) return CLOOB_OK;
    if (is(type, "Sequence")) {
        for (const json *e = json_first(json_get(v, "pretokenizers")); e; e = json_next(e))
            CLOOB_TRY(read_splitter(r, e));
        return CLOOB_OK;
    }
    if (is(type, "WhitespaceSplit")) return add_step(r, (step){ .kind = STEP_SPLIT_SPACES }, NULL, NULL);
    if (is(type, "BertPreTokenizer")) return add_step(r, (step){ .kind = STEP_SPLIT_BERT }, NULL, NULL);
    if (is(type, "Metaspace")) return add_metaspace(r, v);
    if (is(type, "Split")) return add_split(r, v);
    if (!is(type, "ByteLevel")) return unknown_kind(r, "pre-tokenizer", type);
    step s = { .kind = STEP_SPLIT_BYTES,
               .left = flag(v, "add_prefix_space", true),
               .right = flag(v, "use_regex", true) };
    return add_step(r, s, NULL, NULL);
}

/* GPT-2's characters for bytes: printable ones are themselves, the others follow from U+0100 on. */
static void set_byte_texts(pipeline *t)
{
    uint32_t next = 256;
    for (int b = 0; b < 256; b++) {
        bool printable = (b > ' ' && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        char utf8[4];
        int n = utf8_encode(printable ? (uint32_t)b : next++, utf8);
        memcpy(t->byte_text[b], utf8, (size_t)n);
    }
}

/* ---- vocabulary ---------------------------------------------------------------------------------- */

typedef struct vocab_row {
    const char *text;
    double score;
} vocab_row;

typedef struct vocab {
    vocab_row *row; /* by id; text NULL: no such piece */
    int64_t count, capacity;
} vocab;

static cloob_status set_row(const reader *r, vocab *v, int64_t id, const char *text, double score)
{
    if (id < 0 || id >= VOCAB_LIMIT) return bad(r, "an id of its vocabulary is out of range");
    while (id >= v->capacity) {
        int64_t more = v->capacity ? 2 * v->capacity : 4096;
        vocab_row *bigger = realloc(v->row, (size_t)more * sizeof *bigger);
        if (!bigger) return ctx_no_memory(r->ctx, (size_t)more * sizeof *bigger, r->name);
        memset(bigger + v->capacity, 0, (size_t)(more - v->capacity) * sizeof *bigger);
        v->row = bigger;
        v->capacity = more;
    }
    if (!v->row[id].text) v->row[id] = (vocab_row){ text, score };
    if (id >= v->count) v->count = id + 1;
    return CLOOB_OK;
}

static cloob_status gather(const reader *r, const json *root, const json *model, vocab *v)
{
    const json *list = json_get(model, "vocab");
    int64_t id = 0;
    bool unigram = is(json_string(json_get(model, "type")), "Unigram");
    if (!list || list->kind != (unigram ? JSON_ARRAY : JSON_OBJECT)) return bad(r, "a model without vocab");
    for (const json *e = list->child; e; e = e->next, id++) {
        double score = 0;
        const char *text = unigram && e->kind == JSON_ARRAY && e->count == 2 ? json_string(e->child) : e->key;
        bool good = text && (unigram ? json_number(e->child ? e->child->next : NULL, &score) : json_int(e, &id));
        if (!good) return bad(r, "an entry of its vocabulary is not a piece with a number");
        CLOOB_TRY(set_row(r, v, id, text, score));
    }
    for (const json *e = json_first(json_get(root, "added_tokens")); e; e = json_next(e)) {
        const char *text = json_string(json_get(e, "content"));
        if (!text || !*text || !json_int(json_get(e, "id"), &id)) return bad(r, "an added token without text or id");
        CLOOB_TRY(set_row(r, v, id, text, 0));
    }
    return CLOOB_OK;
}

static bool is_byte(const char *text) { return strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>'; }

static cloob_status fill_pieces(const reader *r, const json *root, const json *model, int64_t unk)
{
    pieces *p = &r->t->p;
    vocab v = { 0 };
    const char *unk_text = json_string(json_get(model, "unk_token"));
    cloob_status status = gather(r, root, model, &v);
    for (int64_t i = 0; status == CLOOB_OK && i < v.count; i++) {
        const char *text = v.row[i].text ? v.row[i].text : "";
        bool unknown = i == unk || (unk < 0 && is(unk_text, text));
        piece_type type = unknown                             ? PIECE_UNKNOWN
                          : p->byte_fallback && is_byte(text) ? PIECE_BYTE
                          : *text                             ? PIECE_NORMAL
                                                              : PIECE_UNUSED;
        if (!pieces_add(p, text, strlen(text), (float)v.row[i].score, type))
            status = ctx_no_memory(r->ctx, 64, r->name);
    }
    free(v.row);
    return status;
}

static cloob_status read_merges(const reader *r, const json *model)
{
    pieces *p = &r->t->p;
    const json *list = json_get(model, "merges");
    sbuf both = { 0 };
    int32_t rank = 0;
    bool good = list && list->kind == JSON_ARRAY;
    if (!pieces_reserve_pairs(p, good ? list->count : 0)) return ctx_no_memory(r->ctx, 1 << 20, r->name);
    for (const json *e = good ? list->child : NULL; e && good; e = e->next, rank++) {
        const char *left = json_string(e), *gap = left ? strchr(left, ' ') : NULL, *right = gap ? gap + 1 : NULL;
        size_t n = gap ? (size_t)(gap - left) : 0;
        if (e->kind == JSON_ARRAY && e->count == 2) {
            left = json_string(e->child), right = json_string(e->child->next);
            n = left ? strlen(left) : 0;
        }
        both.len = 0;
        if (left && right) sbuf_add(&both, left, n), sbuf_puts(&both, right);
        int32_t a = left && right ? pieces_find(p, left, n) : -1,
                b = a >= 0 ? pieces_find(p, right, strlen(right)) : -1;
        int32_t id = b >= 0 && !both.failed ? pieces_find(p, both.data, both.len) : -1;
        good = id >= 0;
        if (good) pieces_add_pair(p, a, b, rank, id);
    }
    sbuf_release(&both);
    return good ? CLOOB_OK : bad(r, "a merge that is not two pieces of its vocabulary which make a third");
}

static cloob_status read_model(const reader *r, const json *root)
{
    const json *model = json_get(root, "model");
    const char *type = json_string(json_get(model, "type")), *prefix, *suffix;
    pieces *p = &r->t->p;
    int64_t unk = -1, limit = 100;
    p->byte_fallback = flag(model, "byte_fallback", false);
    p->wide = true;
    p->word_pieces = is(type, "WordPiece");
    p->bpe = p->ranked = is(type, "BPE");
    if (!p->word_pieces && !p->bpe && !is(type, "Unigram")) return unknown_kind(r, "model", type);
    prefix = json_string(json_get(model, "continuing_subword_prefix"));
    suffix = json_string(json_get(model, "end_of_word_suffix"));
    if (p->word_pieces && prefix && !is(prefix, "##")) return unknown_kind(r, "continuing_subword_prefix", prefix);
    if (p->bpe && prefix && *prefix) return unknown_kind(r, "continuing_subword_prefix", prefix);
    if (p->bpe && suffix && *suffix) return unknown_kind(r, "end_of_word_suffix", suffix);
    if (p->bpe && flag(model, "ignore_merges", false)) return unknown_kind(r, "BPE model", "ignore_merges");
    json_int(json_get(model, "max_input_chars_per_word"), &limit);
    p->word_limit = limit > 0 && limit < 1 << 20 ? (int32_t)limit : 100;
    if (!p->bpe && !p->word_pieces && !json_int(json_get(model, "unk_id"), &unk))
        return bad(r, "a unigram model without unk_id");
    CLOOB_TRY(fill_pieces(r, root, model, unk));
    p->no_unknown = p->bpe; /* without an unknown piece, what is unknown is dropped */
    CLOOB_TRY(pieces_finish(r->ctx, p, r->name));
    return p->bpe ? read_merges(r, model) : CLOOB_OK;
}

/* ---- added tokens and the template --------------------------------------------------------------- */

static cloob_status read_added(const reader *r, const json *root)
{
    const json *list = json_get(root, "added_tokens");
    pipeline *t = r->t;
    t->added = calloc((size_t)json_count(list) + 1, sizeof *t->added);
    if (!t->added) return ctx_no_memory(r->ctx, 64, r->name);
    for (const json *e = json_first(list); e; e = json_next(e)) {
        int64_t id = 0;
        json_int(json_get(e, "id"), &id); /* checked with the vocabulary */
        added_token *a = &t->added[t->added_count];
        *a = (added_token){ .text = strdup(json_string(json_get(e, "content"))),
                            .id = (int32_t)id,
                            .lstrip = flag(e, "lstrip", false),
                            .rstrip = flag(e, "rstrip", false),
                            .normalized = flag(e, "normalized", false),
                            .single_word = flag(e, "single_word", false) };
        if (!a->text) return ctx_no_memory(r->ctx, 64, r->name);
        a->bytes = strlen(a->text);
        t->added_count++;
    }
    return CLOOB_OK;
}

static int32_t id_of(const pipeline *t, const char *text)
{
    for (int64_t i = 0; text && i < t->added_count; i++)
        if (strcmp(t->added[i].text, text) == 0) return t->added[i].id;
    return text ? pieces_find(&t->p, text, strlen(text)) : -1;
}

static cloob_status add_special(const reader *r, int64_t id, bool suffix)
{
    pipeline *t = r->t;
    int *n = suffix ? &t->suffixes : &t->prefixes;
    if (id < 0 || id >= t->p.count || *n == PIPELINE_SPECIALS) return bad(r, "its template has an impossible token");
    (suffix ? t->suffix : t->prefix)[(*n)++] = (int32_t)id;
    return CLOOB_OK;
}

static cloob_status read_template(const reader *r, const json *v)
{
    bool after = false;
    const json *known = json_get(v, "special_tokens");
    for (const json *e = json_first(json_get(v, "single")); e; e = json_next(e)) {
        const char *name = json_string(json_get(json_get(e, "SpecialToken"), "id"));
        int64_t id = -1;
        after |= json_get(e, "Sequence") != NULL;
        if (!name) continue;
        if (!json_int(json_first(json_get(json_get(known, name), "ids")), &id)) id = id_of(r->t, name);
        CLOOB_TRY(add_special(r, id, after));
    }
    return CLOOB_OK;
}

/* ["</s>", 2] */
static cloob_status add_pair(const reader *r, const json *v, bool suffix)
{
    int64_t id = -1;
    json_int(json_next(json_first(v)), &id);
    return add_special(r, id, suffix);
}

static cloob_status read_post(const reader *r, const json *v)
{
    const char *type = json_string(json_get(v, "type"));
    if (!v || v->kind == JSON_NULL || is(type, "ByteLevel")) return CLOOB_OK;
    if (is(type, "Sequence")) {
        for (const json *e = json_first(json_get(v, "processors")); e; e = json_next(e)) CLOOB_TRY(read_post(r, e));
        return CLOOB_OK;
    }
    if (is(type, "TemplateProcessing")) return read_template(r, v);
    if (!is(type, "RobertaProcessing") && !is(type, "BertProcessing")) return unknown_kind(r, "post-processor", type);
    CLOOB_TRY(add_pair(r, json_get(v, "cls"), false));
    return add_pair(r, json_get(v, "sep"), true);
}

/* What tokenizer_config.json changes, as transformers applies it. */
static cloob_status apply_config(const reader *r, const json *root, const pipeline_config *c)
{
    pipeline *t = r->t;
    static const char *const pads[] = { "<pad>", "[PAD]", "</s>", "<eos>" }, *const seps[] = { "[SEP]", "</s>" };
    const char *padding = json_string(json_get(json_get(root, "padding"), "direction"));
    t->pad = c->pad ? id_of(t, c->pad) : -1;
    for (size_t i = 0; t->pad < 0 && i < sizeof pads / sizeof *pads; i++) t->pad = id_of(t, pads[i]);
    if (t->pad < 0) t->pad = 0;
    t->pad_left =
        c->pad_side ? c->pad_left : is(padding, "Left") || (!padding && is(c->class_name, "Siglip2Tokenizer"));
    t->strip_sep = -1;
    for (int i = 0; c->strip_sep && t->strip_sep < 0 && i < 2; i++) t->strip_sep = id_of(t, seps[i]);
    t->clean = c->clean;
    snprintf(t->class_name, sizeof t->class_name, "%s", c->class_name ? c->class_name : "");
    snprintf(t->pad_text, sizeof t->pad_text, "%s", c->pad ? c->pad : "");
    if (!c->add_bos && !c->add_eos) return CLOOB_OK;
    t->prefixes = t->suffixes = 0;
    if (c->add_bos > 0) CLOOB_TRY(add_special(r, id_of(t, c->bos ? c->bos : "<bos>"), false));
    return c->add_eos > 0 ? add_special(r, id_of(t, c->eos ? c->eos : "<eos>"), true) : CLOOB_OK;
}

/* ---- entry --------------------------------------------------------------------------------------- */

/* JSON without the blanks between its tokens. */
static void put_dense(const char *text, size_t n, sbuf *out)
{
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (quoted && text[i] == '\\' && i + 1 < n) {
            sbuf_putc(out, text[i++]);
        } else if (text[i] == '"') quoted = !quoted;
        if (quoted || !strchr(" \t\r\n", text[i])) sbuf_putc(out, text[i]);
    }
}

static cloob_status read_root(const reader *r, const json *root, const pipeline_config *c)
{
    if (is(c->class_name, "Siglip2Tokenizer")) { /* transformers adds it to what the file has */
        const json *n = json_get(root, "normalizer"), *e = json_first(json_get(n, "normalizers"));
        const char *type = json_string(json_get(e ? e : n, "type"));
        if (!is(type, "Lowercase")) CLOOB_TRY(add_step(r, (step){ .kind = STEP_LOWER }, NULL, NULL));
    }
    CLOOB_TRY(read_normalizer(r, json_get(root, "normalizer")));
    CLOOB_TRY(read_splitter(r, json_get(root, "pre_tokenizer")));
    CLOOB_TRY(read_model(r, root));
    CLOOB_TRY(read_added(r, root));
    CLOOB_TRY(read_post(r, json_get(root, "post_processor")));
    return apply_config(r, root, c);
}

cloob_status pipeline_read(cloob_ctx *ctx, const char *text, size_t size, const char *name,
                           const pipeline_config *config, pipeline **out)
{
    static const pipeline_config none = { 0 };
    arena a = { 0 };
    json *root;
    *out = NULL;
    reader r = { ctx, name, calloc(1, sizeof *r.t) };
    if (!r.t) return ctx_no_memory(ctx, sizeof *r.t, name);
    set_byte_texts(r.t);
    cloob_status status = json_parse(ctx, &a, text, size, name, &root);
    if (status == CLOOB_OK) status = read_root(&r, root, config ? config : &none);
    if (status == CLOOB_OK) put_dense(text, size, &r.t->source);
    if (status == CLOOB_OK && r.t->source.failed) status = ctx_no_memory(ctx, size, name);
    arena_release(&a);
    if (status == CLOOB_OK) *out = r.t;
    else pipeline_close(r.t);
    return status;
}

void pipeline_close(pipeline *t)
{
    if (!t) return;
    for (int i = 0; i < t->steps; i++) free(t->step[i].from), free(t->step[i].to);
    for (int64_t i = 0; i < t->added_count; i++) free(t->added[i].text);
    free(t->added);
    pieces_release(&t->p);
    sbuf_release(&t->source);
    free(t);
}

/* ---- the form of checkpoints --------------------------------------------------------------------- */

#define MARK_KEY "cloob_tokenizer"
static const char MARK[] = "{\"" MARK_KEY "\":1,";

bool pipeline_is_text(const char *text, size_t size)
{
    return size > sizeof MARK && memcmp(text, MARK, sizeof MARK - 1) == 0;
}

/* The template is stored as it is applied: the configuration has been read. */
void pipeline_save(const pipeline *t, sbuf *out)
{
    json_out w = json_out_on(out);
    json_begin(&w, NULL, '{');
    json_put_int(&w, MARK_KEY, 1);
    json_put_text(&w, "class", t->class_name);
    json_put_text(&w, "pad", t->pad_text);
    json_put_bool(&w, "pad_left", t->pad_left);
    json_put_int(&w, "clean", t->clean);
    json_put_bool(&w, "strip_sep", t->strip_sep >= 0);
    for (int k = 0; k < 2; k++) {
        json_begin(&w, k ? "suffix" : "prefix", '[');
        for (int i = 0; i < (k ? t->suffixes : t->prefixes); i++)
            json_put_int(&w, NULL, k ? t->suffix[i] : t->prefix[i]);
        json_end(&w);
    }
    json_put_raw(&w, "tokenizer", t->source.data, t->source.len);
    json_end(&w);
    json_out_back(&w, out);
}

cloob_status pipeline_read_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, pipeline **out)
{
    arena a = { 0 };
    json *root;
    int64_t clean = 0, id;
    static const char key[] = ",\"tokenizer\":"; /* of the first level: what is before it has no such text */
    const char *at = memmem(text, size, key, strlen(key));
    *out = NULL;
    CLOOB_TRY(json_parse(ctx, &a, text, size, name, &root));
    json_int(json_get(root, "clean"), &clean);
    pipeline_config c = { .class_name = json_string(json_get(root, "class")),
                          .pad = json_string(json_get(root, "pad")),
                          .pad_side = true,
                          .pad_left = flag(root, "pad_left", false),
                          .strip_sep = flag(root, "strip_sep", false),
                          .clean = clean > 0 && clean <= PIPELINE_CANONICAL ? (pipeline_clean)clean : PIPELINE_AS_IS };
    if (c.pad && !*c.pad) c.pad = NULL;
    cloob_status status =
        at && json_get(root, "tokenizer") ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: damaged", name);
    size_t from = at ? (size_t)(at - text) + strlen(key) : 0;
    while (size > from && strchr(" \r\n\t", text[size - 1])) size--;
    if (status == CLOOB_OK) status = pipeline_read(ctx, text + from, size - from - 1, name, &c, out);
    reader r = { ctx, name, *out };
    if (status == CLOOB_OK) (*out)->prefixes = (*out)->suffixes = 0;
    for (int k = 0; k < 2; k++)
        for (const json *e = json_first(json_get(root, k ? "suffix" : "prefix")); e && status == CLOOB_OK;
             e = json_next(e))
            status = json_int(e, &id) ? add_special(&r, id, k) : bad(&r, "damaged");
    arena_release(&a);
    if (status != CLOOB_OK) pipeline_close(*out), *out = NULL;
    return status;
}

/* ---- older folders ------------------------------------------------------------------------------- */

static void put_special(json_out *w, const char *name, int64_t id)
{
    json_begin(w, NULL, '{');
    json_put_int(w, "id", id);
    json_put_text(w, "content", name);
    json_put_bool(w, "special", true);
    json_end(w);
}

static void put_typed(json_out *w, const char *key, const char *type)
{
    json_begin(w, key, '{');
    json_put_text(w, "type", type);
}

/* One piece per line; the line is the id. */
void pipeline_from_vocab_txt(const char *vocab_text, size_t size, bool lower, sbuf *out)
{
    static const char *const names[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" };
    int64_t special[5] = { -1, -1, -1, -1, -1 }, id = 0;
    json_out w = json_out_on(out), vocab_out = { 0 };
    json_begin(&vocab_out, NULL, '{');
    for (const char *at = vocab_text, *end = vocab_text + size; at < end; id++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        char line[512];
        size_t n = (size_t)((stop ? stop : end) - at);
        if (n && at[n - 1] == '\r') n--;
        if (n >= sizeof line) n = sizeof line - 1;
        memcpy(line, at, n);
        line[n] = '\0';
        for (int k = 0; k < 5; k++)
            if (strcmp(line, names[k]) == 0) special[k] = id;
        json_put_int(&vocab_out, line, id);
        at = stop ? stop + 1 : end;
    }
    json_end(&vocab_out);
    json_begin(&w, NULL, '{');
    json_begin(&w, "added_tokens", '[');
    for (int k = 0; k < 5; k++)
        if (special[k] >= 0) put_special(&w, names[k], special[k]);
    json_end(&w);
    put_typed(&w, "normalizer", "BertNormalizer");
    json_put_bool(&w, "lowercase", lower);
    json_end(&w);
    put_typed(&w, "pre_tokenizer", "BertPreTokenizer");
    json_end(&w);
    put_typed(&w, "post_processor", "BertProcessing");
    for (int k = 3; k >= 2; k--) {
        json_begin(&w, k == 3 ? "sep" : "cls", '[');
        json_put_text(&w, NULL, names[k]);
        json_put_int(&w, NULL, special[k]);
        json_end(&w);
    }
    json_end(&w);
    put_typed(&w, "model", "WordPiece");
    json_put_text(&w, "unk_token", "[UNK]");
    json_put_raw(&w, "vocab", vocab_out.data, vocab_out.len);
    json_end(&w);
    json_end(&w);
    w.failed |= vocab_out.failed;
    free(vocab_out.data);
    json_out_back(&w, out);
}

void pipeline_from_merges(bool clip, const char *vocab_text, size_t vocab_size, const char *merges, size_t size,
                          sbuf *out)
{
    static const char *const names[] = { "<s>", "<pad>", "</s>", "<unk>" };
    json_out w = json_out_on(out);
    json_begin(&w, NULL, '{');
    json_begin(&w, "added_tokens", '[');
    for (int k = 0; k < 4 && !clip; k++) put_special(&w, names[k], k);
    json_end(&w);
    put_typed(&w, "pre_tokenizer", "ByteLevel");
    json_put_bool(&w, "add_prefix_space", false);
    json_end(&w);
    put_typed(&w, "post_processor", "RobertaProcessing");
    for (int k = 2; k >= 0; k -= 2) {
        json_begin(&w, k ? "sep" : "cls", '[');
        json_put_text(&w, NULL, names[k]);
        json_put_int(&w, NULL, k);
        json_end(&w);
    }
    json_end(&w);
    put_typed(&w, "model", "BPE");
    if (clip) json_put_text(&w, "end_of_word_suffix", "</w>");
    json_put_raw(&w, "vocab", vocab_text, vocab_size);
    json_begin(&w, "merges", '[');
    for (const char *at = merges, *end = merges + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        char line[1024];
        size_t n = (size_t)((stop ? stop : end) - at);
        if (n && at[n - 1] == '\r') n--;
        if (n && n < sizeof line && strncmp(at, "#version", 8) != 0) {
            memcpy(line, at, n);
            line[n] = '\0';
            json_put_text(&w, NULL, line);
        }
        at = stop ? stop + 1 : end;
    }
    json_end(&w);
    json_end(&w);
    json_end(&w);
    json_out_back(&w, out);
}
