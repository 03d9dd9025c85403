/* Cleaning of captions before they are tokenized.
 *
 * CLEAN_FULL cleans as open_clip does: ftfy's repairs (HTML references in text without tags, text decoded with the
 * wrong encoding, ligatures, full- and half-width forms, curly quotes, terminal escapes, control characters, normal
 * form C), then HTML references twice, folded white space, lower case. CLEAN_BASIC omits the repairs. CLEAN_HF cleans
 * as the normalizer of transformers' CLIP tokenizers: normal form C, white space as spaces, lower case character by
 * character; <|startoftext|> and <|endoftext|> in a text are the special tokens. */
#ifndef DATA_TEXT_CLEAN_H
#define DATA_TEXT_CLEAN_H

#include "core/ctx.h"
#include "core/sbuf.h"
#include "data/text/unicode.h"

typedef enum clean_mode { CLEAN_FULL = 0, CLEAN_BASIC, CLEAN_HF } clean_mode;

const char *text_clean_name(clean_mode mode); /* "full", "basic", "hf" */

/* Appends the cleaned text. Invalid UTF-8 becomes U+FFFD; zero bytes are ordinary characters. Takes linear time. Fails
 * only if out of memory. */
cloob_status text_clean(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);

/* Like text_clean, without lower-casing; and lower-casing as a separate step. Punctuation may be removed in between,
 * which affects whether a sigma is final. */
cloob_status text_clean_cased(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);
cloob_status text_lower(cloob_ctx *ctx, sbuf *text);

/* Like text_clean, for a tokenizer that ignores the amount of white space: white space may stay unfolded, which makes
 * plain ASCII fast. */
cloob_status text_clean_words(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);

bool text_is_punctuation(char c); /* ASCII punctuation */
/* As transformers' SiglipTokenizer, in place: lower case, without ASCII punctuation, words separated by single
 * spaces. */
void text_plain_words(sbuf *text);
/* As open_clip's canonicalize_text, in place, for cleaned text: "_" becomes a space, punctuation is removed, words are
 * separated by single spaces. */
void text_canonicalize(sbuf *text);

/* Append UTF-8 as code points, and code points as UTF-8. Invalid UTF-8 becomes U+FFFD. */
void codes_decode(const char *text, size_t bytes, codes *out);
void codes_encode(const codes *text, sbuf *out);

/* Normal form C as in transformers' tokenizers, in place. */
void text_nfc_of_unicode_9(codes *text);

/* Appends the bytes, with invalid UTF-8 replaced by U+FFFD. */
void text_put_valid(const char *text, size_t bytes, sbuf *out);

/* The repairs of CLEAN_FULL, with the defaults of ftfy's fix_text. */

/* Repairs in place: each line, until nothing changes. */
void text_repair(codes *text);

/* Repairs mojibake: UTF-8 that was decoded with a single-byte encoding ("schÃ¶n", "itâ€™s").
 *
 * Conservative: a text is changed only if it contains adjacent characters that do not occur in normal text, and if its
 * bytes in the wrong encoding are valid UTF-8. If the whole text is not, its parts are tried. The encodings are
 * Latin-1, Windows-1252, 1251, 1250, 1253, 1254, 1257, ISO 8859-2, MacRoman and code page 437. Works in place, also for
 * text that was damaged more than once. */
void mojibake_repair(codes *text);

/* The character of Windows-1252 for a C1 control (0x80 to 0x9F); the control itself for the five unassigned bytes. */
uint32_t mojibake_windows_1252(uint32_t control);

/* Appends the text with HTML character references replaced as browsers do: decimal, hexadecimal and named, including
 * the old names without a semicolon. */
void html_unescape(const uint32_t *in, size_t n, codes *out);

/* Appends the text with only unambiguous references replaced: those that end in a semicolon, and lower-case names
 * written in capitals ("&EACUTE;"), which give capitals. */
void html_unescape_strict(const uint32_t *in, size_t n, codes *out);

#endif
