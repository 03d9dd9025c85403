/* Unicode for the tokenizer: classes, case, normal form.
 *
 * With utf8proc the results are Unicode's. Without it (utf8proc_absent.c, uni_complete() is false) ASCII is exact and
 * the rest approximate: symbols and punctuation are recognised by block, lower case covers Latin-1, Latin Extended-A,
 * Greek and Cyrillic, and nothing is composed. */
#ifndef DATA_TEXT_UNICODE_H
#define DATA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing array of code points; zero-initialised is empty. When out of memory, `failed` is set and the content is
 * undefined; check it once at the end. */
typedef struct codes {
    uint32_t *at;
    size_t n, cap;
    bool failed;
} codes;

void codes_add(codes *c, uint32_t code);
void codes_add_all(codes *c, const uint32_t *code, size_t n);
void codes_release(codes *c);
/* Replaces the content of c, and keeps its `failed`; `by` is empty afterwards. */
void codes_replace(codes *c, codes *by);

bool uni_complete(void); /* false in a build without utf8proc */

bool uni_is_letter(uint32_t code); /* \p{L} */
bool uni_is_number(uint32_t code); /* \p{N} */
bool uni_is_space(uint32_t code);  /* what separates words: Unicode's white space and U+001C .. U+001F */

uint32_t uni_upper(uint32_t code); /* one to one */

/* Appends the lower case of in: U+0130 becomes two code points, a capital sigma at a word's end the final
 * one. */
void uni_lower(const uint32_t *in, size_t n, codes *out);

/* Appends the ordinary form of a full- or half-width character, U+FF01 .. U+FFEF. */
void uni_width(uint32_t code, codes *out);

/* How many code points of in, from the first on, make one character as a reader sees it; n is above 0. */
size_t uni_grapheme(const uint32_t *in, size_t n);

/* Normal form C, in place. */
void uni_nfc(codes *text);
/* Normal form D, or with compatibility KD, in place. */
void uni_nfd(codes *text, bool compatible);

bool uni_is_mark(uint32_t code);        /* Mn */
bool uni_is_punctuation(uint32_t code); /* P*, without ASCII's symbols */
bool uni_is_other(uint32_t code);       /* controls, formats, private use, surrogates */

#endif
