/* Pickles of arrays: haiku's parameters as crowsonkb's cloob-training saves them. Nothing in the pickle is run. */
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "io/torch/torchfile.h"

enum { MOST = 1 << 16 }; /* arrays of a file */

typedef struct reader {
    cloob_ctx *ctx;
    torch_file *f;
    const char *name;
    int64_t capacity;
} reader;

static cloob_status damaged(const reader *r, const char *array, const char *what)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: array %.200s %s", r->name, array, what);
}

static bool dtype_of(const pk_value *v, cloob_dtype *out)
{
    static const struct {
        const char *code;
        cloob_dtype dtype;
    } codes[] = {
        { "f4", CLOOB_F32 }, { "f2", CLOOB_F16 }, { "f8", CLOOB_F64 }, { "i4", CLOOB_I32 }, { "i8", CLOOB_I64 }
    };
    if (v->kind != PK_OBJECT || !v->class_name) return false;
    const pk_value *state = v->count ? v->item[0] : NULL; /* (version, byte order, ...) */
    const char *order = state && state->kind == PK_TUPLE && state->count > 1 ? pk_text(state->item[1]) : NULL;
    if (order && order[0] == '>') return false;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(codes[i].code, v->class_name) == 0) {
            *out = codes[i].dtype;
            return true;
        }
    return false;
}

/* (version, shape, dtype, column order, bytes). Bytes inside a pickle are not aligned: they are copied. */
static cloob_status read_array(reader *r, const char *name, const pk_value *state, tensor *t)
{
    int64_t dim[TENSOR_DIMS], columns;
    cloob_dtype dtype;
    if (state->kind != PK_TUPLE || state->count != 5 || state->item[1]->kind != PK_TUPLE ||
        state->item[1]->count > TENSOR_DIMS || !pk_int(state->item[3], &columns) || state->item[4]->kind != PK_BYTES)
        return damaged(r, name, "has no shape, type and bytes");
    const pk_value *shape = state->item[1], *bytes = state->item[4];
    if (!dtype_of(state->item[2], &dtype) || columns)
        return damaged(r, name, "is not of little-endian floats or integers in row order");
    for (int64_t i = 0; i < shape->count; i++)
        if (!pk_int(shape->item[i], &dim[i]) || dim[i] < 0 || dim[i] > 1 << 28)
            return damaged(r, name, "has an impossible shape");
    *t = tensor_make(dtype, (int)shape->count, dim, NULL);
    double count = 1;
    for (int64_t i = 0; i < shape->count; i++) count *= (double)dim[i];
    if (count > 1e12 || tensor_bytes(t) != (size_t)bytes->integer)
        return damaged(r, name, "has fewer bytes than its shape");
    t->data = arena_push(&r->f->a, tensor_bytes(t));
    if (!t->data) return ctx_no_memory(r->ctx, tensor_bytes(t), name);
    memcpy(t->data, bytes->text, tensor_bytes(t));
    return CLOOB_OK;
}

static cloob_status add_array(reader *r, const char *module, const char *leaf, const pk_value *v)
{
    size_t bytes = strlen(module) + strlen(leaf) + 2;
    if (v->kind != PK_OBJECT || !v->class_name || !text_ends_with(v->class_name, "multiarray._reconstruct") ||
        !v->count)
        return CLOOB_OK;
    if (r->f->count >= r->capacity) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: too many arrays", r->name);
    char *name = arena_push(&r->f->a, bytes);
    if (!name) return ctx_no_memory(r->ctx, bytes, r->name);
    snprintf(name, bytes, "%s.%s", module, leaf);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) return damaged(r, "?", "has a name with control characters");
    st_entry *e = &r->f->entry[r->f->count];
    e->name = name;
    CLOOB_TRY(read_array(r, name, v->item[0], &e->t));
    r->f->count++;
    return CLOOB_OK;
}

static cloob_status add_modules(reader *r, const pk_value *modules)
{
    for (int64_t i = 0; modules->kind == PK_DICT && i < modules->count; i++) {
        const char *module = pk_text(modules->item[2 * i]);
        const pk_value *leaves = modules->item[2 * i + 1];
        for (int64_t k = 0; module && leaves->kind == PK_DICT && k < leaves->count; k++) {
            const char *leaf = pk_text(leaves->item[2 * k]);
            if (leaf) CLOOB_TRY(add_array(r, module, leaf, leaves->item[2 * k + 1]));
        }
    }
    return CLOOB_OK;
}

bool arrays_looks_like(const unsigned char *data, size_t size)
{
    return size > 2 && data[0] == 0x80 && data[1] >= 2 && data[1] <= 5 && !torch_looks_like(data, size);
}

static cloob_status read_all(reader *r, const unsigned char *data, size_t size)
{
    pk_result pickle;
    CLOOB_TRY(pickle_read(r->ctx, &r->f->a, data, size, r->name, true, &pickle));
    const pk_value *params = pk_get(pickle.root, "params");
    bool several = params && (params->kind == PK_TUPLE || params->kind == PK_LIST);
    r->f->root = pickle.root;
    r->f->layout = TORCH_ARRAYS;
    r->capacity = MOST;
    r->f->entry = arena_push(&r->f->a, (size_t)r->capacity * sizeof *r->f->entry);
    if (!r->f->entry) return ctx_no_memory(r->ctx, (size_t)r->capacity * sizeof *r->f->entry, r->name);
    for (int64_t i = 0; several && i < params->count; i++) CLOOB_TRY(add_modules(r, params->item[i]));
    if (r->f->count) return CLOOB_OK;
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT,
                    "%s: a pickle without torch's magic number and without haiku's \"params\" of arrays", r->name);
}

cloob_status arrays_open_bytes(cloob_ctx *ctx, const void *data, size_t size, const char *name, torch_file *f)
{
    reader r = { .ctx = ctx, .f = f, .name = name };
    *f = (torch_file){ 0 };
    cloob_status status = read_all(&r, data, size);
    if (status != CLOOB_OK) torch_close(f);
    return status;
}
