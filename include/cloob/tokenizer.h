/* CLIP's byte-pair encoding: converts texts to token ids and back, and trains vocabularies.
 *
 *     cloob_tokenizer *t;
 *     cloob_tokenizer_open(ctx, "bpe_simple_vocab_16e6.txt.gz", &t);
 *     cloob_tokenizer_encode_rows(ctx, t, captions, n, 77, rows);
 *     cloob_tokenizer_close(t);
 *
 * An open tokenizer is read-only: any number of threads may use it, each with its own context. */
#ifndef CLOOB_TOKENIZER_H
#define CLOOB_TOKENIZER_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_tokenizer cloob_tokenizer;

/* Opens a merges file, plain or gzip: OpenAI's, or a file written by cloob_tokenizer_save. The caller closes *out. */
CLOOB_API cloob_status cloob_tokenizer_open(cloob_ctx *ctx, const char *path, cloob_tokenizer **out);
/* Trains a vocabulary of `size` ids (at least 514) on a text file, plain or gzip, with one caption per line, or on a
 * TSV file with a column `title`. The result depends only on the captions and the size. The caller closes *out. */
CLOOB_API cloob_status cloob_tokenizer_train(cloob_ctx *ctx, const char *path, int32_t size, cloob_tokenizer **out);
/* Writes the merges as a text file, atomically. */
CLOOB_API cloob_status cloob_tokenizer_save(cloob_ctx *ctx, const cloob_tokenizer *t, const char *path);
CLOOB_API void cloob_tokenizer_close(cloob_tokenizer *t); /* t may be NULL */

CLOOB_API int32_t cloob_tokenizer_vocab_size(const cloob_tokenizer *t); /* ids from 0 to vocab_size - 1 */
CLOOB_API int32_t cloob_tokenizer_start_id(const cloob_tokenizer *t);
CLOOB_API int32_t cloob_tokenizer_end_id(const cloob_tokenizer *t);

/* Encodes one text of `bytes` bytes without start, end or padding. The caller frees *ids with free(). Invalid UTF-8 is
 * read as U+FFFD. */
CLOOB_API cloob_status cloob_tokenizer_encode(cloob_ctx *ctx, const cloob_tokenizer *t, const char *text, size_t bytes,
                                              int32_t **ids, int64_t *count);

/* Encodes n zero-terminated texts as a model's input, on all threads of the context: start, ids, end, zeros. A longer
 * text is truncated; its last token is the end token. rows: (n, length), overwritten. */
CLOOB_API cloob_status cloob_tokenizer_encode_rows(cloob_ctx *ctx, const cloob_tokenizer *t, const char *const *text,
                                                   int64_t n, int64_t length, int32_t *rows);

/* Decodes ids to a text whose words are separated by single spaces. The caller frees *text with free(). Start and end
 * tokens are skipped; an id outside the vocabulary is an error. */
CLOOB_API cloob_status cloob_tokenizer_decode(cloob_ctx *ctx, const cloob_tokenizer *t, const int32_t *ids,
                                              int64_t count, char **text);

#ifdef __cplusplus
}
#endif
#endif
