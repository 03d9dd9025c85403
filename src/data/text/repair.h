/* The repairs of CLEAN_FULL: the defaults of ftfy's fix_text. */
#ifndef DATA_TEXT_REPAIR_H
#define DATA_TEXT_REPAIR_H

#include "data/text/unicode.h"

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
