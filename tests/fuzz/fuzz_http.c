/* What clients of cloob serve send: multipart bodies, base64, data URLs, dates, and JSON in every dialect of
 * embeddings. The first byte chooses the parser, the rest is its input. */
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/text.h"
#include "fuzz.h"
#include "serve/text.h"

static void walk(const json *v, json_out *w)
{
    double number = 0;
    bool yes = false;
    const char *key = json_key(v);
    json_kind kind = json_kind_of(v);
    if (kind == JSON_ARRAY || kind == JSON_OBJECT) {
        json_begin(w, key, kind == JSON_ARRAY ? '[' : '{');
        for (const json *c = json_first(v); c; c = json_next(c)) walk(c, w);
        json_end(w);
    } else if (json_string(v)) {
        unsigned char *data;
        size_t bytes;
        const char *image = data_url_image(json_string(v));
        if (image && base64_decode(image, strlen(image), &data, &bytes)) free(data);
        json_put_text(w, key, json_string(v));
    } else if (json_number(v, &number)) {
        float single = (float)number;
        json_put_floats(w, key, &single, 1);
    } else if (json_bool(v, &yes)) json_put_bool(w, key, yes);
    else json_put_null(w, key);
}

/* What was read and written again must be JSON again. */
static void try_json(const char *text, size_t n)
{
    static cloob_ctx *ctx;
    json_doc *doc, *again;
    json_out w = { 0 };
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (json_doc_parse(ctx, text, n, "fuzz", 10000, &doc) != CLOOB_OK) return;
    walk(json_doc_root(doc), &w);
    if (!w.failed && json_doc_parse(ctx, w.data, w.len, "again", 10000, &again) != CLOOB_OK) abort();
    if (!w.failed) json_doc_close(again);
    free(w.data);
    json_doc_close(doc);
}

static void try_base64(const char *text, size_t n)
{
    unsigned char *data, *again;
    size_t bytes, second;
    if (!base64_decode(text, n, &data, &bytes)) return;
    sbuf coded = { 0 };
    base64_put(&coded, data, bytes);
    if (coded.failed || !base64_decode(bytes ? coded.data : "", coded.len, &again, &second) || second != bytes ||
        memcmp(data, again, bytes))
        abort();
    sbuf_release(&coded), free(again), free(data);
}

static void try_multipart(const char *text, size_t n)
{
    static form_part part[PART_MAX];
    int count = multipart_parse("multipart/form-data; boundary=xyz", text, n, part);
    for (int i = 0; i < count; i++)
        if (part[i].data < text || part[i].data + part[i].bytes > text + n || strlen(part[i].name) >= PART_NAME)
            abort();
    multipart_parse(text, text, n, part); /* the header is the client's too */
}

static void try_words(const char *text)
{
    int64_t ns;
    char date[32];
    if (date_parse(text, &ns)) date_print(ns, date);
    data_url_image(text);
    free(text_stem(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    char *text = malloc(size);
    if (!text) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    switch (data[0] % 4) {
    case 0: try_json(text, size - 1); break;
    case 1: try_base64(text, size - 1); break;
    case 2: try_multipart(text, size - 1); break;
    default: try_words(text);
    }
    free(text);
    return 0;
}
