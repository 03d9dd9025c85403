/* The contact sheet: one HTML page with thumbnails of the images that a search found. */
#include <stdlib.h>
#include <string.h>

#include "cloob/search.h"
#include "core/base64.h"
#include "core/file.h"
#include "core/needs.h"
#include "data/view/transform.h"
#include "io/image/image_write_jpeg.h"

enum { THUMB = 256, THUMB_QUALITY = 82 };

static void put_html(sbuf *s, const char *text)
{
    for (; *text; text++) {
        if (*text == '<') sbuf_puts(s, "&lt;");
        else if (*text == '&') sbuf_puts(s, "&amp;");
        else if (*text == '"') sbuf_puts(s, "&quot;");
        else sbuf_putc(s, *text);
    }
}

/* An image that has gone since, or a build without JPEG, leaves an empty frame with its name. */
static void put_thumbnail(cloob_ctx *ctx, const char *path, uint8_t *rgb, sbuf *s)
{
    image im;
    transform_options o;
    sbuf jpeg = { 0 };
    transform_options_init(&o, THUMB);
    if (image_read(ctx, path, &(image_limits){ IMAGE_MAX_PIXELS, 8, true }, &im) != CLOOB_OK) return;
    if (transform_eval(ctx, &im, &o, rgb) == CLOOB_OK &&
        image_encode_jpeg(ctx, rgb, THUMB, THUMB, THUMB_QUALITY, &jpeg) == CLOOB_OK) {
        sbuf_puts(s, "<img loading=lazy alt=\"\" src=\"data:image/jpeg;base64,");
        base64_put(s, jpeg.data, jpeg.len);
        sbuf_puts(s, "\">");
    }
    sbuf_release(&jpeg);
    image_release(&im);
}

static const char page_head[] =
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
    "content=\"width=device-width\"><style>"
    ":root{color-scheme:light dark}body{font:15px system-ui,sans-serif;margin:1.5rem;max-width:90rem}"
    "main{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(11rem,1fr))}"
    "figure{margin:0}img{width:100%;aspect-ratio:1;border-radius:6px;display:block}"
    "figcaption{font-size:12px;overflow-wrap:anywhere;margin-top:.3rem}b{font-variant-numeric:tabular-nums}</"
    "style>";

cloob_status cloob_search_sheet(cloob_ctx *ctx, const char *path, const char *title, const cloob_search_hit *hit,
                                int64_t n)
{
    API_NEEDS(ctx, path && n >= 0 && (n == 0 || hit));
    sbuf s = { 0 };
    uint8_t *rgb = malloc(THUMB * THUMB * 3);
    if (!rgb) return ctx_no_memory(ctx, THUMB * THUMB * 3, "a thumbnail");
    sbuf_puts(&s, page_head);
    sbuf_puts(&s, "<title>");
    put_html(&s, title);
    sbuf_puts(&s, "</title><h1>");
    put_html(&s, title);
    sbuf_puts(&s, "</h1><main>");
    for (int64_t i = 0; i < n; i++) {
        sbuf_puts(&s, "<figure>");
        put_thumbnail(ctx, hit[i].path, rgb, &s);
        sbuf_printf(&s, "<figcaption><b>%.3f</b> ", (double)hit[i].score);
        put_html(&s, hit[i].path);
        sbuf_puts(&s, "</figcaption></figure>\n");
    }
    sbuf_puts(&s, "</main></html>\n");
    free(rgb);
    return file_write_text(ctx, path, &s);
}
