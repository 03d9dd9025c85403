/* Stylesheets that are compiled in (cmake/embed.cmake): tokens.css of tools/lab/report, which all our pages share, and
 * sheet.css, what the search sheet adds to it. Not zero-terminated. */
#ifndef LAB_REPORT_STYLESHEETS_H
#define LAB_REPORT_STYLESHEETS_H

#include <stddef.h>

extern const unsigned char asset_tokens_css[], asset_sheet_css[];
extern const size_t asset_tokens_css_bytes, asset_sheet_css_bytes;

#endif
