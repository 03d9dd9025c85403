/* Texts and files inside an HTML page. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include "core/ctx.h"
#include "core/json.h"
#include "core/text.h"

void html_number(sbuf *s, double value); /* four digits for reading */

/* A page's beginning, with the style that all pages share and the title as its first heading; and its end. */
void html_page_begin(sbuf *s, const char *title);
void html_page_end(sbuf *s);

/* Stylesheets that are compiled in (cmake/embed.cmake): tokens.css, which all pages share, and sheet.css of the search
 * sheet. Not zero-terminated. */
extern const unsigned char asset_tokens_css[], asset_sheet_css[];
extern const size_t asset_tokens_css_bytes, asset_sheet_css_bytes;

#endif
