/* The public tokenizer: the same object under its public name. */
#include "cloob/tokenizer.h"

#include <stdlib.h>

#include "core/file.h"
#include "data/text/tokenizer.h"
#include "core/needs.h"

cloob_status cloob_tokenizer_open(cloob_ctx *ctx, const char *path, cloob_tokenizer **out)
{
    API_NEEDS(ctx, path && out);
    return tokenizer_open(ctx, path, out);
}

cloob_status cloob_tokenizer_train(cloob_ctx *ctx, const char *path, int32_t size, cloob_tokenizer **out)
{
    API_NEEDS(ctx, path && out);
    return tokenizer_train(ctx, path, size, out);
}

cloob_status cloob_tokenizer_save(cloob_ctx *ctx, const cloob_tokenizer *t, const char *path)
{
    API_NEEDS(ctx, t && path);
    sbuf text = { 0 };
    tokenizer_save(t, &text);
    return file_write_text(ctx, path, &text);
}

void cloob_tokenizer_close(cloob_tokenizer *t)
{
    if (!t) return;
    tokenizer_close(t);
}

void cloob_tokenizer_set_clean(cloob_tokenizer *t, cloob_clean mode)
{
    if (t) tokenizer_set_clean(t, mode);
}

cloob_clean cloob_tokenizer_get_clean(const cloob_tokenizer *t) { return t ? tokenizer_clean(t) : CLOOB_CLEAN_FULL; }

int32_t cloob_tokenizer_vocab_size(const cloob_tokenizer *t) { return t ? tokenizer_vocab_size(t) : 0; }
int32_t cloob_tokenizer_start_id(const cloob_tokenizer *t) { return t ? tokenizer_start_id(t) : 0; }
int32_t cloob_tokenizer_end_id(const cloob_tokenizer *t) { return t ? tokenizer_end_id(t) : 0; }

cloob_status cloob_tokenizer_encode(cloob_ctx *ctx, const cloob_tokenizer *t, const char *text, size_t bytes,
                                    int32_t **ids, int64_t *count)
{
    API_NEEDS(ctx, t && text && ids && count);
    return tokenizer_encode(ctx, t, text, bytes, ids, count);
}

cloob_status cloob_tokenizer_encode_rows(cloob_ctx *ctx, const cloob_tokenizer *t, const char *const *text, int64_t n,
                                         int64_t length, int32_t *rows)
{
    API_NEEDS(ctx, t && n >= 0 && (n == 0 || (text && rows)));
    return tokenizer_encode_rows(ctx, t, text, n, length, rows);
}

cloob_status cloob_tokenizer_decode(cloob_ctx *ctx, const cloob_tokenizer *t, const int32_t *ids, int64_t count,
                                    char **text)
{
    API_NEEDS(ctx, t && text && count >= 0 && (count == 0 || ids));
    sbuf out = { 0 };
    sbuf_puts(&out, "");
    cloob_status status = tokenizer_decode(ctx, t, ids, count, &out);
    *text = status == CLOOB_OK ? sbuf_detach(&out) : NULL;
    sbuf_release(&out);
    return status;
}
