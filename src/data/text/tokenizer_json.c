/* Hugging Face's tokenizer.json: BPE of CLIP's kind, and unigram. */
#include <stdlib.h>
#include <string.h>

#include "data/text/tokenizer_impl.h"
#include "data/text/tokenizer.h"

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
