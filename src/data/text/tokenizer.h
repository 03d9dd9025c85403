/* CLIP's byte-pair encoding: text to token ids and back.
 *
 * Ids: the 256 bytes, the 256 bytes at a word's end, one id per merge, then start and end of text. OpenAI's
 * merges file (plain or gzip) gives CLIP's 49,408 ids; other vocabularies have other merges. */
#ifndef DATA_TEXT_TOKENIZER_H
#define DATA_TEXT_TOKENIZER_H

#include "cloob/tokenizer.h"
#include "core/ctx.h"
#include "core/sbuf.h"
#include "data/text/clean.h"

enum { CLIP_VOCAB = 49408 };

typedef struct cloob_tokenizer tokenizer; /* read-only after opening: any number of threads may encode with it */

/* cloob/tokenizer.h opens, trains, encodes and decodes. cloob_tokenizer_open also takes a .model of sentencepiece, a
 * tokenizer.json, or a folder with any of them. */

/* From the text of a merges file, as a checkpoint stores it. */
cloob_status tokenizer_open_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out);
/* From the files of Hugging Face and open_clip in a model's folder (or next to a file of weights): spiece.model,
 * tokenizer.json, tokenizer.model, vocab.json with merges.txt, vocab.txt, and what tokenizer_config.json and
 * open_clip_config.json say of them. Texts are cleaned as the folder's library does it. *out stays NULL when there is
 * none, or, with a warning, when its kind is unknown or it has more ids than the model. */
cloob_status tokenizer_open_folder(cloob_ctx *ctx, const char *folder, int64_t vocab, tokenizer **out);
/* CLIP's merges from where Python packages and caches keep them: open_clip and clip, ~/.cache/clip, Hugging Face's
 * cache. *out stays NULL when there are none; *path: where they were, size bytes. */
cloob_status tokenizer_find_clip(cloob_ctx *ctx, tokenizer **out, char *path, size_t size);
/* Writes the files that transformers reads to the same ids: tokenizer.json, spiece.model, or vocab.json and merges.txt,
 * with tokenizer_config.json. */
cloob_status tokenizer_export(cloob_ctx *ctx, const tokenizer *t, const char *folder, int64_t length);

/* The merges as text that tokenizer_open_text reads back to the same tokenizer. */
void tokenizer_save(const tokenizer *t, sbuf *out);

/* How texts are cleaned before they are encoded: in full as open_clip does (the default), or only HTML
 * references, white space and case. Part of the tokenizer: saved with it. Set it before several threads share
 * it. */
void tokenizer_set_clean(tokenizer *t, clean_mode mode);
clean_mode tokenizer_clean(const tokenizer *t);

/* Whether the tokenizer fits a model with `vocab` token ids: it has as many, or fewer where the model's vocabulary is
 * rounded up. */
bool tokenizer_fits(const tokenizer *t, int64_t vocab);

/* A row as a model takes it: start, ids, end, zeros; a longer text is cut and its last token is the end. */
cloob_status tokenizer_encode_row(cloob_ctx *ctx, const tokenizer *t, const char *text, size_t bytes, int64_t length,
                                  int32_t *row);

/* cloob_tokenizer_train from captions in memory: learns merges until the vocabulary has `size` ids (514 to 1,048,576).
 * When the captions have too few pairs to merge it is smaller, with a warning. */
cloob_status tokenizer_train_texts(cloob_ctx *ctx, const char *const *text, int64_t n, int32_t size, tokenizer **out);

#endif
