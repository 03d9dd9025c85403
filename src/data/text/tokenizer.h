/* Tokenizers: text to token ids and back.
 *
 * Ids of CLIP's byte-pair encoding: 256 bytes, 256 bytes at the end of a word, one per merge, then start and end of
 * text. OpenAI's merges file (plain or gzip) gives CLIP's 49,408 ids; other vocabularies have other merges. */
#ifndef DATA_TEXT_TOKENIZER_H
#define DATA_TEXT_TOKENIZER_H

#include "cloob/tokenizer.h"
#include "core/ctx.h"
#include "core/sbuf.h"
#include "data/text/clean.h"

enum { CLIP_VOCAB = 49408 };

typedef struct cloob_tokenizer tokenizer; /* constant after opening, so any number of threads may encode with it */

/* cloob/tokenizer.h declares opening, training, encoding and decoding. cloob_tokenizer_open also reads a .model file of
 * sentencepiece, a tokenizer.json, or a folder with one of them. */

/* Reads the text of a merges file, as stored in a checkpoint. name: for messages. */
cloob_status tokenizer_open_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out);
/* Reads the tokenizer in a model's folder, or next to a file of weights: spiece.model, tokenizer.json, tokenizer.model,
 * vocab.json with merges.txt, or vocab.txt, with the settings of tokenizer_config.json and open_clip_config.json. Texts
 * are cleaned as by the library that wrote the folder. *out stays NULL if there is no tokenizer, or, with a warning, if
 * its type is unknown or it has more ids than the model. */
cloob_status tokenizer_open_folder(cloob_ctx *ctx, const char *folder, int64_t vocab, tokenizer **out);
/* Finds CLIP's merges in the files of Python packages (open_clip, clip), in ~/.cache/clip or in Hugging Face's cache.
 * *out stays NULL if there are none; path: receives their path, size bytes. */
cloob_status tokenizer_find_clip(cloob_ctx *ctx, tokenizer **out, char *path, size_t size);
/* Writes files from which transformers produces the same ids: tokenizer.json, spiece.model, or vocab.json and
 * merges.txt, with tokenizer_config.json. */
cloob_status tokenizer_export(cloob_ctx *ctx, const tokenizer *t, const char *folder, int64_t length);

/* Appends the text from which tokenizer_open_text restores the tokenizer. */
void tokenizer_save(const tokenizer *t, sbuf *out);

/* Sets how texts are cleaned before encoding: CLEAN_FULL is the default. The mode is stored with the tokenizer. Call it
 * before threads share the tokenizer. */
void tokenizer_set_clean(tokenizer *t, clean_mode mode);
clean_mode tokenizer_clean(const tokenizer *t);

/* Whether the tokenizer can be used by a model with `vocab` token ids: it has the same number, or fewer if the model's
 * vocabulary is rounded up. */
bool tokenizer_fits(const tokenizer *t, int64_t vocab);

/* Encodes a text as a row of `length` ids: start, ids, end, padding. A longer text is truncated, and its last token is
 * the end. */
cloob_status tokenizer_encode_row(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, int64_t length,
                                  int32_t *row);

/* Like cloob_tokenizer_train, for n captions in memory: learns merges until the vocabulary has `size` ids (514 to
 * 1,048,576). If the captions have too few different pairs, the vocabulary is smaller, with a warning. */
cloob_status tokenizer_train_texts(cloob_ctx *ctx, const char *const *text, int64_t n, int32_t size, tokenizer **out);

#endif
