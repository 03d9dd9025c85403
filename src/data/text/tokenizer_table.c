/* The tokens of a vocabulary, how a merges file spells them, and the tables that find them. */
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/text/tokenizer_impl.h"

/* ---- byte strings to ids --------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 32;
}

static uint64_t load4(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    return (uint64_t)t[0] | (uint64_t)t[1] << 8 | (uint64_t)t[2] << 16 | (uint64_t)t[3] << 24;
}

/* Up to eight bytes, the first lowest. Loads that overlap put the same bytes in the same place. */
static uint64_t load(const char *text, size_t bytes)
{
    const unsigned char *t = (const unsigned char *)text;
    if (bytes >= 4) return load4(text) | load4(text + bytes - 4) << 8 * (bytes - 4);
    if (!bytes) return 0;
    return (uint64_t)t[0] | (uint64_t)t[bytes / 2] << 8 * (bytes / 2) | (uint64_t)t[bytes - 1] << 8 * (bytes - 1);
}

uint64_t text_key(const char *text, size_t bytes)
{
    uint64_t x = 0;
    if (bytes <= 8) return load(text, bytes);
    for (; bytes > 8; text += 8, bytes -= 8) x = mix(x ^ load(text, 8)) + 1;
    return mix(x ^ load(text, bytes)) + bytes;
}

static uint32_t slot_of(const text_table *h, uint64_t key, size_t bytes)
{
    return (uint32_t)mix(key + bytes) & h->mask;
}

static bool grow(text_table *h)
{
    uint32_t size = h->slot ? 2 * (h->mask + 1) : 1024;
    text_table bigger = { calloc(size, sizeof(text_slot)), size - 1, h->used };
    if (!bigger.slot) return false;
    for (uint32_t i = 0; h->slot && i <= h->mask; i++) {
        if (!h->slot[i].length) continue;
        uint32_t s = slot_of(&bigger, h->slot[i].key, h->slot[i].length);
        while (bigger.slot[s].length) s = (s + 1) & bigger.mask;
        bigger.slot[s] = h->slot[i];
    }
    free(h->slot);
    *h = bigger;
    return true;
}

bool text_table_add(text_table *h, const char *text, size_t bytes, int32_t id)
{
    if ((!h->slot || h->used > h->mask / 2) && !grow(h)) return false;
    uint64_t key = text_key(text, bytes);
    uint32_t s = slot_of(h, key, bytes);
    while (h->slot[s].length) s = (s + 1) & h->mask;
    h->slot[s] = (text_slot){ key, (uint32_t)bytes, id };
    h->used++;
    return true;
}

int32_t text_table_find(const text_table *h, const tokenizer *t, const char *text, size_t bytes)
{
    if (!h->slot || bytes > UINT32_MAX) return -1;
    uint64_t key = text_key(text, bytes);
    for (uint32_t s = slot_of(h, key, bytes); h->slot[s].length; s = (s + 1) & h->mask) {
        const text_slot *x = &h->slot[s];
        if (x->key != key || x->length != bytes) continue;
        if (bytes <= 8 || memcmp(t->text.data + t->text_at[x->id], text, bytes) == 0) return x->id;
    }
    return -1;
}

/* ---- pairs ----------------------------------------------------------------------------------------- */

static uint32_t pair_slot_of(const tokenizer *t, int32_t left, int32_t right)
{
    return (uint32_t)mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right) & t->pair_mask;
}

int32_t token_pair(const tokenizer *t, int32_t left, int32_t right)
{
    for (uint32_t s = pair_slot_of(t, left, right); t->pairs[s].left >= 0; s = (s + 1) & t->pair_mask)
        if (t->pairs[s].left == left && t->pairs[s].right == right) return t->pairs[s].merged;
    return -1;
}

static cloob_status index_pairs(cloob_ctx *ctx, tokenizer *t)
{
    uint32_t size = 64;
    while (size < 3u * (uint32_t)t->merges) size *= 2;
    t->pairs = malloc(size * sizeof *t->pairs);
    if (!t->pairs) return ctx_no_memory(ctx, size * sizeof *t->pairs, "the table of merges");
    memset(t->pairs, 0xFF, size * sizeof *t->pairs);
    t->pair_mask = size - 1;
    for (int32_t m = 0; m < t->merges; m++) {
        if (token_pair(t, t->part[m][0], t->part[m][1]) >= 0) continue;
        uint32_t s = pair_slot_of(t, t->part[m][0], t->part[m][1]);
        while (t->pairs[s].left >= 0) s = (s + 1) & t->pair_mask;
        t->pairs[s] = (pair_slot){ t->part[m][0], t->part[m][1], FIRST_MERGE + m };
    }
    return CLOOB_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------------- */

static bool is_printable(int byte)
{
    return (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte < 0x100 && byte != 0xAD);
}

/* The order of the byte tokens: printable ones by value, then the others by value. */
static void order_bytes(int32_t *byte_id)
{
    int32_t id = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < BYTES; b++)
            if (is_printable(b) == (pass == 0)) byte_id[b] = id++;
}

static cloob_status reserve(cloob_ctx *ctx, tokenizer *t)
{
    if (t->merges < t->merge_cap) return CLOOB_OK;
    size_t cap = t->merge_cap ? 2 * (size_t)t->merge_cap : 4096, tokens = FIRST_MERGE + cap + 1;
    void *part = realloc(t->part, cap * sizeof *t->part);
    if (part) t->part = part;
    void *text_at = realloc(t->text_at, tokens * sizeof *t->text_at);
    if (text_at) t->text_at = text_at;
    void *ends = realloc(t->ends, tokens * sizeof *t->ends);
    if (ends) t->ends = ends;
    if (!part || !text_at || !ends) return ctx_no_memory(ctx, tokens * 13, "a vocabulary");
    t->merge_cap = (int32_t)cap;
    return CLOOB_OK;
}

cloob_status token_create(cloob_ctx *ctx, tokenizer **out)
{
    tokenizer *t = *out = calloc(1, sizeof *t);
    if (!t) return ctx_no_memory(ctx, sizeof *t, "a tokenizer");
    order_bytes(t->byte_id);
    cloob_status s = reserve(ctx, t);
    if (s != CLOOB_OK) goto failed;
    char byte_of[BYTES];
    for (int b = 0; b < BYTES; b++) byte_of[t->byte_id[b]] = (char)b;
    sbuf_add(&t->text, byte_of, BYTES);
    sbuf_add(&t->text, byte_of, BYTES);
    for (int32_t i = 0; i < FIRST_MERGE; i++) t->text_at[i] = (uint32_t)i, t->ends[i] = i >= BYTES;
    t->text_at[FIRST_MERGE] = FIRST_MERGE;
    if (!t->text.failed) return CLOOB_OK;
    s = ctx_no_memory(ctx, FIRST_MERGE, "a vocabulary");
failed:
    tokenizer_close(t);
    *out = NULL;
    return s;
}

static void add_text(tokenizer *t, int32_t id)
{
    sbuf copy = { 0 };
    sbuf_add(&copy, t->text.data + t->text_at[id], t->text_at[id + 1] - t->text_at[id]);
    sbuf_add(&t->text, copy.data, copy.len);
    t->text.failed |= copy.failed;
    sbuf_release(&copy);
}

cloob_status token_merge(cloob_ctx *ctx, tokenizer *t, int32_t left, int32_t right, int32_t *id)
{
    CLOOB_TRY(reserve(ctx, t));
    uint32_t bytes = t->text_at[left + 1] - t->text_at[left] + t->text_at[right + 1] - t->text_at[right];
    if (bytes > TOKEN_LIMIT)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "merge %d makes a token of %u bytes; the limit is %d", t->merges + 1,
                        bytes, TOKEN_LIMIT);
    *id = FIRST_MERGE + t->merges;
    t->part[t->merges][0] = left;
    t->part[t->merges][1] = right;
    add_text(t, left);
    add_text(t, right);
    if (t->text.failed) return ctx_no_memory(ctx, t->text.len, "the texts of a vocabulary");
    t->merges++;
    t->text_at[*id + 1] = (uint32_t)t->text.len;
    t->ends[*id] = t->ends[right];
    return CLOOB_OK;
}

/* A word is a short cut when merging its bytes ends in one token. */
static bool add_word(tokenizer *t, int32_t id)
{
    enum { MAX_SYMBOLS = 64 };
    const char *text = t->text.data + t->text_at[id];
    int64_t n = t->text_at[id + 1] - t->text_at[id];
    int32_t symbol[MAX_SYMBOLS];
    if (!t->ends[id] || n > MAX_SYMBOLS) return true;
    for (int64_t i = 0; i < n; i++) symbol[i] = t->byte_id[(unsigned char)text[i]] + (i + 1 == n ? BYTES : 0);
    int64_t left = n;
    if (!bpe_merge(t, symbol, &left)) return false;
    return left > 1 || symbol[0] != id || text_table_add(&t->words, text, (size_t)n, id);
}

cloob_status token_finish(cloob_ctx *ctx, tokenizer *t)
{
    CLOOB_TRY(index_pairs(ctx, t));
    for (int32_t id = 0; id < FIRST_MERGE + t->merges; id++)
        if (!add_word(t, id)) return ctx_no_memory(ctx, (size_t)t->merges * sizeof(text_slot), "the table of words");
    return CLOOB_OK;
}

void token_put_symbols(const tokenizer *t, int32_t id, sbuf *out)
{
    for (uint32_t i = t->text_at[id]; i < t->text_at[id + 1]; i++) {
        int byte = (unsigned char)t->text.data[i];
        char utf8[4]; /* bytes that cannot be printed are spelled by the characters from U+0100 on, in order */
        uint32_t c = is_printable(byte) ? (uint32_t)byte : (uint32_t)(BYTES + t->byte_id[byte] - t->byte_id[0]);
        sbuf_add(out, utf8, (size_t)utf8_encode(c, utf8));
    }
    if (t->ends[id]) sbuf_puts(out, "</w>");
}
