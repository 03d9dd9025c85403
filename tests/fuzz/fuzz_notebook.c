/* Notebooks with the input as the source of their cells: bytes that would rarely be JSON reach the reader of Python
 * lists. A zero byte ends a cell; a cell's first bit says whether it is code or text. */
#include "core/sbuf.h"
#include "data/text/prompts.h"
#include "fuzz.h"

static void put_escaped(sbuf *s, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (data[i] < 32 || data[i] > 126 || data[i] == '"' || data[i] == '\\') sbuf_printf(s, "\\u%04x", data[i]);
        else sbuf_printf(s, "%c", data[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    sbuf s = { 0 };
    prompts p = { 0 };
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    sbuf_printf(&s, "{\"cells\": [");
    for (size_t at = 0; at < size;) {
        size_t end = at;
        while (end < size && data[end]) end++;
        sbuf_printf(&s, "%s{\"cell_type\": \"%s\", \"source\": [\"", at ? ", " : "",
                    data[at] & 1 ? "code" : "markdown");
        put_escaped(&s, data + at, end - at);
        sbuf_printf(&s, "\"]}");
        at = end + 1;
    }
    sbuf_printf(&s, "], \"nbformat\": 4}");
    if (!s.failed) (void)!prompts_import_text(ctx, s.data, s.len, "fuzz.ipynb", &p);
    prompts_release(&p);
    sbuf_release(&s);
    return 0;
}
