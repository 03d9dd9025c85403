/* Three doors: a first byte below 64 reads the rest as a merges file, below 96 as a gzip one, else as text
 * for a small vocabulary: its ids must decode, and a row must hold the same ones. */
#include <stdlib.h>
#include <string.h>

#include "data/text/tokenizer.h"
#include "data/text/tokenizer_impl.h"
#include "io/gzip.h"
#include "fuzz.h"

static const char small[] = "#version\nt h\nth e\nth e</w>\ni n\n' s</w>\na a\naa aa\n\xc3\x83 \xc2\xa9</w>\n";

static void try_merges(cloob_ctx *ctx, const char *data, size_t size)
{
    tokenizer *t = NULL, *again = NULL;
    sbuf saved = { 0 };
    if (tokenizer_open_text(ctx, data, size, "fuzz", &t) == CLOOB_OK) {
        tokenizer_save(t, &saved);
        if (tokenizer_open_text(ctx, saved.data, saved.len, "saved", &again) != CLOOB_OK) abort();
        if (cloob_tokenizer_vocab_size(again) != cloob_tokenizer_vocab_size(t)) abort();
    }
    sbuf_release(&saved);
    cloob_tokenizer_close(t);
    cloob_tokenizer_close(again);
}

static void try_gzip(cloob_ctx *ctx, const char *data, size_t size)
{
    sbuf plain = { 0 };
    if (gzip_expand(ctx, data, size, 1 << 20, "fuzz", &plain) == CLOOB_OK && plain.data)
        try_merges(ctx, plain.data, plain.len);
    sbuf_release(&plain);
}

static void try_text(cloob_ctx *ctx, const char *data, size_t size, bool basic)
{
    tokenizer *t = NULL;
    int32_t *ids = NULL, row[20];
    int64_t n;
    char *text;
    if (tokenizer_open_text(ctx, small, sizeof small - 1, "small", &t) != CLOOB_OK) abort();
    tokenizer_set_clean(t, basic ? CLEAN_BASIC : CLEAN_FULL);
    if (cloob_tokenizer_encode(ctx, t, data, size, &ids, &n) != CLOOB_OK) abort();
    if (cloob_tokenizer_decode(ctx, t, ids, n, &text) != CLOOB_OK) abort();
    if (tokenizer_encode_row(ctx, t, data, size, 20, row) != CLOOB_OK) abort();
    for (int64_t i = 0; i < 18 && i < n; i++)
        if (row[i + 1] != ids[i]) abort();
    free(text);
    free(ids);
    cloob_tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (size < 1) return 0;
    const char *rest = (const char *)data + 1;
    if (data[0] < 64) try_merges(ctx, rest, size - 1);
    else if (data[0] < 96) try_gzip(ctx, rest, size - 1);
    else try_text(ctx, rest, size - 1, data[0] & 1);
    return 0;
}
