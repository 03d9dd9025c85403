/* What is done with embeddings once they are there: retrieval from stored rows, and files. */
#include <stdlib.h>
#include <string.h>

#include "cloob/eval.h"
#include "cloob/hopfield.h"
#include "cloob/model.h"
#include "core/json.h"
#include "io/npy.h"
#include "io/safetensors.h"

/* ---- Hopfield retrieval -------------------------------------------------------------------------- */

static cloob_status retrieve_side(cloob_ctx *ctx, const cloob_hopfield *h, const cloob_matrix *stored,
                                  bool unit, float *rows, int64_t n, int64_t width)
{
    cloob_hopfield_options o;
    if (!rows) return CLOOB_OK;
    if (width != h->dim)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: rows of %lld, the embeddings have %lld", stored->name,
                        (long long)h->dim, (long long)width);
    cloob_hopfield_options_init(&o);
    o.unit = unit;
    return cloob_hopfield_retrieve(ctx, h, &o, rows, n, rows, NULL);
}

cloob_status cloob_embedded_retrieve(cloob_ctx *ctx, cloob_embedded *e, const char *path, const char *which,
                                     double beta, bool unit)
{
    cloob_embeddings *file;
    cloob_matrix stored;
    float *rows = NULL;
    CLOOB_TRY(cloob_embeddings_open(ctx, path, &file));
    cloob_status status = cloob_embeddings_matrix(ctx, file, which, &stored);
    if (status == CLOOB_OK) status = cloob_matrix_floats(ctx, &stored, &rows);
    if (status == CLOOB_OK) {
        cloob_hopfield h = { rows, stored.rows, stored.columns, beta };
        status = retrieve_side(ctx, &h, &stored, unit, e->image, e->rows, e->image_width);
        if (status == CLOOB_OK)
            status = retrieve_side(ctx, &h, &stored, unit, e->text, e->text_rows, e->text_width);
    }
    free(rows);
    cloob_embeddings_close(file);
    return status;
}

/* ---- files --------------------------------------------------------------------------------------- */

static void put_list(sbuf *s, char *const *item, int64_t n)
{
    sbuf_putc(s, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i) sbuf_puts(s, ", ");
        json_put_string(s, item[i]);
    }
    sbuf_putc(s, ']');
}

static cloob_status write_npy(cloob_ctx *ctx, const cloob_embedded *e, const char *path)
{
    if (e->image && e->text)
        return ctx_fail(
            ctx, CLOOB_ERR_ARGUMENT,
            "%s: a .npy file holds one matrix, and there are pictures and texts; use .safetensors", path);
    if (e->image) return npy_write(ctx, path, e->image, e->rows, e->image_width);
    return npy_write(ctx, path, e->text, e->text_rows, e->text_width);
}

cloob_status cloob_embedded_write(cloob_ctx *ctx, const cloob_embedded *e, const char *path)
{
    size_t n = strlen(path);
    sbuf names = { 0 }, classes = { 0 };
    st_entry entry[3];
    st_meta meta[2];
    int64_t entries = 0, metas = 0;
    if (!e->image && !e->text) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: nothing to write", path);
    if (n > 4 && strcmp(path + n - 4, ".npy") == 0) return write_npy(ctx, e, path);
    /* the widest first: the format has no padding, and readers map it */
    if (e->label) entry[entries++] = (st_entry){ "label", TENSOR(CLOOB_I64, e->label, e->rows) };
    if (e->image)
        entry[entries++] = (st_entry){ "image", TENSOR(CLOOB_F32, e->image, e->rows, e->image_width) };
    if (e->text)
        entry[entries++] = (st_entry){ "text", TENSOR(CLOOB_F32, e->text, e->text_rows, e->text_width) };
    put_list(&names, e->name, e->name ? e->rows : 0);
    put_list(&classes, e->class_name, e->classes);
    if (e->name) meta[metas++] = (st_meta){ "names", names.data };
    if (e->classes) meta[metas++] = (st_meta){ "classes", classes.data };
    cloob_status status = names.failed || classes.failed
                              ? ctx_no_memory(ctx, names.len + classes.len, "names")
                              : st_write(ctx, path, entry, entries, meta, metas);
    sbuf_release(&names);
    sbuf_release(&classes);
    return status;
}
