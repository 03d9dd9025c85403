/* Captions as people write them, made into the text that is encoded.
 *
 * CLEAN_FULL is what open_clip does: ftfy's repairs (HTML references where no tag is near, text read in
 * the wrong encoding, ligatures, full- and half-width forms, curly quotes, terminal escapes, control
 * characters, normal form C), then HTML references twice, white space folded, lower case. CLEAN_BASIC
 * leaves out the repairs. CLEAN_HF is what the normalizer of transformers' CLIP tokenizers does: normal
 * form C, white space as spaces, lower case character by character; <|startoftext|> and <|endoftext|> in a text are the
 * special tokens. */
#ifndef DATA_TEXT_CLEAN_H
#define DATA_TEXT_CLEAN_H

#include "core/ctx.h"
#include "core/sbuf.h"

typedef enum clean_mode { CLEAN_FULL = 0, CLEAN_BASIC, CLEAN_HF } clean_mode;

const char *text_clean_name(clean_mode mode); /* "full", "basic", "hf" */

/* Appends the cleaned text. Bytes that are not UTF-8 become U+FFFD, zero bytes are characters like others.
 * Time is linear in the text. Fails only when memory is out. */
cloob_status text_clean(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);

/* The same with the case as it is, and lowering it later: punctuation that is dropped in between decides whether a
 * sigma is a final one. */
cloob_status text_clean_cased(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);
cloob_status text_lower(cloob_ctx *ctx, sbuf *text);

/* The same for a reader that skips white space: it may be left as it was, which makes plain ASCII cheap. */
cloob_status text_clean_words(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);

/* Appends the bytes with whatever is not UTF-8 as U+FFFD. */
void text_put_valid(const char *text, size_t bytes, sbuf *out);

#endif
