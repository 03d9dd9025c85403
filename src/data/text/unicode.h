/* Unicode for tokenizers: character classes, case, normal forms.
 *
 * With utf8proc, results are exact. Without it (utf8proc_absent.c; uni_complete() is false), they are exact for ASCII
 * and approximate otherwise: symbols and punctuation are recognised by block, lower case covers Latin-1, Latin
 * Extended-A, Greek and Cyrillic, and normal forms are not applied. */
#ifndef DATA_TEXT_UNICODE_H
#define DATA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing array of code points; zero-initialised is empty. If memory runs out, `failed` is set and the content is
 * undefined; check it once at the end. */
typedef struct codes {
    uint32_t *at;
    size_t n, cap;
    bool failed;
} codes;

void codes_add(codes *c, uint32_t code);
void codes_add_all(codes *c, const uint32_t *code, size_t n);
void codes_release(codes *c);
/* Replaces the content of c, except `failed`, by that of `by`, which is then empty. */
void codes_replace(codes *c, codes *by);

bool uni_complete(void); /* false in a build without utf8proc */

bool uni_is_letter(uint32_t code); /* \p{L} */
bool uni_is_number(uint32_t code); /* \p{N} */
bool uni_is_space(uint32_t code);  /* separates words: Unicode white space and U+001C .. U+001F */

uint32_t uni_upper(uint32_t code); /* simple mapping, one to one */

/* Appends the lower case of in. U+0130 becomes two code points, and a capital sigma at the end of a word the final
 * sigma. */
void uni_lower(const uint32_t *in, size_t n, codes *out);

/* Appends the normal form of a full- or half-width character, U+FF01 .. U+FFEF. */
void uni_width(uint32_t code, codes *out);

/* Number of code points of the first grapheme cluster of in; n must be above 0. */
size_t uni_grapheme(const uint32_t *in, size_t n);

/* Normal form C, in place. */
void uni_nfc(codes *text);
/* Normal form D, or KD if `compatible`, in place. */
void uni_nfd(codes *text, bool compatible);

bool uni_is_mark(uint32_t code);        /* Mn */
bool uni_is_punctuation(uint32_t code); /* P*, but not the ASCII characters that Unicode counts as symbols */
bool uni_is_other(uint32_t code);       /* C*: controls, formats, private use, surrogates */

#endif
