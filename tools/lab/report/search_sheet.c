/* The contact sheet: one HTML page with thumbnails of the images that a search found. */
#include <stdlib.h>

#include "cloob/search.h"
#include "core/text.h"
#include "core/file.h"
#include "io/image/image.h"
#include "lab/report/page.h"
#include "core/needs.h"
#include "data/view/transform.h"
#include "lab/report/report.h"

enum { THUMB = 256, THUMB_QUALITY = 82 };

/* A path in an address: what has a meaning there is escaped. */
static void put_address(sbuf *s, const char *path)
{
    for (; *path; path++) {
        unsigned char c = (unsigned char)*path;
        bool plain = c == '/' || c == '-' || c == '_' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                     (c >= 'A' && c <= 'Z');
        sbuf_printf(s, plain ? "%c" : "%%%02X", c);
    }
}

/* An image that has gone since, or a build without JPEG, leaves an empty frame with its name. */
static void put_thumbnail(cloob_ctx *ctx, const char *path, uint8_t *rgb, sbuf *s)
{
    image im;
    transform_options o;
    sbuf jpeg = { 0 };
    transform_options_init(&o, THUMB);
    cloob_status status = image_read(ctx, path, &(image_limits){ IMAGE_MAX_PIXELS, 8, true }, &im);
    s->failed |= status == CLOOB_ERR_MEMORY;
    if (status != CLOOB_OK) {
        sbuf_puts(s, "<i></i>");
        return;
    }
    status = transform_eval(ctx, &im, &o, rgb);
    if (status == CLOOB_OK) status = image_encode_jpeg(ctx, rgb, THUMB, THUMB, THUMB_QUALITY, &jpeg);
    s->failed |= status == CLOOB_ERR_MEMORY;
    if (status == CLOOB_OK) {
        sbuf_puts(s, "<img loading=\"lazy\" alt=\"\" src=\"data:image/jpeg;base64,");
        base64_put(s, jpeg.data, jpeg.len);
        sbuf_puts(s, "\">");
    }
    sbuf_release(&jpeg);
    image_release(&im);
}

static void put_head(sbuf *s, const char *title, int64_t n)
{
    sbuf_puts(s, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                 "content=\"width=device-width, initial-scale=1\"><link rel=\"icon\" href=\"data:,\"><title>");
    html_text(s, title);
    sbuf_puts(s, "</title><style>\n");
    sbuf_add(s, asset_tokens_css, asset_tokens_css_bytes);
    sbuf_add(s, asset_sheet_css, asset_sheet_css_bytes);
    sbuf_puts(s, "</style></head>\n<body><main><h1>");
    html_text(s, title);
    if (n) sbuf_puts(s, "</h1>\n<p class=\"dim\">Best first, with the cosine of image and query.</p>\n<ul>\n");
    else sbuf_puts(s, "</h1>\n<p class=\"dim\">Nothing found. Try fewer or other words, or no filter.</p>\n<ul>\n");
}

/* A link to the file, so that a click opens the image itself. */
static void put_hit(cloob_ctx *ctx, const cloob_search_hit *hit, uint8_t *rgb, sbuf *s)
{
    char *absolute = realpath(hit->path, NULL);
    sbuf_puts(s, "<li><a href=\"file://");
    put_address(s, absolute ? absolute : hit->path);
    sbuf_puts(s, "\">");
    put_thumbnail(ctx, hit->path, rgb, s);
    sbuf_printf(s, "<span><b>%.2f</b> ", (double)hit->score);
    html_text(s, hit->path);
    sbuf_puts(s, "</span></a></li>\n");
    free(absolute);
}

cloob_status search_sheet(cloob_ctx *ctx, const char *path, const char *title, const cloob_search_hit *hit, int64_t n)
{
    API_NEEDS(ctx, path && n >= 0 && (n == 0 || hit));
    sbuf s = { 0 };
    uint8_t *rgb = malloc(THUMB * THUMB * 3);
    if (!rgb) return ctx_no_memory(ctx, THUMB * THUMB * 3, "a thumbnail");
    put_head(&s, title ? title : "Search", n);
    for (int64_t i = 0; i < n; i++) put_hit(ctx, &hit[i], rgb, &s);
    sbuf_puts(&s, "</ul></main></body></html>\n");
    free(rgb);
    return file_write_text(ctx, path, &s);
}
