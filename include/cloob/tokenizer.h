/* CLIP's byte-pair encoding: texts to token ids and back, and vocabularies of one's own.
 *
 *     cloob_tokenizer *t;
 *     cloob_tokenizer_open(ctx, "bpe_simple_vocab_16e6.txt.gz", &t);
 *     cloob_tokenizer_encode_rows(ctx, t, captions, n, 77, rows);
 *     cloob_tokenizer_close(t);
 *
 * A tokenizer is read-only once opened: any number of threads may encode with it, each with its own context.
 */
#ifndef CLOOB_TOKENIZER_H
#define CLOOB_TOKENIZER_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_tokenizer cloob_tokenizer;

/* From a merges file, plain or gzip: OpenAI's, or one that cloob_tokenizer_save wrote. */
CLOOB_API cloob_status cloob_tokenizer_open(cloob_ctx *ctx, const char *path, cloob_tokenizer **out);
/* Learns a vocabulary of `size` ids (at least 514) from a text file, plain or gzip, with a caption per line,
 * or a table with tabs and a column `title`. Depends on the captions and the size alone. */
CLOOB_API cloob_status cloob_tokenizer_train(cloob_ctx *ctx, const char *path, int32_t size, cloob_tokenizer **out);
CLOOB_API cloob_status cloob_tokenizer_save(cloob_ctx *ctx, const cloob_tokenizer *t, const char *path);
CLOOB_API void cloob_tokenizer_close(cloob_tokenizer *t);

CLOOB_API int32_t cloob_tokenizer_vocab_size(const cloob_tokenizer *t);
CLOOB_API int32_t cloob_tokenizer_start_id(const cloob_tokenizer *t);
CLOOB_API int32_t cloob_tokenizer_end_id(const cloob_tokenizer *t);

/* The ids of one text without start, end or padding; free(*ids) is the caller's. Bytes that are not UTF-8
 * count as U+FFFD. */
CLOOB_API cloob_status cloob_tokenizer_encode(cloob_ctx *ctx, const cloob_tokenizer *t, const char *text, size_t bytes,
                                              int32_t **ids, int64_t *count);

/* Rows as a model takes them, on all threads: start, ids, end, zeros; a longer text is cut and its last token
 * is the end. text: n zero-terminated strings; rows: (n, length), overwritten. */
CLOOB_API cloob_status cloob_tokenizer_encode_rows(cloob_ctx *ctx, const cloob_tokenizer *t, const char *const *text,
                                                   int64_t n, int64_t length, int32_t *rows);

/* The text of ids, words separated by single spaces; free(*text) is the caller's. An id outside the
 * vocabulary is an error; start and end give nothing. */
CLOOB_API cloob_status cloob_tokenizer_decode(cloob_ctx *ctx, const cloob_tokenizer *t, const int32_t *ids,
                                              int64_t count, char **text);

#ifdef __cplusplus
}
#endif
#endif
