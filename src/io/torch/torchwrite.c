/* Writing torch zip files: one pickle of protocol 2 without a memo, and a member per tensor. */
#include <string.h>

#include "core/sbuf.h"
#include "io/torch/torchfile.h"
#include "io/torch/zip.h"

/* ---- the pickle ---------------------------------------------------------------------------------- */

static void put_u32(sbuf *s, uint64_t v)
{
    for (int i = 0; i < 4; i++) sbuf_putc(s, (char)(v >> (8 * i)));
}

static void put_text(sbuf *s, const char *text)
{
    sbuf_putc(s, 'X');
    put_u32(s, strlen(text));
    sbuf_puts(s, text);
}

static void put_int(sbuf *s, int64_t v)
{
    if (v >= INT32_MIN && v <= INT32_MAX) {
        sbuf_putc(s, 'J');
        put_u32(s, (uint64_t)v);
        return;
    }
    sbuf_add(s, "\x8a\x08", 2);
    for (int i = 0; i < 8; i++) sbuf_putc(s, (char)((uint64_t)v >> (8 * i)));
}

static const char *storage_type(cloob_dtype d)
{
    switch (d) {
    case CLOOB_F32: return "Float";
    case CLOOB_BF16: return "BFloat16";
    case CLOOB_F16: return "Half";
    case CLOOB_F64: return "Double";
    case CLOOB_I64: return "Long";
    case CLOOB_I32: return "Int";
    case CLOOB_I16: return "Short";
    case CLOOB_I8: return "Char";
    case CLOOB_U8: return "Byte";
    default: return "Bool";
    }
}

/* torch._utils._rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()) */
static void put_tensor(sbuf *s, const tensor *t, int64_t key)
{
    int64_t stride[TENSOR_DIMS] = { 0 }, step = 1;
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)key);
    sbuf_puts(s, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(s, "storage");
    sbuf_printf(s, "ctorch\n%sStorage\n", storage_type(t->dtype));
    put_text(s, text);
    put_text(s, "cpu");
    put_int(s, tensor_count(t));
    sbuf_puts(s, "tQ");
    put_int(s, 0);
    for (int i = t->ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= t->dim[i] ? t->dim[i] : 1;
    }
    sbuf_putc(s, '(');
    for (int i = 0; i < t->ndim; i++) put_int(s, t->dim[i]);
    sbuf_puts(s, "t(");
    for (int i = 0; i < t->ndim; i++) put_int(s, stride[i]);
    sbuf_puts(s, "t\x89"
                 "ccollections\nOrderedDict\n)RtR");
}

static void put_state_dict(sbuf *s, const st_entry *entry, int64_t count)
{
    sbuf_puts(s, "ccollections\nOrderedDict\n)R(");
    for (int64_t i = 0; i < count; i++) {
        put_text(s, entry[i].name);
        put_tensor(s, &entry[i].t, i);
    }
    sbuf_putc(s, 'u');
}

static void put_pickle(sbuf *s, const st_entry *entry, int64_t count, const torch_wrapper *wrapper)
{
    sbuf_add(s, "\x80\x02", 2);
    if (wrapper) {
        sbuf_puts(s, "}(");
        put_text(s, "epoch");
        put_int(s, wrapper->epoch);
        put_text(s, "name");
        put_text(s, wrapper->name);
        put_text(s, "state_dict");
    }
    put_state_dict(s, entry, count);
    sbuf_puts(s, wrapper ? "u." : ".");
}

/* ---- the archive --------------------------------------------------------------------------------- */

static cloob_status write_members(cloob_ctx *ctx, zip_writer *z, const sbuf *pickle, const st_entry *entry,
                                  int64_t count)
{
    char name[64];
    CLOOB_TRY(zip_writer_add(ctx, z, "archive/data.pkl", pickle->data, pickle->len));
    CLOOB_TRY(zip_writer_add(ctx, z, "archive/byteorder", "little", 6));
    for (int64_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "archive/data/%lld", (long long)i);
        CLOOB_TRY(zip_writer_add(ctx, z, name, entry[i].t.data, tensor_bytes(&entry[i].t)));
    }
    CLOOB_TRY(zip_writer_add(ctx, z, "archive/version", "3\n", 2));
    return zip_writer_end(ctx, z);
}

cloob_status torch_write(cloob_ctx *ctx, const char *path, const st_entry *entry, int64_t count,
                         const torch_wrapper *wrapper)
{
    sbuf pickle = { 0 };
    file_writer w = { 0 };
    zip_writer z = { 0 };
    put_pickle(&pickle, entry, count, wrapper);
    cloob_status status = pickle.failed ? ctx_no_memory(ctx, pickle.len, path) : file_writer_begin(ctx, path, &w);
    if (status == CLOOB_OK) {
        zip_writer_begin(&z, w.stream);
        status = write_members(ctx, &z, &pickle, entry, count);
        if (status == CLOOB_OK) status = file_writer_commit(ctx, &w);
        else file_writer_abort(&w);
        zip_writer_release(&z);
    }
    sbuf_release(&pickle);
    return status;
}
