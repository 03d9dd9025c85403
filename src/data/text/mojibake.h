/* UTF-8 that was read as Latin-1 or Windows-1252 ("schÃ¶n", "itâ€™s"), turned back.
 *
 * Conservative: a stretch is touched only when its characters are bytes of valid UTF-8 and at least one of
 * them stands where no language puts it. A text that was read wrongly as a whole is turned back as a whole.
 */
#ifndef DATA_TEXT_MOJIBAKE_H
#define DATA_TEXT_MOJIBAKE_H

#include "data/text/unicode.h"

/* Repairs in place, also what was broken more than once. */
void mojibake_repair(codes *text);

#endif
