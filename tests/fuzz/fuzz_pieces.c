/* Three doors by the first byte: a .model file, a tokenizer.json, text for a small vocabulary. What reads must save,
 * read back and encode. */
#include <stdlib.h>
#include <string.h>

#include "data/text/tokenizer_impl.h"
#include "fuzz.h"

static void try_pieces(cloob_ctx *ctx, pieces *p, const char *text, size_t size)
{
    sbuf ids = { 0 }, out = { 0 };
    if (pieces_encode(ctx, p, text, size, &ids) != CLOOB_OK) abort();
    for (size_t i = 0; i < ids.len / 4; i++) {
        int32_t id = ((const int32_t *)(const void *)ids.data)[i];
        if (id < 0 || id >= p->count) abort();
        pieces_put(p, id, &out);
    }
    sbuf_release(&ids);
    sbuf_release(&out);
}

static void try_json(cloob_ctx *ctx, const char *data, size_t size)
{
    tokenizer *t = NULL;
    int32_t row[9];
    if (tokenizer_read_json(ctx, data, size, "fuzz", &t) == CLOOB_OK &&
        tokenizer_encode_row(ctx, t, data, size, 9, row) != CLOOB_OK)
        abort();
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    pieces p;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (size < 1) return 0;
    const char *rest = (const char *)data + 1;
    if (data[0] & 1) {
        try_json(ctx, rest, size - 1);
        return 0;
    }
    if (pieces_read_model(ctx, rest, size - 1, "fuzz", &p) == CLOOB_OK) try_pieces(ctx, &p, rest, size - 1);
    pieces_release(&p);
    return 0;
}
