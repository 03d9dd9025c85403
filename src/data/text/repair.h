/* The repairs of CLEAN_FULL: what ftfy's fix_text does by default. */
#ifndef DATA_TEXT_REPAIR_H
#define DATA_TEXT_REPAIR_H

#include "data/text/unicode.h"

/* In place. Works line by line, each until nothing changes any more. */
void text_repair(codes *text);

/* UTF-8 that was read in a single-byte encoding ("schÃ¶n", "itâ€™s"), turned back.
 *
 * Conservative: a text is touched only when characters stand side by side that no writer puts there, and when it is
 * valid UTF-8 as bytes of the encoding. What is not right as a whole is looked at stretch by stretch. The encodings are
 * Latin-1, Windows-1252, 1251, 1250, 1253, 1254, 1257, ISO 8859-2, MacRoman and code page 437.
 * Repairs in place, also what was broken more than once. */
void mojibake_repair(codes *text);

/* Every HTML character reference as a browser reads it: decimal, hexadecimal and named, the old names without
 * semicolon too. Appends to out. */
void html_unescape(const uint32_t *in, size_t n, codes *out);

/* Only what is unmistakable: references that end in a semicolon, and the lower-case names also all in
 * capitals ("&EACUTE;"), giving capitals. Appends to out. */
void html_unescape_strict(const uint32_t *in, size_t n, codes *out);

#endif
