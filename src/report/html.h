/* Texts and files inside an HTML page. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include "core/ctx.h"
#include "core/sbuf.h"

void html_text(sbuf *s, const char *text);        /* & < > " escaped */
void html_json_string(sbuf *s, const char *text); /* a JSON string that cannot end a script element */
void html_number(sbuf *s, double value);          /* four digits for reading */

#endif
