/* The vocabulary of a tokenizer: its tables, SentencePiece's normalisation, and the four algorithms that split a word
 * into pieces. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/hash.h"
#include "core/text.h"
#include "data/text/tokenizer_impl.h"

enum { WORD_END_BYTES = 4 };

/* ---- the table of pieces ------------------------------------------------------------------------- */

enum { NO_PIECE = -1 };

/* Adds a piece to the index. Its value is the piece's id plus 1; models that search for the longest piece also need all
 * prefixes of pieces, with value 0. False: out of memory. */
static bool index_piece(pieces *p, int32_t id)
{
    const unsigned char *text = (const unsigned char *)p->text.data + p->piece[id].at;
    uint64_t h = FNV_START;
    for (uint32_t i = 0; i < p->piece[id].bytes; i++) {
        bool whole = i + 1 == p->piece[id].bytes;
        h = fnv_add(h, &text[i], 1);
        if (!whole && p->model == PIECES_MERGES) continue;
        int64_t *at = hash_map_put(&p->index, h);
        if (!at) return false;
        if (*at <= 0) *at = whole ? id + 1 : 0; /* among equal pieces, the first one is used */
    }
    return true;
}

static bool is_piece(const pieces *p, int32_t id, const char *text, size_t bytes)
{
    return id >= 0 && p->piece[id].bytes == bytes && memcmp(p->text.data + p->piece[id].at, text, bytes) == 0;
}

int32_t pieces_find(const pieces *p, const char *text, size_t bytes)
{
    int32_t id = (int32_t)hash_map_get(&p->index, fnv_add(FNV_START, text, bytes)) - 1;
    return is_piece(p, id, text, bytes) ? id : NO_PIECE;
}

/* A walk through the prefixes of a text, byte by byte, until no piece starts with the prefix. */
typedef struct walk {
    uint64_t hash;
    size_t bytes;
} walk;

/* Extends the prefix by one byte. Returns false if no piece starts with it. *id: the piece equal to the prefix, or
 * NO_PIECE. */
static bool walk_step(const pieces *p, walk *w, const char *text, int32_t *id)
{
    w->hash = fnv_add(w->hash, &text[w->bytes++], 1);
    int64_t found = hash_map_get(&p->index, w->hash);
    *id = is_piece(p, (int32_t)found - 1, text, w->bytes) ? (int32_t)found - 1 : NO_PIECE;
    return found >= 0;
}

/* Length of the longest user-defined piece at the start of a text; 0 if there is none. */
static size_t user_bytes(const pieces *p, const char *text, size_t bytes)
{
    walk w = { FNV_START, 0 };
    size_t longest = 0;
    int32_t id;
    while (p->user_pieces && w.bytes < bytes && walk_step(p, &w, text, &id))
        if (id >= 0 && p->piece[id].type == PIECE_USER) longest = w.bytes;
    return longest;
}

bool pieces_add(pieces *p, const char *text, size_t bytes, float score, piece_type type)
{
    if ((p->count & (p->count - 1)) == 0) {
        piece_row *more = realloc(p->piece, (size_t)(p->count ? 2 * p->count : 1) * sizeof *more);
        if (!more) return false;
        p->piece = more;
    }
    p->piece[p->count] = (piece_row){ (uint32_t)p->text.len, (uint32_t)bytes, score, (uint8_t)type, false };
    sbuf_add(&p->text, text, bytes);
    if (p->text.failed) return false;
    p->count++;
    return !p->index.entry || index_piece(p, p->count - 1);
}

void pieces_release(pieces *p)
{
    free(p->piece);
    hash_map_release(&p->index);
    hash_map_release(&p->merges);
    sbuf_release(&p->text);
    sbuf_release(&p->charsmap);
    *p = (pieces){ 0 };
}

static void find_special(pieces *p)
{
    for (int b = 0; b < BYTES; b++) p->byte_id[b] = -1;
    p->unknown = -1;
    p->min_score = INFINITY, p->max_score = FLT_MIN; /* FLT_MIN as in sentencepiece: almost 0, because scores are
                                                      * negative */
    for (int32_t i = 0; i < p->count; i++) {
        const char *text = p->text.data + p->piece[i].at;
        char *end;
        if (p->piece[i].type == PIECE_UNKNOWN) p->unknown = i;
        p->user_pieces |= p->piece[i].type == PIECE_USER;
        if (p->piece[i].type == PIECE_BYTE && p->piece[i].bytes == 6) p->byte_id[strtol(text + 3, &end, 16) & 255] = i;
        if (p->piece[i].type != PIECE_NORMAL) continue;
        p->min_score = fminf(p->min_score, p->piece[i].score);
        p->max_score = fmaxf(p->max_score, p->piece[i].score);
    }
}

cloob_status pieces_finish(cloob_ctx *ctx, pieces *p, const char *name)
{
    if (p->count < 3)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a vocabulary of %d pieces is too small; at least 3 are needed",
                        name, p->count);
    find_special(p);
    /* a sparse table, because most lookups fail */
    uint64_t keys = p->model == PIECES_MERGES ? (uint64_t)p->count : 3 * (uint64_t)p->text.len / 2;
    if (!hash_map_reserve(&p->index, keys)) return ctx_no_memory(ctx, p->text.len, name);
    for (int32_t i = 0; i < p->count; i++)
        if ((p->piece[i].type == PIECE_NORMAL || p->piece[i].type == PIECE_USER) && !index_piece(p, i))
            return ctx_no_memory(ctx, p->text.len, name);
    if (p->unknown < 0 && !p->no_unknown)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the vocabulary has no unknown piece", name);
    for (int b = 0; p->byte_fallback && b < BYTES; b++)
        if (p->byte_id[b] < 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the vocabulary has no piece for byte %d", name, b);
    return CLOOB_OK;
}

bool pieces_reserve(pieces *p, int64_t n)
{
    p->unknown = -1;
    return hash_map_reserve(&p->index, (uint64_t)n) && hash_map_reserve(&p->merges, (uint64_t)n);
}

bool pieces_add_pair(pieces *p, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    int64_t *at = hash_map_put(&p->merges, hash_pair(left, right));
    if (at) *at = (int64_t)rank << 32 | id; /* if a merge occurs twice, the last one is used */
    return at != NULL;
}

/* ---- normalisation ------------------------------------------------------------------------------- */

static uint32_t unit_at(const pieces *p, size_t i, size_t units)
{
    return i < units ? (uint32_t)load_le(p->charsmap.data + 4 + 4 * i, 4) : 0;
}

static size_t unit_offset(uint32_t u) { return (size_t)(u >> 10) << ((u & 1u << 9) >> 6); }

/* Length of the longest (or shortest) prefix of the text that the character map replaces, and the replacement; 0 if
 * there is none. */
static size_t map_prefix(const pieces *p, const char *text, size_t bytes, bool shortest, const char **to)
{
    size_t longest = 0, units, at, all = p->charsmap.len;
    if (all < 8) return 0;
    units = load_le(p->charsmap.data, 4) / 4;
    if (units > (all - 4) / 4) return 0;
    at = unit_offset(unit_at(p, 0, units));
    for (size_t i = 0; i < bytes; i++) {
        at ^= (unsigned char)text[i];
        uint32_t u = unit_at(p, at, units);
        if ((u & (1u << 31 | 0xff)) != (unsigned char)text[i] || at >= units) break;
        at ^= unit_offset(u);
        size_t value = unit_at(p, at, units) & 0x7fffffff;
        if ((u >> 8 & 1) && at < units && 4 + 4 * units + value < all) {
            longest = i + 1;
            *to = p->charsmap.data + 4 + 4 * units + value;
            if (shortest) break;
        }
    }
    return longest;
}

/* Bytes of the first grapheme cluster (the user-perceived character). */
static size_t grapheme_bytes(const char *text, size_t bytes)
{
    enum { MAX_CODES = 16 }; /* longer than any key of the map; longer clusters are mapped code point by code point */
    uint32_t code[MAX_CODES];
    size_t n = 0, at = 0, end[MAX_CODES];
    while (n < MAX_CODES && at < bytes) {
        int used = utf8_decode(text + at, bytes - at, &code[n]);
        if (used <= 0) break;
        end[n++] = at += (size_t)used;
    }
    return n ? end[uni_grapheme(code, n) - 1] : 1;
}

/* As the tokenizers library: a grapheme cluster of fewer than 6 bytes is replaced as a whole if the map has its
 * shortest matching prefix; otherwise its first code point is. Returns the number of bytes replaced. */
static size_t map_grapheme(const pieces *p, const char *text, size_t bytes, const char **to)
{
    enum { SHORT = 6 };
    size_t whole = grapheme_bytes(text, bytes);
    uint32_t code;
    if (whole < SHORT && map_prefix(p, text, whole, true, to)) return whole;
    int first = utf8_decode(text, bytes, &code);
    return first > 0 && map_prefix(p, text, (size_t)first, true, to) ? (size_t)first : 0;
}

/* One step of the normaliser: replacement of the next bytes. Returns the number of bytes replaced. */
static size_t map_next(const pieces *p, const char *text, size_t bytes, const char **to, size_t *n)
{
    uint32_t code;
    size_t used = user_bytes(p, text, bytes);
    *to = text;
    *n = used;
    if (used) return used;
    used = p->like_tokenizers ? map_grapheme(p, text, bytes, to) : map_prefix(p, text, bytes, false, to);
    if (used) {
        *n = strnlen(*to, (size_t)(p->charsmap.data + p->charsmap.len - *to));
        return used;
    }
    int char_bytes = utf8_decode(text, bytes, &code);
    *n = char_bytes > 0 ? (size_t)char_bytes : 3;
    *to = char_bytes > 0 ? text : "\xef\xbf\xbd";
    return char_bytes > 0 ? (size_t)char_bytes : 1;
}

void pieces_map(const pieces *p, const char *text, size_t bytes, sbuf *out)
{
    for (size_t i = 0, n; i < bytes;) {
        const char *to;
        i += map_next(p, text + i, bytes - i, &to, &n);
        sbuf_add(out, to, n);
    }
}

static void normalise(const pieces *p, const char *text, size_t bytes, sbuf *out)
{
    bool after_space = p->fold_spaces, begun = false;
    for (size_t i = 0, n; i < bytes;) {
        const char *to;
        i += map_next(p, text + i, bytes - i, &to, &n);
        while (after_space && n && *to == ' ') to++, n--;
        if (!n) continue;
        if (!begun && p->prefix) sbuf_add(out, META, META_BYTES);
        begun = true;
        for (size_t k = 0; k < n; k++)
            if (to[k] == ' ') sbuf_add(out, META, META_BYTES);
            else sbuf_putc(out, to[k]);
        after_space = p->fold_spaces && to[n - 1] == ' ';
    }
    while (p->fold_spaces && out->len >= META_BYTES && memcmp(out->data + out->len - META_BYTES, META, META_BYTES) == 0)
        out->len -= META_BYTES;
}

/* ---- ids ----------------------------------------------------------------------------------------- */

static void add_id(sbuf *ids, int32_t id) { sbuf_add(ids, (const char *)&id, sizeof id); }

/* Adds text that is not in the vocabulary: its bytes, or one unknown piece for a run of such text. */
static void add_unknown(const pieces *p, const char *text, size_t bytes, bool after_unknown, sbuf *ids)
{
    if (!p->byte_fallback) {
        if (!after_unknown && p->unknown >= 0) add_id(ids, p->unknown);
        return;
    }
    for (size_t i = 0; i < bytes; i++) add_id(ids, p->byte_id[(unsigned char)text[i]]);
}

/* ---- unigram: the path with the best score -------------------------------------------------------- */

typedef struct path_node {
    double score;
    int32_t from, id; /* start of the path's last piece, and its id; from -1: not reached */
} path_node;

/* The tokenizers library sums scores in double. sentencepiece sums in float and, since 0.2.2, also compares in
 * float. */
static double sum_of(const pieces *p, double before, double score)
{
    return p->like_tokenizers ? before + score : (double)(float)(before + score);
}

static void reach(path_node *at, int32_t from, int32_t id, double sum)
{
    if (at->from < 0 || sum > at->score) *at = (path_node){ sum, from, id };
}

static double score_of(const pieces *p, int32_t id, size_t bytes)
{
    if (p->piece[id].type == PIECE_USER) return (double)((float)bytes * p->max_score) - 0.1;
    return (double)p->piece[id].score;
}

static size_t char_bytes(unsigned char c) { return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4; }

static void all_paths(const pieces *p, const char *text, size_t n, path_node *node)
{
    double unknown = sum_of(p, (double)p->min_score, -10);
    for (size_t i = 0; i <= n; i++) node[i] = (path_node){ 0, -1, NO_PIECE };
    for (size_t i = 0; i < n;) {
        size_t one = char_bytes((unsigned char)text[i]);
        bool single = false;
        walk w = { FNV_START, 0 };
        int32_t id;
        if (one > n - i) one = n - i;
        while (w.bytes < n - i && walk_step(p, &w, text + i, &id)) {
            if (id < 0) continue;
            reach(&node[i + w.bytes], (int32_t)i, id, sum_of(p, node[i].score, score_of(p, id, w.bytes)));
            single |= w.bytes == one;
        }
        if (!single) reach(&node[i + one], (int32_t)i, p->unknown, sum_of(p, node[i].score, unknown));
        i += one;
    }
}

static cloob_status unigram(cloob_ctx *ctx, const pieces *p, const char *text, size_t n, sbuf *ids)
{
    path_node *node = malloc((n + 1) * sizeof *node);
    if (!node) return ctx_no_memory(ctx, (n + 1) * sizeof *node, "encoding a text");
    all_paths(p, text, n, node);
    int32_t next = -1; /* reverses the path: `from` of a node becomes the end of the next piece */
    for (int32_t at = (int32_t)n; at > 0;) {
        int32_t from = node[at].from;
        node[at].from = next;
        next = at;
        at = from;
    }
    int32_t begin = 0;
    for (bool after_unknown = false; next >= 0;) {
        int32_t end = next, id = node[end].id;
        if (id == p->unknown) add_unknown(p, text + begin, (size_t)(end - begin), after_unknown, ids);
        else add_id(ids, id);
        after_unknown = id == p->unknown;
        begin = end;
        next = node[end].from;
    }
    free(node);
    return CLOOB_OK;
}

/* ---- BPE: merges in order of score ---------------------------------------------------------------- */

typedef struct symbol {
    int32_t prev, next;
    uint32_t at, bytes; /* bytes 0: merged into the previous symbol */
    int32_t id;         /* for PIECES_MERGES; below 0: unknown */
    bool frozen;        /* user-defined piece, never merged */
} symbol;

typedef struct merge {
    float score;
    int32_t left, right;
    uint32_t bytes;
    int32_t id;
} merge;

typedef struct heap {
    merge *m;
    int64_t n, cap;
    bool failed;
} heap;

static bool better(const merge *a, const merge *b)
{
    return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static void heap_push(heap *h, merge m)
{
    if (!heap_grow(&h->m, h->n, &h->cap, sizeof *h->m)) {
        h->failed = true;
        return;
    }
    int64_t i = h->n++;
    for (; i > 0 && better(&m, &h->m[(i - 1) / 2]); i = (i - 1) / 2) h->m[i] = h->m[(i - 1) / 2];
    h->m[i] = m;
}

static merge heap_pop(heap *h)
{
    merge top = h->m[0], last = h->m[--h->n];
    int64_t i = 0;
    for (int64_t c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && better(&h->m[c + 1], &h->m[c])) c++;
        if (!better(&h->m[c], &last)) break;
        h->m[i] = h->m[c];
    }
    if (h->n) h->m[i] = last;
    return top;
}

static void consider(const pieces *p, heap *h, const symbol *s, const char *text, int32_t left, int32_t right)
{
    if (left < 0 || right < 0 || s[left].frozen || s[right].frozen) return;
    uint32_t bytes = s[left].bytes + s[right].bytes;
    if (p->model == PIECES_MERGES) {
        bool known = s[left].id >= 0 && s[right].id >= 0;
        int64_t m = known ? hash_map_get(&p->merges, hash_pair(s[left].id, s[right].id)) : -1; /* rank and id */
        if (m >= 0) heap_push(h, (merge){ -(float)(m >> 32), left, right, bytes, (int32_t)m });
        return;
    }
    int32_t id = pieces_find(p, text + s[left].at, bytes);
    if (id >= 0) heap_push(h, (merge){ p->piece[id].score, left, right, bytes, id });
}

/* Splits a word into characters and user-defined pieces. With PIECES_MERGES, a character that is not a piece is split
 * into its bytes (if the vocabulary has all bytes), and the last character includes the end-of-word mark. */
static int32_t split(const pieces *p, const char *text, size_t n, symbol *s)
{
    bool merges = p->model == PIECES_MERGES;
    int32_t count = 0;
    for (size_t i = 0; i < n;) {
        size_t user = merges ? 0 : user_bytes(p, text + i, n - i);
        size_t one = user ? user : char_bytes((unsigned char)text[i]);
        if (p->word_ends && i + one + WORD_END_BYTES == n) one += WORD_END_BYTES;
        if (one > n - i) one = n - i;
        int32_t id = merges ? pieces_find(p, text + i, one) : -1;
        size_t part = merges && id < 0 && p->byte_fallback ? 1 : one;
        for (size_t end = i + one; i < end; i += part, count++) {
            if (part < one || (merges && id < 0)) id = p->byte_fallback ? p->byte_id[(unsigned char)text[i]] : -1;
            s[count] = (symbol){ count - 1, count + 1, (uint32_t)i, (uint32_t)part, id, user > 0 };
        }
    }
    if (count) s[count - 1].next = -1;
    return count;
}

static void merge_all(const pieces *p, heap *h, symbol *s, const char *text)
{
    while (h->n && !h->failed) {
        merge m = heap_pop(h);
        symbol *a = &s[m.left], *b = &s[m.right];
        /* one of the symbols was merged since */
        if (!a->bytes || !b->bytes || a->bytes + b->bytes != m.bytes || a->next != m.right) continue;
        a->bytes = m.bytes;
        a->id = m.id;
        a->next = b->next;
        if (b->next >= 0) s[b->next].prev = m.left;
        b->bytes = 0;
        consider(p, h, s, text, a->prev, m.left);
        consider(p, h, s, text, m.left, a->next);
    }
}

static cloob_status bpe(cloob_ctx *ctx, const pieces *p, const char *text, size_t n, sbuf *ids)
{
    heap h = { 0 };
    symbol *s = malloc((n + 1) * sizeof *s);
    if (!s) return ctx_no_memory(ctx, (n + 1) * sizeof *s, "encoding a text");
    int32_t count = split(p, text, n, s);
    for (int32_t i = 0; i + 1 < count; i++) consider(p, &h, s, text, i, i + 1);
    merge_all(p, &h, s, text);
    bool after_unknown = false;
    for (int32_t i = count ? 0 : -1; i >= 0; i = s[i].next) {
        int32_t id = p->model == PIECES_MERGES ? s[i].id : pieces_find(p, text + s[i].at, s[i].bytes);
        if (id < 0) add_unknown(p, text + s[i].at, s[i].bytes, after_unknown, ids);
        else add_id(ids, id);
        after_unknown = id < 0;
    }
    bool failed = h.failed;
    free(h.m);
    free(s);
    return failed ? ctx_no_memory(ctx, n * sizeof(merge), "encoding a text") : CLOOB_OK;
}

/* ---- WordPiece: longest piece first --------------------------------------------------------------- */

static size_t longest_piece(const pieces *p, const char *text, size_t n, size_t from, int32_t *id)
{
    walk w = { FNV_START, 0 };
    size_t longest = 0;
    int32_t here;
    while (w.bytes < n && walk_step(p, &w, text, &here))
        if (here >= 0 && w.bytes > from) longest = w.bytes, *id = here;
    return longest;
}

/* A word is unknown as a whole if any part is not a piece. */
static cloob_status words(cloob_ctx *ctx, const pieces *p, const char *word, size_t n, sbuf *ids)
{
    enum { MARK = 2 }; /* "##" */
    size_t first = ids->len, chars = 0;
    char *text = malloc(n + MARK);
    if (!text) return ctx_no_memory(ctx, n, "encoding a text");
    memcpy(text + MARK, word, n);
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)word[i] & 0xC0) != 0x80;
    bool known = (int64_t)chars <= p->word_limit;
    for (size_t at = 0; known && at < n;) {
        size_t mark = at ? MARK : 0, used;
        int32_t id;
        if (at) memset(text + at, '#', MARK); /* overwrites bytes that were consumed */
        used = longest_piece(p, text + at + MARK - mark, n - at + mark, mark, &id);
        known = used > 0;
        if (known) add_id(ids, id), at += used - mark;
    }
    if (!known) ids->len = first, add_id(ids, p->unknown);
    free(text);
    return CLOOB_OK;
}

cloob_status pieces_cut(cloob_ctx *ctx, const pieces *p, const char *word, size_t bytes, sbuf *ids)
{
    if (!bytes) return CLOOB_OK;
    int32_t id = p->word_ends ? pieces_find(p, word, bytes) : NO_PIECE;
    if (id >= 0 && p->piece[id].whole) {
        add_id(ids, id);
        return CLOOB_OK;
    }
    if (p->model == PIECES_WORDS) return words(ctx, p, word, bytes, ids);
    return (p->model == PIECES_UNIGRAM ? unigram : bpe)(ctx, p, word, bytes, ids);
}

/* ---- entry points -------------------------------------------------------------------------------- */

static cloob_status encode_plain(cloob_ctx *ctx, const pieces *p, const char *text, size_t bytes, sbuf *ids)
{
    sbuf clean = { 0 };
    normalise(p, text, bytes, &clean);
    cloob_status status = clean.failed ? ctx_no_memory(ctx, bytes, "encoding a text") : CLOOB_OK;
    if (status == CLOOB_OK && clean.len) status = pieces_cut(ctx, p, clean.data, clean.len, ids);
    sbuf_release(&clean);
    return status;
}

cloob_status pieces_encode(cloob_ctx *ctx, const pieces *p, const char *text, size_t bytes, bool behind, sbuf *ids)
{
    static const char unknown[] = "<unk>";
    sbuf all = { 0 }, alone = { 0 }, both = { 0 };
    if (!behind) return encode_plain(ctx, p, text, bytes, ids);
    sbuf_puts(&all, unknown);
    sbuf_add(&all, text, bytes);
    cloob_status status = all.failed ? ctx_no_memory(ctx, bytes, "encoding a text") : CLOOB_OK;
    if (status == CLOOB_OK) status = encode_plain(ctx, p, unknown, strlen(unknown), &alone);
    if (status == CLOOB_OK) status = encode_plain(ctx, p, all.data, all.len, &both);
    size_t from = both.len >= alone.len ? alone.len : 0;
    if (status == CLOOB_OK && both.len > from) sbuf_add(ids, both.data + from, both.len - from);
    ids->failed |= both.failed || alone.failed;
    sbuf_release(&all);
    sbuf_release(&alone);
    sbuf_release(&both);
    return status;
}

void pieces_put(const pieces *p, int32_t id, sbuf *out)
{
    const piece_row *e = &p->piece[id];
    const char *text = p->text.data + e->at;
    char *end;
    if (e->type == PIECE_CONTROL || e->type == PIECE_UNKNOWN) return;
    if (e->type == PIECE_BYTE && e->bytes == 6) {
        sbuf_putc(out, (char)strtol(text + 3, &end, 16));
        return;
    }
    for (uint32_t i = 0; i < e->bytes;) {
        bool space = e->bytes - i >= META_BYTES && memcmp(text + i, META, META_BYTES) == 0;
        if (!space) sbuf_putc(out, text[i]);
        else if (out->len) sbuf_putc(out, ' ');
        i += space ? META_BYTES : 1;
    }
}
