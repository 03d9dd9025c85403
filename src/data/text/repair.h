/* The repairs of TEXT_CLEAN_FULL: what ftfy's fix_text does by default. */
#ifndef DATA_TEXT_REPAIR_H
#define DATA_TEXT_REPAIR_H

#include "data/text/unicode.h"

/* In place. Works line by line, each until nothing changes any more. */
void text_repair(codes *text);

#endif
