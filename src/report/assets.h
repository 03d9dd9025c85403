/* Files that the page carries, compiled in by cmake/embed.cmake. Not zero-terminated. */
#ifndef REPORT_ASSETS_H
#define REPORT_ASSETS_H

#include <stddef.h>

extern const unsigned char asset_page_css[], asset_page_js[];
extern const size_t asset_page_css_bytes, asset_page_js_bytes;
/* Only in builds that draw with Chart.js. */
extern const unsigned char asset_chart_js[], asset_chart_licence[];
extern const size_t asset_chart_js_bytes, asset_chart_licence_bytes;

#endif
