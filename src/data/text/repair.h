/* The repairs of TEXT_CLEAN_FULL: what ftfy's fix_text does by default. */
#ifndef DATA_TEXT_REPAIR_H
#define DATA_TEXT_REPAIR_H

#include "data/text/unicode.h"

/* In place. Works line by line, each until nothing changes any more. */
void text_repair(codes *text);

/* UTF-8 that was read as Latin-1 or Windows-1252 ("schÃ¶n", "itâ€™s"), turned back.
 *
 * Conservative: a stretch is touched only when its characters are bytes of valid UTF-8 and at least one of
 * them stands where no language puts it. A text that was read wrongly as a whole is turned back as a whole.
 * Repairs in place, also what was broken more than once. */
void mojibake_repair(codes *text);

/* Every HTML character reference as a browser reads it: decimal, hexadecimal and named, the old names without
 * semicolon too. Appends to out. */
void html_unescape(const uint32_t *in, size_t n, codes *out);

/* Only what is unmistakable: references that end in a semicolon, and the lower-case names also all in
 * capitals ("&EACUTE;"), giving capitals. Appends to out. */
void html_unescape_strict(const uint32_t *in, size_t n, codes *out);

#endif
