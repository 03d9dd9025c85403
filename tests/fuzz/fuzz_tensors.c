/* Safetensors files made out of the input, so that most of them have a sound header: each tensor takes five bytes for
 * its type, its shape and how its range deviates from the place where it belongs. What opens must be readable to the
 * last byte; the same file is then offered as a checkpoint. */
#include <stdlib.h>

#include "core/sbuf.h"
#include "fuzz.h"
#include "memory_file.h"
#include "model/weights.h"

static const char *const types[] = {
    "F32", "F16", "BF16", "F64", "I64", "I32", "I16", "I8", "U8", "BOOL", "F8_E4M3", ""
};
static const int sizes[] = { 4, 2, 2, 8, 8, 4, 2, 1, 1, 1, 1, 4 };
static const char *const names[] = { "visual.proj", "text_projection",      "logit_scale", "train.m.visual.proj",
                                     "__metadata",  "positional_embedding", "a\\u0000b",   "" };

static int64_t put_tensor(sbuf *s, const uint8_t *in, int64_t at)
{
    int type = in[0] % 12;
    int64_t bytes = sizes[type], begin = at;
    sbuf_printf(s, ",\"%s%d\":{\"dtype\":\"%s\",\"shape\":[", names[in[1] % 8], in[1] / 8, types[type]);
    for (int d = 0; d < in[2] % 5; d++) {
        int64_t n = in[3] >> (2 * d) & 3;
        if (in[2] > 250) n = INT64_MAX >> (in[3] % 64);
        bytes = n && bytes > (INT64_MAX >> 16) / n ? bytes : bytes * n;
        sbuf_printf(s, "%s%lld", d ? "," : "", (long long)n);
    }
    if (in[4] > 240) begin += in[4] - 248;
    sbuf_printf(s, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)(begin + bytes));
    return bytes > 4096 ? at : at + bytes;
}

static sbuf make(const uint8_t *data, size_t size)
{
    sbuf s = { 0 };
    int64_t payload = 0;
    sbuf_add(&s, "12345678", 8);
    sbuf_printf(&s, "{\"__metadata__\":{\"format\":\"cloob\",\"train.updates\":\"3\"}");
    for (; size >= 6; data += 5, size -= 5) payload = put_tensor(&s, data, payload);
    sbuf_printf(&s, "}");
    if (s.failed) return s;
    uint64_t header = s.len - 8;
    for (int i = 0; i < 8; i++) s.data[i] = (char)(header >> (8 * i));
    for (int64_t i = 0; i < payload; i++) sbuf_add(&s, "x", 1);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    char path[64];
    st_file f;
    weights w;
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (size > 2000) return 0;
    sbuf s = make(data, size);
    if (!s.failed && st_open_bytes(ctx, s.data, s.len, "fuzz", &f) == CLOOB_OK) {
        volatile unsigned char sum = 0;
        for (int64_t i = 0; i < f.count; i++)
            for (size_t b = 0; b < tensor_bytes(&f.entry[i].t); b++) sum ^= ((unsigned char *)f.entry[i].t.data)[b];
        st_close(&f);
    }
    if (!s.failed && memory_file((const uint8_t *)s.data, s.len, path) &&
        weights_read_native(ctx, path, &w) == CLOOB_OK)
        weights_release(&w);
    sbuf_release(&s);
    return 0;
}
