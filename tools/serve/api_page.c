/* / and the files of the page, from memory. */
#include <stdio.h>
#include <string.h>

#include "serve/handlers.h"
#include "serve/page/page.h"

static void send_file(const http_request *q, http_reply *r, const char *path)
{
    const page_file *f = page_find(path);
    if (!f) {
        http_error(r, q, 404, "there is no such file");
        return;
    }
    *r = (http_reply){ .code = 200,
                       .type = f->type,
                       .data = (char *)(uintptr_t)f->bytes, /* only read */
                       .bytes = *f->count,
                       .is_static = true,
                       .fd = -1,
                       .cache = "no-cache" };
}

void handle_page(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    (void)s, (void)ctx;
    send_file(q, r, "/");
}

void handle_asset(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    char path[160];
    (void)s, (void)ctx;
    snprintf(path, sizeof path, "/page/%s", q->tail);
    send_file(q, r, path);
}
