/* Texts and files inside an HTML page. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include "core/ctx.h"
#include "core/json.h"
#include "core/text.h"

void html_json(sbuf *s, json_out *w);    /* JSON that cannot end a script element; the writer is empty then */
void html_number(sbuf *s, double value); /* four digits for reading */

/* A page's beginning, with the style of all our pages and the title as its first heading; and its end. */
void html_page_begin(sbuf *s, const char *title);
void html_page_end(sbuf *s);

#endif
