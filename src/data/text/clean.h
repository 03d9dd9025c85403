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
#include "data/text/unicode.h"

typedef enum clean_mode { CLEAN_FULL = 0, CLEAN_BASIC, CLEAN_HF } clean_mode;

const char *text_clean_name(clean_mode mode); /* "full", "basic", "hf" */

/* Appends the cleaned text. Bytes that are not UTF-8 become U+FFFD, zero bytes are characters like others.
 * Time is linear in the text. Fails only when out of memory. */
cloob_status text_clean(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);

/* The same with the case as it is, and lowering it later: punctuation that is dropped in between decides whether a
 * sigma is a final one. */
cloob_status text_clean_cased(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);
cloob_status text_lower(cloob_ctx *ctx, sbuf *text);

/* The same for a reader that skips white space: it may be left as it was, which makes plain ASCII cheap. */
cloob_status text_clean_words(cloob_ctx *ctx, clean_mode mode, const char *text, size_t bytes, sbuf *out);

bool text_is_punctuation(char c); /* ASCII's */
/* In place, as transformers' SiglipTokenizer: lower case, no ASCII punctuation, one space between words and none at the
 * ends. */
void text_plain_words(sbuf *text);
/* In place of open_clip's canonicalize_text, on text that is clean: "_" is a space, punctuation is dropped, one space
 * between words and none at the ends. */
void text_canonicalize(sbuf *text);

/* UTF-8 to code points and back, appended; what is not UTF-8 is U+FFFD. */
void codes_decode(const char *text, size_t bytes, codes *out);
void codes_encode(const codes *text, sbuf *out);

/* Normal form C as transformers' tokenizers have it, in place. */
void text_nfc_of_unicode_9(codes *text);

/* Appends the bytes with whatever is not UTF-8 as U+FFFD. */
void text_put_valid(const char *text, size_t bytes, sbuf *out);

/* The repairs of CLEAN_FULL: the defaults of ftfy's fix_text. */

/* In place. Each line is repaired until nothing changes. */
void text_repair(codes *text);

/* UTF-8 that was read in a single-byte encoding ("schÃ¶n", "itâ€™s"), turned back.
 *
 * Conservative: a text is changed only when it has neighbouring characters that nobody writes, and when it is valid
 * UTF-8 as bytes of the encoding. If that fails for the whole text, its parts are tried. The encodings are Latin-1,
 * Windows-1252, 1251, 1250, 1253, 1254, 1257, ISO 8859-2, MacRoman and code page 437. Repairs in place, also what was
 * broken more than once. */
void mojibake_repair(codes *text);

/* The character that Windows-1252 has for a C1 control (0x80 .. 0x9F), or the control itself for its five holes. */
uint32_t mojibake_windows_1252(uint32_t control);

/* Every HTML character reference as a browser reads it: decimal, hexadecimal and named, the old names without
 * semicolon too. Appends to out. */
void html_unescape(const uint32_t *in, size_t n, codes *out);

/* Only what is unmistakable: references that end in a semicolon, and the lower-case names also all in
 * capitals ("&EACUTE;"), giving capitals. Appends to out. */
void html_unescape_strict(const uint32_t *in, size_t n, codes *out);

#endif
