/* HTML character references in text. */
#ifndef DATA_TEXT_HTML_H
#define DATA_TEXT_HTML_H

#include "data/text/unicode.h"

/* Every reference as a browser reads it: decimal, hexadecimal and named, the old names without semicolon too.
 * Appends to out. */
void html_unescape(const uint32_t *in, size_t n, codes *out);

/* Only what is unmistakable: references that end in a semicolon, and the lower-case names also all in
 * capitals
 * ("&EACUTE;"), giving capitals. Appends to out. */
void html_unescape_strict(const uint32_t *in, size_t n, codes *out);

#endif
