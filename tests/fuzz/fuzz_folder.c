/* A model's folder as open_clip and transformers publish it, made out of the input: parts divided by the byte 0x1e
 * become the configuration, preprocessor_config.json, and a safetensors file of zeros with a tensor per line, "name
 * 2 3". The first byte chooses whose file names it has and whether the configuration is there. */
#include "core/sbuf.h"
#include "fuzz.h"
#include "model/interchange.h"
#include "scratch_folder.h"

enum { PARTS = 3, MOST = 1 << 14, MOST_BYTES = 1 << 20 };

typedef struct part {
    const char *data;
    size_t size;
} part;

static const char *const file_names[2][3] = {
    { "config.json", "preprocessor_config.json", "model.safetensors" },
    { "open_clip_config.json", "preprocessor_config.json", "open_clip_model.safetensors" },
};

/* The header's entry of one line; returns the end of its data, which begins at `at`. */
static int64_t put_tensor(sbuf *s, const char *line, size_t size, int64_t at)
{
    char text[200];
    snprintf(text, sizeof text, "%.*s", (int)(size < 199 ? size : 199), line);
    char *sizes = strchr(text, ' ');
    int64_t bytes = 4;
    if (sizes) *sizes++ = '\0';
    if (!text[0] || strpbrk(text, "\"\\")) return at;
    sbuf_printf(s, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", s->len > 9 ? "," : "", text);
    for (int d = 0; sizes && *sizes && d < 8; d++) {
        char *end;
        int64_t n = strtoll(sizes, &end, 10);
        if (end == sizes) break;
        bytes = n > 0 && bytes > MOST_BYTES / n ? MOST_BYTES : bytes * n;
        sbuf_printf(s, "%s%lld", d ? "," : "", (long long)n);
        sizes = end;
    }
    sbuf_printf(s, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + bytes));
    return at + bytes;
}

static bool write_tensors(const char *name, part p)
{
    sbuf s = { 0 };
    int64_t at = 0;
    sbuf_add(&s, "12345678{", 9);
    for (const char *line = p.data, *end = p.data + p.size; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((stop ? stop : end) - line);
        at = put_tensor(&s, line, n, at);
        line += n + 1;
    }
    sbuf_add(&s, "}", 1);
    bool ok = !s.failed;
    if (ok) {
        static const char zeros[MOST_BYTES];
        uint64_t header = s.len - 8;
        for (int i = 0; i < 8; i++) s.data[i] = (char)(header >> (8 * i));
        sbuf_add(&s, zeros, at > 0 && at < MOST_BYTES ? (size_t)at : 0);
        ok = !s.failed && scratch_write(name, s.data, s.len);
    }
    sbuf_release(&s);
    return ok;
}

static void clear(void)
{
    char path[256];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++) {
            snprintf(path, sizeof path, "%s/%s", scratch_path, file_names[k][i]);
            unlink(path);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    part p[PARTS] = { { "", 0 }, { "", 0 }, { "", 0 } };
    weights w;
    interchange_report report;
    int k = 0;
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (size < 1 || size > MOST || !scratch_folder()) return 0;
    p[0].data = (const char *)data + 1;
    for (size_t i = 1; i < size; i++) {
        if (data[i] == 0x1e && k + 1 < PARTS) p[++k] = (part){ (const char *)data + i + 1, 0 };
        else p[k].size++;
    }
    const char *const *name = file_names[data[0] & 1];
    clear();
    bool ok = write_tensors(name[2], p[2]);
    for (int i = 0; i < 2 && ok; i++)
        if (!(data[0] & 2 << i)) ok = scratch_write(name[i], p[i].data, p[i].size);
    if (ok && interchange_read(ctx, scratch_path, NULL, &w, &report) == CLOOB_OK) {
        if (weights_check(ctx, &w, "fuzz") != CLOOB_OK) abort();
        weights_release(&w);
    }
    if (ok) interchange_report_release(&report);
    return 0;
}
