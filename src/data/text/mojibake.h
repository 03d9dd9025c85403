/* UTF-8 that was read in a single-byte encoding ("schÃ¶n", "itâ€™s"), turned back.
 *
 * Conservative: a text is touched only when characters stand side by side that no writer puts there, and when it is
 * valid UTF-8 as bytes of the encoding. What is not right as a whole is looked at stretch by stretch. The encodings are
 * Latin-1, Windows-1252, 1251, 1250, 1253, 1254, 1257, ISO 8859-2, MacRoman and code page 437. */
#ifndef DATA_TEXT_MOJIBAKE_H
#define DATA_TEXT_MOJIBAKE_H

#include "data/text/unicode.h"

/* Repairs in place, also what was broken more than once. */
void mojibake_repair(codes *text);

#endif
