/* By the first byte: a .model file, a tokenizer.json with a configuration, or the files of older folders. What reads
 * must save, read back and encode. */
#include <stdlib.h>
#include <string.h>

#include "data/text/tokenizer_impl.h"
#include "fuzz.h"

static void try_pieces(cloob_ctx *ctx, const pieces *p, const char *text, size_t size)
{
    sbuf ids = { 0 }, out = { 0 };
    if (pieces_encode(ctx, p, text, size, false, &ids) != CLOOB_OK) abort();
    for (size_t i = 0; i < ids.len / 4; i++) {
        int32_t id = ((const int32_t *)(const void *)ids.data)[i];
        if (id < 0 || id >= p->count) abort();
        pieces_put(p, id, &out);
    }
    sbuf_release(&ids);
    sbuf_release(&out);
}

/* What reads must encode within its vocabulary, be stored and read back, and be the same tokenizer then. */
static void try_json(cloob_ctx *ctx, const char *data, size_t size, const tokenizer_config *config)
{
    tokenizer *t = NULL, *again;
    int32_t row[9], same[9];
    sbuf saved = { 0 };
    char *text;
    if (tokenizer_read_json(ctx, data, size, "fuzz", config, &t) != CLOOB_OK) return;
    if (tokenizer_encode_row(ctx, t, data, size, 9, row) != CLOOB_OK) abort();
    for (int i = 0; i < 9; i++)
        if (row[i] < 0 || row[i] >= cloob_tokenizer_vocab_size(t)) abort();
    if (cloob_tokenizer_decode(ctx, t, row, 9, &text) != CLOOB_OK) abort();
    tokenizer_save(t, &saved);
    if (tokenizer_open_text(ctx, saved.data, saved.len, "saved", &again) != CLOOB_OK) abort();
    if (tokenizer_encode_row(ctx, again, data, size, 9, same) != CLOOB_OK || memcmp(row, same, sizeof row) != 0)
        abort();
    sbuf_release(&saved);
    free(text);
    cloob_tokenizer_close(t);
    cloob_tokenizer_close(again);
}

/* Half of the input is a vocabulary, half are merges; or all of it is a vocab.txt. */
static void try_old(cloob_ctx *ctx, int kind, const char *data, size_t size)
{
    sbuf text = { 0 };
    if (kind == 2) json_from_vocab_txt(data, size, true, &text);
    else json_from_merges(kind == 1, data, size / 2, data + size / 2, size - size / 2, &text);
    if (!text.failed) try_json(ctx, text.data, text.len, NULL);
    sbuf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    tokenizer *t = NULL;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (size < 1) return 0;
    const char *rest = (const char *)data + 1;
    if (data[0] & 1) {
        tokenizer_config config = { .class_name = data[0] & 8 ? "Siglip2Tokenizer" : NULL,
                                    .prepare = (preparation)(data[0] >> 1 & 3),
                                    .strip_sep = data[0] & 8,
                                    .add_eos = data[0] & 16 ? 1 : 0 };
        if (data[0] & 32) try_old(ctx, data[0] >> 6, rest, size - 1);
        else try_json(ctx, rest, size - 1, &config);
        return 0;
    }
    if (pieces_read_model(ctx, rest, size - 1, "fuzz", &t) == CLOOB_OK) try_pieces(ctx, &t->p, rest, size - 1);
    cloob_tokenizer_close(t);
    return 0;
}
