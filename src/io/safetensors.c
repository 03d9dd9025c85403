/* The safetensors format: u64 header length, JSON header, tensor bytes. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/json.h"

enum { HEADER_LIMIT = 100 << 20 }; /* the format's own limit */

typedef struct reader {
    cloob_ctx *ctx;
    st_file *f;
    const char *name;
    const unsigned char *payload;
    uint64_t payload_bytes;
} reader;

/* ---- one header entry ---------------------------------------------------------------------------- */

static cloob_status read_shape(reader *r, const json *j, const char *key, tensor *t, uint64_t *bytes)
{
    const json *shape = json_get(j, "shape");
    if (!shape || shape->kind != JSON_ARRAY || shape->count > TENSOR_DIMS)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %.200s: needs a shape of at most %d dimensions", r->name, key,
                        TENSOR_DIMS);
    t->ndim = 0;
    for (const json *d = shape->child; d; d = d->next) {
        int64_t n;
        if (!json_int(d, &n) || n < 0 || (n > 0 && *bytes > (uint64_t)INT64_MAX / (uint64_t)n))
            return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %.200s: impossible shape", r->name, key);
        *bytes *= (uint64_t)n;
        t->dim[t->ndim++] = n;
    }
    return CLOOB_OK;
}

static cloob_status read_range(reader *r, const json *j, const char *key, uint64_t bytes, tensor *t)
{
    const json *range = json_get(j, "data_offsets");
    int64_t begin, end;
    if (!range || range->kind != JSON_ARRAY || range->count != 2 || !json_int(range->child, &begin) ||
        !json_int(range->child->next, &end) || begin < 0 || end < begin || (uint64_t)end > r->payload_bytes)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %.200s: its bytes are outside the file (cut short?)", r->name,
                        key);
    if ((uint64_t)(end - begin) != bytes)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %.200s: shape needs %llu bytes, the file gives %lld", r->name,
                        key, (unsigned long long)bytes, (long long)(end - begin));
    t->data = (void *)(uintptr_t)(r->payload + begin);
    return CLOOB_OK;
}

static cloob_status read_entry(reader *r, const json *j, st_entry *e)
{
    const char *type = json_string(json_get(j, "dtype"));
    if (!type || !dtype_from_name(type, &e->t.dtype))
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %.200s: unknown element type %.40s", r->name, j->key,
                        type ? type : "(none)");
    uint64_t bytes = dtype_size(e->t.dtype);
    e->name = j->key;
    CLOOB_TRY(read_shape(r, j, j->key, &e->t, &bytes));
    return read_range(r, j, j->key, bytes, &e->t);
}

static cloob_status read_metadata(reader *r, const json *j)
{
    if (j->kind != JSON_OBJECT) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: __metadata__ is not an object", r->name);
    r->f->meta = arena_push(&r->f->names, (size_t)(j->count + 1) * sizeof *r->f->meta);
    if (!r->f->meta) return ctx_no_memory(r->ctx, (size_t)j->count, r->name);
    for (const json *m = j->child; m; m = m->next) {
        if (m->kind != JSON_STRING)
            return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: metadata %.200s is not a string", r->name, m->key);
        r->f->meta[r->f->meta_count++] = (st_meta){ m->key, m->text };
    }
    return CLOOB_OK;
}

/* ---- the whole file ------------------------------------------------------------------------------ */

static int by_data(const void *a, const void *b)
{
    const st_entry *x = *(const st_entry *const *)a, *y = *(const st_entry *const *)b;
    if (x->t.data != y->t.data) return (uintptr_t)x->t.data < (uintptr_t)y->t.data ? -1 : 1;
    size_t n = tensor_bytes(&x->t), m = tensor_bytes(&y->t);
    return n < m ? -1 : n > m;
}

/* The format promises that tensors tile the payload: an overlap would let one tensor alias another. */
static cloob_status check_tiling(reader *r)
{
    int64_t n = r->f->count;
    const st_entry **order = malloc((size_t)(n + 1) * sizeof *order);
    if (!order) return ctx_no_memory(r->ctx, (size_t)n * sizeof *order, r->name);
    for (int64_t i = 0; i < n; i++) order[i] = &r->f->entry[i];
    qsort(order, (size_t)n, sizeof *order, by_data);
    const unsigned char *at = r->payload;
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        if (order[i]->t.data != at)
            status = ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %.200s: its bytes overlap another tensor or leave a hole",
                              r->name, order[i]->name);
        at += tensor_bytes(&order[i]->t);
    }
    free(order);
    if (status == CLOOB_OK && at != r->payload + r->payload_bytes)
        status = ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: bytes after the last tensor", r->name);
    return status;
}

static cloob_status read_header(reader *r, const char *text, size_t len)
{
    json *root;
    CLOOB_TRY(json_parse(r->ctx, &r->f->names, text, len, r->name, &root));
    if (root->kind != JSON_OBJECT)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: the header is not an object", r->name);
    r->f->entry = arena_push(&r->f->names, (size_t)(root->count + 1) * sizeof *r->f->entry);
    if (!r->f->entry) return ctx_no_memory(r->ctx, (size_t)root->count * sizeof *r->f->entry, r->name);
    for (const json *j = root->child; j; j = j->next) {
        if (strcmp(j->key, "__metadata__") == 0) CLOOB_TRY(read_metadata(r, j));
        else CLOOB_TRY(read_entry(r, j, &r->f->entry[r->f->count++]));
    }
    return check_tiling(r);
}

cloob_status st_open_bytes(cloob_ctx *ctx, const void *data, size_t size, const char *name, st_file *f)
{
    *f = (st_file){ 0 };
    if (size < 8)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not a safetensors file (%zu bytes is too short)", name, size);
    uint64_t header = load_le(data, 8);
    const char *kind = header > HEADER_LIMIT ? file_kind(data, size) : NULL;
    if (kind) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not a safetensors file, but %s", name, kind);
    if (header > HEADER_LIMIT || header > size - 8)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: not a safetensors file, or cut short (header of %llu bytes in a file of %zu)", name,
                        (unsigned long long)header, size);
    const unsigned char *bytes = data;
    reader r = { ctx, f, name, bytes + 8 + header, size - 8 - header };
    cloob_status status = read_header(&r, (const char *)bytes + 8, (size_t)header);
    if (status != CLOOB_OK) st_close(f);
    return status;
}

cloob_status st_open(cloob_ctx *ctx, const char *path, st_file *f)
{
    file_map map;
    *f = (st_file){ 0 };
    CLOOB_TRY(file_map_open(ctx, path, &map));
    cloob_status status = st_open_bytes(ctx, map.data, map.size, path, f);
    if (status == CLOOB_OK) f->map = map;
    else file_map_close(&map);
    return status;
}

void st_close(st_file *f)
{
    file_map_close(&f->map);
    arena_release(&f->names);
    *f = (st_file){ 0 };
}

const st_entry *st_find(const st_file *f, const char *name)
{
    for (int64_t i = 0; i < f->count; i++)
        if (strcmp(f->entry[i].name, name) == 0) return &f->entry[i];
    return NULL;
}

const char *st_meta_get(const st_file *f, const char *key)
{
    for (int64_t i = 0; i < f->meta_count; i++)
        if (strcmp(f->meta[i].key, key) == 0) return f->meta[i].value;
    return NULL;
}

cloob_status st_need(cloob_ctx *ctx, const st_file *f, const char *path, const char *name, int ndim, const tensor **t)
{
    char shape[SHAPE_TEXT];
    const st_entry *e = st_find(f, name);
    if (!e) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no tensor named %s in it", path, name);
    if (e->t.ndim != ndim)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s: %d dimensions are needed, the file has %s", path, name, ndim,
                        tensor_shape_text(&e->t, shape));
    *t = &e->t;
    return CLOOB_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static void put_entry(json_out *w, const st_entry *e, uint64_t offset)
{
    json_begin(w, e->name, '{');
    json_put_text(w, "dtype", dtype_name(e->t.dtype));
    json_begin(w, "shape", '[');
    for (int i = 0; i < e->t.ndim; i++) json_put_int(w, NULL, e->t.dim[i]);
    json_end(w);
    json_begin(w, "data_offsets", '[');
    json_put_int(w, NULL, (int64_t)offset);
    json_put_int(w, NULL, (int64_t)(offset + tensor_bytes(&e->t)));
    json_end(w);
    json_end(w);
}

static void put_header(sbuf *s, const st_entry *entry, int64_t count, const st_meta *meta, int64_t meta_count)
{
    json_out w = json_out_on(s);
    uint64_t offset = 0;
    json_begin(&w, NULL, '{');
    if (meta_count) json_begin(&w, "__metadata__", '{');
    for (int64_t i = 0; i < meta_count; i++) json_put_text(&w, meta[i].key, meta[i].value);
    if (meta_count) json_end(&w);
    for (int64_t i = 0; i < count; i++) {
        put_entry(&w, &entry[i], offset);
        offset += tensor_bytes(&entry[i].t);
    }
    json_end(&w);
    json_out_back(&w, s);
}

void st_put_beginning(sbuf *s, const st_entry *entry, int64_t count, const st_meta *meta, int64_t meta_count,
                      size_t min_bytes)
{
    enum { LENGTH = 8 };
    size_t begin = s->len;
    sbuf_add(s, "        ", LENGTH);
    put_header(s, entry, count, meta, meta_count);
    /* with the 8-byte length: tensor data starts 8-aligned, near a cache line */
    while (!s->failed && ((s->len - begin - LENGTH) % 64 || s->len - begin < min_bytes)) sbuf_putc(s, ' ');
    if (s->failed) return;
    for (int i = 0; i < LENGTH; i++)
        s->data[begin + (size_t)i] = (char)((uint64_t)(s->len - begin - LENGTH) >> (8 * i));
}

static void put_tensors(cloob_ctx *ctx, FILE *to, const st_entry *entry, int64_t count,
                        void (*done)(void *user, const st_entry *e), void *user)
{
    for (int64_t i = 0; i < count; i++) {
        if (done) ctx_progress(ctx, "write weights", i, count, "tensors");
        if (tensor_bytes(&entry[i].t)) fwrite(entry[i].t.data, 1, tensor_bytes(&entry[i].t), to);
        if (done) done(user, &entry[i]);
    }
    if (done) ctx_progress(ctx, "write weights", count, count, "tensors");
}

cloob_status st_write(cloob_ctx *ctx, const char *path, const st_entry *entry, int64_t count, const st_meta *meta,
                      int64_t meta_count)
{
    return st_write_dropping(ctx, path, entry, count, meta, meta_count, NULL, NULL);
}

cloob_status st_write_dropping(cloob_ctx *ctx, const char *path, const st_entry *entry, int64_t count,
                               const st_meta *meta, int64_t meta_count, void (*done)(void *user, const st_entry *e),
                               void *user)
{
    file_writer w;
    sbuf s = { 0 };
    st_put_beginning(&s, entry, count, meta, meta_count, 0);
    if (s.failed) {
        sbuf_release(&s);
        return ctx_no_memory(ctx, s.len, path);
    }
    cloob_status status = file_writer_begin(ctx, path, &w);
    if (status == CLOOB_OK) {
        fwrite(s.data, 1, s.len, w.stream);
        put_tensors(ctx, w.stream, entry, count, done, user);
        status = file_writer_commit(ctx, &w);
    }
    sbuf_release(&s);
    return status;
}
