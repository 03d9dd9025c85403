/* Reads and stores tokenizer.json: added tokens, normalizers, pre-tokenizers, a model and a template. The file is
 * untrusted: every id is checked, and unknown types are errors that name the type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/text/tokenizer_impl.h"

typedef struct reader {
    cloob_ctx *ctx;
    const char *name;
    tokenizer *t;
} reader;

static cloob_status bad(const reader *r, const char *what)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %s", r->name, what);
}

static cloob_status unknown_kind(const reader *r, const char *what, const char *type)
{
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED, "%s: %s type %.60s is not supported", r->name, what,
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
    s.from = from ? arena_string(&r->t->a, from) : NULL;
    s.to = to ? arena_string(&r->t->a, to) : NULL;
    if ((from && !s.from) || (to && !s.to)) return ctx_no_memory(r->ctx, 64, r->name);
    return steps_add(r->t, s) ? CLOOB_OK : bad(r, "too many normalizers and pre-tokenizers");
}

/* Adds a step without parameters. */
static cloob_status add_plain(const reader *r, step_kind kind)
{
    return add_step(r, (step){ .kind = kind }, NULL, NULL);
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
    if (flag(v, "clean_text", true)) CLOOB_TRY(add_plain(r, STEP_BERT_CLEAN));
    if (flag(v, "handle_chinese_chars", true)) CLOOB_TRY(add_plain(r, STEP_BERT_CHINESE));
    if (accents) {
        CLOOB_TRY(add_plain(r, STEP_NFD));
        CLOOB_TRY(add_plain(r, STEP_ACCENTS));
    }
    return lower ? add_plain(r, STEP_LOWER) : CLOOB_OK;
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
    return add_plain(r, STEP_CHARSMAP);
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
    if (is(type, "WhitespaceSplit")) return add_plain(r, STEP_SPLIT_SPACES);
    if (is(type, "BertPreTokenizer")) return add_plain(r, STEP_SPLIT_BERT);
    if (is(type, "Metaspace")) return add_metaspace(r, v);
    if (is(type, "Split")) return add_split(r, v);
    if (!is(type, "ByteLevel")) return unknown_kind(r, "pre-tokenizer", type);
    step s = { .kind = STEP_SPLIT_BYTES,
               .left = flag(v, "add_prefix_space", true),
               .right = flag(v, "use_regex", true) };
    return add_step(r, s, NULL, NULL);
}

/* ---- vocabulary ---------------------------------------------------------------------------------- */

typedef struct vocab_row {
    const char *text;
    double score;
} vocab_row;

typedef struct vocab_rows {
    vocab_row *row; /* indexed by id; text NULL: no piece with this id */
    int64_t count, capacity;
} vocab_rows;

static cloob_status set_row(const reader *r, vocab_rows *v, int64_t id, const char *text, double score)
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

static cloob_status gather(const reader *r, const json *root, const json *model, vocab_rows *v)
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
    vocab_rows v = { 0 };
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

/* Splits a merge into its two symbols: "a b", or ["a", "b"] in newer files. False: invalid. */
static bool merge_sides(const json *e, const char **left, size_t *n, const char **right)
{
    const char *one = json_string(e), *gap = one ? strchr(one, ' ') : NULL;
    bool list = e->kind == JSON_ARRAY && e->count == 2;
    *left = list ? json_string(e->child) : one;
    *right = list ? json_string(e->child->next) : gap ? gap + 1 : NULL;
    if (!*left || !*right) return false;
    *n = list ? strlen(*left) : (size_t)(gap - one);
    return true;
}

static cloob_status read_merges(const reader *r, const json *model)
{
    pieces *p = &r->t->p;
    const json *list = json_get(model, "merges");
    sbuf both = { 0 };
    int32_t rank = 0;
    bool good = list && list->kind == JSON_ARRAY, memory = true;
    for (const json *e = good ? list->child : NULL; e && good && memory; e = e->next, rank++) {
        const char *left, *right;
        size_t n;
        good = merge_sides(e, &left, &n, &right);
        if (!good) break;
        both.len = 0;
        sbuf_add(&both, left, n), sbuf_puts(&both, right);
        int32_t a = pieces_find(p, left, n), b = pieces_find(p, right, strlen(right)),
                id = both.failed ? -1 : pieces_find(p, both.data, both.len);
        good = a >= 0 && b >= 0 && id >= 0;
        if (good) memory = pieces_add_pair(p, a, b, rank, id);
    }
    sbuf_release(&both);
    if (!memory) return ctx_no_memory(r->ctx, 1 << 20, r->name);
    return good ? CLOOB_OK : bad(r, "a merge that is not two pieces of its vocabulary which make a third");
}

static cloob_status read_model(const reader *r, const json *root)
{
    const json *model = json_get(root, "model");
    const char *type = json_string(json_get(model, "type")), *prefix, *suffix;
    pieces *p = &r->t->p;
    int64_t unk = -1, limit = 100;
    bool words = is(type, "WordPiece"), bpe = is(type, "BPE");
    if (!words && !bpe && !is(type, "Unigram")) return unknown_kind(r, "model", type);
    p->model = words ? PIECES_WORDS : bpe ? PIECES_MERGES : PIECES_UNIGRAM;
    p->byte_fallback = flag(model, "byte_fallback", false);
    p->like_tokenizers = true;
    prefix = json_string(json_get(model, "continuing_subword_prefix"));
    suffix = json_string(json_get(model, "end_of_word_suffix"));
    if (words && prefix && !is(prefix, "##")) return unknown_kind(r, "continuing_subword_prefix", prefix);
    if (bpe && prefix && *prefix) return unknown_kind(r, "continuing_subword_prefix", prefix);
    if (bpe && suffix && *suffix) return unknown_kind(r, "end_of_word_suffix", suffix);
    if (bpe && flag(model, "ignore_merges", false)) return unknown_kind(r, "BPE model", "ignore_merges");
    json_int(json_get(model, "max_input_chars_per_word"), &limit);
    p->word_limit = limit > 0 && limit < 1 << 20 ? (int32_t)limit : 100;
    if (!bpe && !words && !json_int(json_get(model, "unk_id"), &unk)) return bad(r, "a unigram model without unk_id");
    CLOOB_TRY(fill_pieces(r, root, model, unk));
    p->no_unknown = bpe; /* if there is no unknown piece, unknown text is dropped */
    CLOOB_TRY(pieces_finish(r->ctx, p, r->name));
    return bpe ? read_merges(r, model) : CLOOB_OK;
}

/* ---- added tokens and the template --------------------------------------------------------------- */

static cloob_status read_added(const reader *r, const json *root)
{
    const json *list = json_get(root, "added_tokens");
    tokenizer *t = r->t;
    t->added = calloc((size_t)json_count(list) + 1, sizeof *t->added);
    if (!t->added) return ctx_no_memory(r->ctx, 64, r->name);
    for (const json *e = json_first(list); e; e = json_next(e)) {
        int64_t id = 0;
        json_int(json_get(e, "id"), &id); /* checked with the vocabulary */
        added_token *a = &t->added[t->added_count];
        *a = (added_token){ .text = arena_string(&t->a, json_string(json_get(e, "content"))),
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

static int32_t id_of(const tokenizer *t, const char *text)
{
    for (int64_t i = 0; text && i < t->added_count; i++)
        if (strcmp(t->added[i].text, text) == 0) return t->added[i].id;
    return text ? pieces_find(&t->p, text, strlen(text)) : -1;
}

static cloob_status add_special(const reader *r, int64_t id, bool suffix)
{
    tokenizer *t = r->t;
    int *n = suffix ? &t->suffixes : &t->prefixes;
    if (id < 0 || id >= t->p.count || *n == TOKENIZER_SPECIALS) return bad(r, "its template has an invalid token");
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

/* Adds a pair such as ["</s>", 2]. */
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

/* Applies the settings of tokenizer_config.json as transformers does. */
static cloob_status apply_config(const reader *r, const json *root, const tokenizer_config *c)
{
    tokenizer *t = r->t;
    static const char *const pads[] = { "<pad>", "[PAD]", "</s>", "<eos>" }, *const seps[] = { "[SEP]", "</s>" };
    const char *padding = json_string(json_get(json_get(root, "padding"), "direction"));
    t->pad = c->pad ? id_of(t, c->pad) : -1;
    for (size_t i = 0; t->pad < 0 && i < sizeof pads / sizeof *pads; i++) t->pad = id_of(t, pads[i]);
    if (t->pad < 0) t->pad = 0;
    t->pad_left =
        c->pad_side ? c->pad_left : is(padding, "Left") || (!padding && is(c->class_name, "Siglip2Tokenizer"));
    for (int i = 0; c->strip_sep && t->strip_sep < 0 && i < 2; i++) t->strip_sep = id_of(t, seps[i]);
    t->prepare = c->prepare;
    snprintf(t->class_name, sizeof t->class_name, "%s", c->class_name ? c->class_name : "");
    snprintf(t->pad_text, sizeof t->pad_text, "%s", c->pad ? c->pad : "");
    if (!c->add_bos && !c->add_eos) return CLOOB_OK;
    t->prefixes = t->suffixes = 0;
    if (c->add_bos > 0) CLOOB_TRY(add_special(r, id_of(t, c->bos ? c->bos : "<bos>"), false));
    return c->add_eos > 0 ? add_special(r, id_of(t, c->eos ? c->eos : "<eos>"), true) : CLOOB_OK;
}

/* ---- CLIP's tokenizer ----------------------------------------------------------------------------- */

/* CLIP's ids follow from its merges. Fails if the vocabulary has other ids. */
static cloob_status check_ids(cloob_ctx *ctx, const tokenizer *t, const json *vocab, const char *name)
{
    int64_t size = 0, id;
    for (const json *e = vocab->child; e; e = e->next, size++)
        if (!json_int(e, &id) || pieces_find(&t->p, e->key, strlen(e->key)) != id) break;
    if (size == t->p.count && size == vocab->count) return CLOOB_OK;
    return ctx_fail(
        ctx, CLOOB_ERR_UNSUPPORTED,
        "%s: a BPE vocabulary that is not numbered as CLIP's (bytes, bytes at a word's end, merges, start, end)", name);
}

static cloob_status read_clip(cloob_ctx *ctx, const json *model, const char *name, const tokenizer_config *c,
                              tokenizer **out)
{
    const json *merges = json_get(model, "merges"), *vocab = json_get(model, "vocab");
    sbuf text = { 0 };
    if (!merges || merges->kind != JSON_ARRAY || !vocab || vocab->kind != JSON_OBJECT)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a BPE model without merges and vocab", name);
    sbuf_puts(&text, "#version: 0.2\n");
    bool good = true;
    for (const json *e = merges->child; e && good; e = e->next) {
        const char *left, *right;
        size_t n;
        good = merge_sides(e, &left, &n, &right);
        if (good) sbuf_printf(&text, "%.*s %s\n", (int)n, left, right);
    }
    cloob_status status = !good || text.failed
                              ? ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a merge that is not two symbols", name)
                              : merges_read(ctx, text.data, text.len, name, out);
    sbuf_release(&text);
    CLOOB_TRY(status);
    CLOOB_TRY(tokenizer_or_close(check_ids(ctx, *out, vocab, name), out));
    int64_t pad = cloob_tokenizer_end_id(*out);
    if (c->pad) json_int(json_get(vocab, c->pad), &pad);
    (*out)->pad = pad >= 0 && pad < cloob_tokenizer_vocab_size(*out) ? (int32_t)pad : cloob_tokenizer_end_id(*out);
    (*out)->pad_special = (*out)->pad != cloob_tokenizer_end_id(*out);
    tokenizer_set_clean(*out, CLEAN_HF);
    return CLOOB_OK;
}

/* Whether words end in "</w>"; without the suffix, whether the vocabulary has such words and CLIP's start token. */
static bool is_clip(const json *model)
{
    const char *type = json_string(json_get(model, "type")),
               *suffix = json_string(json_get(model, "end_of_word_suffix"));
    if (!type || strcmp(type, "BPE") != 0) return false;
    const json *vocab = json_get(model, "vocab");
    return suffix && *suffix ? strcmp(suffix, "</w>") == 0
                             : json_get(vocab, "<|startoftext|>") && json_get(vocab, "a</w>");
}

/* ---- entry --------------------------------------------------------------------------------------- */

/* Appends JSON without the white space between its tokens. */
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

static cloob_status read_root(const reader *r, const json *root, const tokenizer_config *c)
{
    if (is(c->class_name, "Siglip2Tokenizer")) { /* transformers adds this step to those in the file */
        const json *n = json_get(root, "normalizer"), *e = json_first(json_get(n, "normalizers"));
        const char *type = json_string(json_get(e ? e : n, "type"));
        if (!is(type, "Lowercase")) CLOOB_TRY(add_plain(r, STEP_LOWER));
    }
    CLOOB_TRY(read_normalizer(r, json_get(root, "normalizer")));
    CLOOB_TRY(read_splitter(r, json_get(root, "pre_tokenizer")));
    CLOOB_TRY(read_model(r, root));
    CLOOB_TRY(read_added(r, root));
    CLOOB_TRY(read_post(r, json_get(root, "post_processor")));
    return apply_config(r, root, c);
}

static cloob_status read_any(cloob_ctx *ctx, const json *root, const char *text, size_t size, const char *name,
                             const tokenizer_config *c, tokenizer **out)
{
    if (is_clip(json_get(root, "model"))) return read_clip(ctx, json_get(root, "model"), name, c, out);
    CLOOB_TRY(tokenizer_create(ctx, FORM_JSON, out));
    cloob_status status = read_root(&(reader){ ctx, name, *out }, root, c);
    if (status == CLOOB_OK) put_dense(text, size, &(*out)->source);
    if (status == CLOOB_OK && (*out)->source.failed) status = ctx_no_memory(ctx, size, name);
    return tokenizer_or_close(status, out);
}

cloob_status tokenizer_read_json(cloob_ctx *ctx, const char *text, size_t size, const char *name,
                                 const tokenizer_config *config, tokenizer **out)
{
    static const tokenizer_config none = { 0 };
    arena a = { 0 };
    json *root;
    *out = NULL;
    cloob_status status = json_parse(ctx, &a, text, size, name, &root);
    if (status == CLOOB_OK) status = read_any(ctx, root, text, size, name, config ? config : &none, out);
    arena_release(&a);
    return status;
}

/* ---- the form of checkpoints --------------------------------------------------------------------- */

#define MARK_KEY "cloob_tokenizer"
static const char MARK[] = "{\"" MARK_KEY "\":1,";

bool json_form_is_text(const char *text, size_t size)
{
    return size > sizeof MARK && memcmp(text, MARK, sizeof MARK - 1) == 0;
}

/* Stores the template with the configuration applied. */
void json_form_save(const tokenizer *t, sbuf *out)
{
    json_out w = json_out_on(out);
    json_begin(&w, NULL, '{');
    json_members(&w, J_INT(MARK_KEY, 1), J_TEXT("class", t->class_name), J_TEXT("pad", t->pad_text), J_OF(t, pad_left),
                 J_INT("clean", t->prepare), J_BOOL("strip_sep", t->strip_sep >= 0));
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

static cloob_status read_form(cloob_ctx *ctx, const json *root, const char *text, size_t size, const char *name,
                              tokenizer **out)
{
    static const char key[] = ",\"tokenizer\":"; /* the key at the top level; the text before it does not contain the
                                                  * key */
    const char *at = memmem(text, size, key, strlen(key)), *pad = json_string(json_get(root, "pad"));
    int64_t prepare = 0, id;
    if (!at || !json_get(root, "tokenizer")) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: damaged", name);
    json_int(json_get(root, "clean"), &prepare);
    tokenizer_config c = { .class_name = json_string(json_get(root, "class")),
                           .pad = pad && *pad ? pad : NULL,
                           .pad_side = true,
                           .pad_left = flag(root, "pad_left", false),
                           .strip_sep = flag(root, "strip_sep", false) };
    if (prepare > 0 && prepare <= PREPARE_CANONICAL) c.prepare = (preparation)prepare;
    size_t from = (size_t)(at - text) + strlen(key);
    while (size > from && strchr(" \r\n\t", text[size - 1])) size--;
    CLOOB_TRY(tokenizer_read_json(ctx, text + from, size - from - 1, name, &c, out));
    if ((*out)->form != FORM_JSON) return CLOOB_OK;
    reader r = { ctx, name, *out };
    (*out)->prefixes = (*out)->suffixes = 0;
    for (int k = 0; k < 2; k++)
        for (const json *e = json_first(json_get(root, k ? "suffix" : "prefix")); e; e = json_next(e))
            CLOOB_TRY(json_int(e, &id) ? add_special(&r, id, k) : bad(&r, "damaged"));
    return CLOOB_OK;
}

cloob_status json_form_read(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out)
{
    arena a = { 0 };
    json *root;
    *out = NULL;
    cloob_status status = json_parse(ctx, &a, text, size, name, &root);
    if (status == CLOOB_OK) status = read_form(ctx, root, text, size, name, out);
    arena_release(&a);
    return tokenizer_or_close(status, out);
}

/* ---- older folders ------------------------------------------------------------------------------- */

static void put_special(json_out *w, const char *name, int64_t id)
{
    json_object(w, NULL, J_INT("id", id), J_TEXT("content", name), J_BOOL("special", true));
}

static void put_typed(json_out *w, const char *key, const char *type)
{
    json_begin(w, key, '{');
    json_put_text(w, "type", type);
}

/* Writes the template of BERT and RoBERTa: one token before every text and one after it. */
static void put_template(json_out *w, const char *type, const char *const names[2], const int64_t ids[2])
{
    put_typed(w, "post_processor", type);
    for (int k = 1; k >= 0; k--) {
        json_begin(w, k ? "sep" : "cls", '[');
        json_put_text(w, NULL, names[k]);
        json_put_int(w, NULL, ids[k]);
        json_end(w);
    }
    json_end(w);
}

/* Each line is a piece, and its number is the id. */
void json_from_vocab_txt(const char *vocab_text, size_t size, bool lower, sbuf *out)
{
    static const char *const names[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" };
    int64_t special[5] = { -1, -1, -1, -1, -1 }, id = 0;
    json_out w = json_out_on(out), vocab_out = { 0 };
    const char *line;
    size_t n;
    json_begin(&vocab_out, NULL, '{');
    for (const char *at = vocab_text; text_line(&at, vocab_text + size, &line, &n); id++) {
        char piece[512];
        snprintf(piece, sizeof piece, "%.*s", (int)(n < sizeof piece ? n : sizeof piece - 1), line);
        for (int k = 0; k < 5; k++)
            if (strcmp(piece, names[k]) == 0) special[k] = id;
        json_put_int(&vocab_out, piece, id);
    }
    json_end(&vocab_out);
    json_begin(&w, NULL, '{');
    json_begin(&w, "added_tokens", '[');
    for (int k = 0; k < 5; k++)
        if (special[k] >= 0) put_special(&w, names[k], special[k]);
    json_end(&w);
    json_object(&w, "normalizer", J_TEXT("type", "BertNormalizer"), J_BOOL("lowercase", lower));
    json_object(&w, "pre_tokenizer", J_TEXT("type", "BertPreTokenizer"));
    put_template(&w, "BertProcessing", names + 2, special + 2);
    put_typed(&w, "model", "WordPiece");
    json_put_text(&w, "unk_token", "[UNK]");
    json_put_raw(&w, "vocab", vocab_out.data, vocab_out.len);
    json_end(&w);
    json_end(&w);
    w.failed |= vocab_out.failed;
    free(vocab_out.data);
    json_out_back(&w, out);
}

void json_from_merges(bool clip, const char *vocab_text, size_t vocab_size, const char *merges, size_t size, sbuf *out)
{
    static const char *const names[] = { "<s>", "<pad>", "</s>", "<unk>" }, *const ends[] = { "<s>", "</s>" };
    json_out w = json_out_on(out);
    const char *line;
    size_t n;
    json_begin(&w, NULL, '{');
    json_begin(&w, "added_tokens", '[');
    for (int k = 0; k < 4 && !clip; k++) put_special(&w, names[k], k);
    json_end(&w);
    json_object(&w, "pre_tokenizer", J_TEXT("type", "ByteLevel"), J_BOOL("add_prefix_space", false));
    put_template(&w, "RobertaProcessing", ends, (const int64_t[]){ 0, 2 });
    put_typed(&w, "model", "BPE");
    if (clip) json_put_text(&w, "end_of_word_suffix", "</w>");
    json_put_raw(&w, "vocab", vocab_text, vocab_size);
    json_begin(&w, "merges", '[');
    for (const char *at = merges; text_line(&at, merges + size, &line, &n);) {
        char merge[1024];
        if (!n || n >= sizeof merge || (n >= 8 && memcmp(line, "#version", 8) == 0)) continue;
        snprintf(merge, sizeof merge, "%.*s", (int)n, line);
        json_put_text(&w, NULL, merge);
    }
    json_end(&w);
    json_end(&w);
    json_end(&w);
    json_out_back(&w, out);
}
