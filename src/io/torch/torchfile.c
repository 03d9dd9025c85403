/* Reading torch files: find the pickle, find the storages, check every tensor against them. */
#include "io/torch/torchfile.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/file.h"
#include "core/text.h"
#include "io/torch/zip.h"

enum { NAME_LIMIT = 512, MODULE_DEPTH = 64, MODULE_VISITS = 1 << 20 };

/* The bytes behind a key. */
typedef struct storage_bytes {
    const char *key;
    const unsigned char *data;
    uint64_t size;
} storage_bytes;

typedef struct reader {
    cloob_ctx *ctx;
    torch_file *f;
    const char *name;
    const unsigned char *data;
    size_t size;
    /* zip: members PREFIX/data/KEY */
    zip_reader zip;
    const char *prefix;
    bool swap; /* elements have the other byte order */
    /* stream: sorted by key */
    storage_bytes *storage;
    int64_t storages;
    uint64_t copied; /* bytes of tensors that could not be views */
    int64_t capacity, visits;
} reader;

/* ---- zip files ----------------------------------------------------------------------------------- */

static cloob_status member_name(reader *r, const char *tail, char out[NAME_LIMIT])
{
    size_t n = strlen(r->prefix), m = strlen(tail);
    if (n + m >= NAME_LIMIT) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: a storage whose name is too long", r->name);
    memcpy(out, r->prefix, n);
    memcpy(out + n, tail, m + 1);
    return CLOOB_OK;
}

static cloob_status zip_storage(reader *r, const char *key, storage_bytes *out)
{
    char tail[NAME_LIMIT], whole[NAME_LIMIT];
    if (strlen(key) > 200) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: a storage whose name is too long", r->name);
    snprintf(tail, sizeof tail, "data/%s", key);
    CLOOB_TRY(member_name(r, tail, whole));
    const zip_member *m = zip_find(&r->zip, whole);
    if (!m) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: storage %.100s is missing in it", r->name, key);
    if (!m->data)
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: storage %.100s is compressed, which torch never does; unpack it and zip it with -0",
                        r->name, key);
    *out = (storage_bytes){ key, m->data, m->size };
    return CLOOB_OK;
}

/* The member NAME/data.pkl with one folder before it; torch picks NAME from the file's own. */
static const zip_member *find_pickle(const reader *r)
{
    const zip_member *found = NULL;
    for (int64_t i = 0; i < r->zip.count; i++) {
        const zip_member *m = &r->zip.member[i];
        const char *slash = strchr(m->name, '/');
        if (strcmp(slash ? slash + 1 : m->name, "data.pkl") != 0) continue;
        if (found) return NULL;
        found = m;
    }
    return found;
}

static cloob_status open_zip(reader *r, pk_result *pickle)
{
    char name[NAME_LIMIT];
    CLOOB_TRY(zip_open_bytes(r->ctx, &r->f->a, r->data, r->size, r->name, &r->zip));
    const zip_member *m = find_pickle(r);
    if (!m || !m->data || strlen(m->name) >= NAME_LIMIT)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: a zip file, but not one of torch's (no readable data.pkl in it)",
                        r->name);
    if (m->size > PICKLE_LIMIT)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: its pickle has %llu bytes; files of weights need far less",
                        r->name, (unsigned long long)m->size);
    r->prefix = arena_string_n(&r->f->a, m->name, strlen(m->name) - strlen("data.pkl"));
    if (!r->prefix) return ctx_no_memory(r->ctx, NAME_LIMIT, r->name);
    CLOOB_TRY(member_name(r, "byteorder", name));
    const zip_member *order = zip_find(&r->zip, name);
    r->swap = order && order->data && order->size == 3 && memcmp(order->data, "big", 3) == 0;
    CLOOB_TRY(member_name(r, "constants.pkl", name));
    r->f->layout = zip_find(&r->zip, name) ? TORCH_SCRIPT : TORCH_ZIP;
    return pickle_read(r->ctx, &r->f->a, m->data, m->size, r->name, false, pickle);
}

/* ---- stream files (torch before 1.6): five pickles, then the storages ---------------------------- */

static const unsigned char stream_magic[] = { 0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                              0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.' };

static int by_key(const void *a, const void *b)
{
    return strcmp(((const storage_bytes *)a)->key, ((const storage_bytes *)b)->key);
}

static const storage_bytes *stream_find(const reader *r, const char *key)
{
    storage_bytes wanted = { .key = key };
    return r->storages ? bsearch(&wanted, r->storage, (size_t)r->storages, sizeof wanted, by_key) : NULL;
}

/* Before the bytes are known, `size` holds the element size that the pickle gave each key. */
static cloob_status stream_keys(reader *r, const pk_storage *list)
{
    int64_t n = 0, kept = 0;
    for (const pk_storage *s = list; s; s = s->next) n++;
    r->storage = arena_push(&r->f->a, (size_t)(n + 1) * sizeof *r->storage);
    if (!r->storage) return ctx_no_memory(r->ctx, (size_t)n * sizeof *r->storage, r->name);
    n = 0;
    for (const pk_storage *s = list; s; s = s->next)
        r->storage[n++] = (storage_bytes){ s->key, NULL, dtype_size(s->dtype) };
    qsort(r->storage, (size_t)n, sizeof *r->storage, by_key);
    for (int64_t i = 0; i < n; i++) {
        if (!kept || strcmp(r->storage[kept - 1].key, r->storage[i].key) != 0) r->storage[kept++] = r->storage[i];
        else if (r->storage[kept - 1].size != r->storage[i].size)
            return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: one storage with two element types", r->name);
    }
    r->storages = kept;
    return CLOOB_OK;
}

static cloob_status stream_storage(reader *r, const char *key, size_t *at)
{
    storage_bytes *s = (storage_bytes *)(uintptr_t)(key ? stream_find(r, key) : NULL);
    if (!s || s->data)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: a storage that is not listed, or listed twice", r->name);
    uint64_t element = s->size;
    if (r->size - *at < 8)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: cut short before storage %.60s", r->name, key);
    uint64_t count = load_le(r->data + *at, 8);
    *at += 8;
    if (count > (r->size - *at) / element)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: cut short inside storage %.60s", r->name, key);
    s->data = r->data + *at;
    s->size = count * element;
    *at += s->size;
    return CLOOB_OK;
}

static cloob_status open_stream(reader *r, pk_result *pickle)
{
    pk_result part;
    size_t at = 0;
    r->f->layout = TORCH_LEGACY;
    for (int i = 0; i < 5; i++) { /* magic, version, system, what was saved, keys in file order */
        CLOOB_TRY(pickle_read(r->ctx, &r->f->a, r->data + at, r->size - at, r->name, false, &part));
        at += part.used;
        if (i == 3) *pickle = part;
    }
    if (part.root->kind != PK_LIST) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: no list of storages in it", r->name);
    CLOOB_TRY(stream_keys(r, pickle->storages));
    for (int64_t i = 0; i < part.root->count; i++) CLOOB_TRY(stream_storage(r, pk_text(part.root->item[i]), &at));
    return CLOOB_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------- */

static cloob_status find_storage(reader *r, const pk_storage *s, storage_bytes *out)
{
    if (r->prefix) return zip_storage(r, s->key, out);
    const storage_bytes *found = stream_find(r, s->key);
    if (!found || !found->data)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: storage %.100s is missing in it", r->name, s->key);
    *out = *found;
    return CLOOB_OK;
}

/* Elements the tensor has, and one past the last element it touches; false when they cannot be. */
static bool tensor_extent(const pk_tensor *t, int64_t *count, int64_t *end)
{
    int64_t n = 1, last = t->offset, step;
    for (int i = 0; i < t->ndim; i++) {
        if (__builtin_mul_overflow(n, t->dim[i], &n)) return false;
        if (t->dim[i] > 0 &&
            (__builtin_mul_overflow(t->dim[i] - 1, t->stride[i], &step) || __builtin_add_overflow(last, step, &last)))
            return false;
    }
    *count = n;
    if (n == 0) *end = 0;
    else if (__builtin_add_overflow(last, 1, end)) return false;
    return true;
}

static bool is_contiguous(const pk_tensor *t)
{
    int64_t expected = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dim[i] != 1 && t->stride[i] != expected) return false;
        expected *= t->dim[i];
    }
    return true;
}

static void copy_strided(const pk_tensor *t, size_t element, bool swap, const unsigned char *from, unsigned char *to)
{
    int64_t index[TENSOR_DIMS] = { 0 }, count = 1;
    for (int i = 0; i < t->ndim; i++) count *= t->dim[i];
    for (int64_t n = 0; n < count; n++, to += element) {
        int64_t at = t->offset;
        for (int i = 0; i < t->ndim; i++) at += index[i] * t->stride[i];
        const unsigned char *p = from + (size_t)at * element;
        for (size_t b = 0; b < element; b++) to[b] = p[swap ? element - 1 - b : b];
        for (int i = t->ndim - 1; i >= 0 && ++index[i] == t->dim[i]; i--) index[i] = 0;
    }
}

/* Overlapping views could make a small file need much memory; real files stay far below this limit. */
static cloob_status copy_tensor(reader *r, const pk_tensor *t, const char *key, const unsigned char *from, tensor *out)
{
    size_t bytes = tensor_bytes(out);
    r->copied += bytes;
    if (r->copied > 2 * (uint64_t)r->size)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %s: its tensors share more bytes than the file has", r->name,
                        key);
    out->data = arena_push(&r->f->a, bytes);
    if (!out->data) return ctx_no_memory(r->ctx, bytes, key);
    copy_strided(t, dtype_size(out->dtype), r->swap, from, out->data);
    return CLOOB_OK;
}

static cloob_status resolve(reader *r, const pk_tensor *t, const char *key, tensor *out)
{
    int64_t count, end;
    storage_bytes bytes;
    const pk_storage *s = t->storage;
    size_t element = dtype_size(s->dtype);
    *out = tensor_make(s->dtype, t->ndim, t->dim, NULL);
    if (!tensor_extent(t, &count, &end))
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %s: impossible sizes", r->name, key);
    CLOOB_TRY(find_storage(r, s, &bytes));
    if ((uint64_t)s->count > bytes.size / element || (uint64_t)s->offset > bytes.size / element - (uint64_t)s->count)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %s: its storage should have %lld elements, the file has %llu",
                        r->name, key, (long long)s->count, (unsigned long long)(bytes.size / element));
    if (end > s->count || count > s->count)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %s: %lld elements up to number %lld in a storage of %lld",
                        r->name, key, (long long)count, (long long)end, (long long)s->count);
    const unsigned char *from = bytes.data + (size_t)s->offset * element;
    if (count == 0) return CLOOB_OK;
    if (!is_contiguous(t) || r->swap || (uintptr_t)from % element) return copy_tensor(r, t, key, from, out);
    out->data = (void *)(uintptr_t)(from + (size_t)t->offset * element);
    return CLOOB_OK;
}

/* ---- the state dict ------------------------------------------------------------------------------ */

/* UTF-8 without control characters: what may go to a terminal and into JSON. */
static bool printable(const char *name)
{
    size_t left = name ? strlen(name) : 0;
    if (!left || left >= NAME_LIMIT) return false;
    while (left) {
        uint32_t code;
        int n = utf8_decode(name, left, &code);
        if (n <= 0 || code < ' ' || code == 127) return false;
        name += n;
        left -= (size_t)n;
    }
    return true;
}

static cloob_status add_entry(reader *r, const char *name, const pk_tensor *t)
{
    torch_file *f = r->f;
    if (!printable(name))
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: a tensor whose name cannot be printed", r->name);
    st_entry *grown = arena_grow(&f->a, f->entry, f->count, &r->capacity, 512, sizeof *grown);
    if (!grown) return ctx_no_memory(r->ctx, sizeof *grown, r->name);
    f->entry = grown;
    f->entry[f->count].name = name;
    CLOOB_TRY(resolve(r, t, name, &f->entry[f->count].t));
    f->count++;
    return CLOOB_OK;
}

static cloob_status add_dict(reader *r, const pk_value *dict)
{
    for (int64_t i = 0; i < dict->count; i++) {
        const pk_value *v = dict->item[2 * i + 1];
        if (v->kind == PK_TENSOR) CLOOB_TRY(add_entry(r, pk_text(dict->item[2 * i]), v->tensor));
    }
    return CLOOB_OK;
}

/* A TorchScript module: tensors are its parameters and buffers, objects its children. */
static cloob_status add_module(reader *r, const pk_value *module, const char *prefix, int depth)
{
    const pk_value *state = module->count ? module->item[0] : NULL;
    if (!state || state->kind != PK_DICT) return CLOOB_OK;
    if (depth > MODULE_DEPTH) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: modules nested too deeply", r->name);
    for (int64_t i = 0; i < state->count; i++) {
        const pk_value *v = state->item[2 * i + 1];
        const char *key = pk_text(state->item[2 * i]);
        if (++r->visits > MODULE_VISITS) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: too many modules", r->name);
        if ((v->kind != PK_TENSOR && v->kind != PK_OBJECT) || !key) continue;
        size_t bytes = strlen(prefix) + strlen(key) + 2;
        if (bytes > NAME_LIMIT)
            return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: a module whose name is too long", r->name);
        char *name = arena_push(&r->f->a, bytes);
        if (!name) return ctx_no_memory(r->ctx, bytes, r->name);
        snprintf(name, bytes, "%s%s%s", prefix, prefix[0] ? "." : "", key);
        if (v->kind == PK_TENSOR) CLOOB_TRY(add_entry(r, name, v->tensor));
        else CLOOB_TRY(add_module(r, v, name, depth + 1));
    }
    return CLOOB_OK;
}

static cloob_status refuse_duplicates(reader *r)
{
    int64_t n = r->f->count;
    const char **sorted = malloc((size_t)(n + 1) * sizeof *sorted);
    cloob_status status = CLOOB_OK;
    if (!sorted) return ctx_no_memory(r->ctx, (size_t)n * sizeof *sorted, r->name);
    for (int64_t i = 0; i < n; i++) sorted[i] = r->f->entry[i].name;
    qsort(sorted, (size_t)n, sizeof *sorted, order_text);
    for (int64_t i = 1; i < n && status == CLOOB_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: tensor %.200s is in it twice", r->name, sorted[i]);
    free(sorted);
    return status;
}

static cloob_status read_state(reader *r, const pk_value *root)
{
    static const char *const wrappers[] = { "state_dict", "model", "model_state_dict" };
    const pk_value *dict = root;
    r->f->root = root;
    for (size_t i = sizeof wrappers / sizeof wrappers[0]; i-- > 0;) {
        const pk_value *inner = pk_get(root, wrappers[i]);
        if (inner && inner->kind == PK_DICT) dict = inner;
    }
    if (root->kind == PK_OBJECT) CLOOB_TRY(add_module(r, root, "", 0));
    else if (dict->kind == PK_DICT) CLOOB_TRY(add_dict(r, dict));
    if (!r->f->count)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: a torch file without a state dict of tensors", r->name);
    return refuse_duplicates(r);
}

/* ---- the whole file ------------------------------------------------------------------------------ */

static const char *guess(const unsigned char *p, size_t n)
{
    const char *kind = file_kind(p, n);
    if (kind) return kind;
    if (n >= 2 && p[0] == 0x80 && p[1] <= 5) return "a pickle without torch's magic number";
    return n ? "neither a zip file nor a torch stream" : "empty";
}

bool torch_looks_like(const unsigned char *data, size_t size)
{
    return zip_looks_like(data, size) ||
           (size >= sizeof stream_magic && memcmp(data, stream_magic, sizeof stream_magic) == 0);
}

static cloob_status open_any(reader *r)
{
    pk_result pickle = { 0 };
    if (!torch_looks_like(r->data, r->size))
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: not a torch file, but %s", r->name, guess(r->data, r->size));
    if (zip_looks_like(r->data, r->size)) CLOOB_TRY(open_zip(r, &pickle));
    else CLOOB_TRY(open_stream(r, &pickle));
    return read_state(r, pickle.root);
}

cloob_status torch_open_bytes(cloob_ctx *ctx, const void *data, size_t size, const char *name, torch_file *f)
{
    reader r = { .ctx = ctx, .f = f, .name = name, .data = data, .size = size };
    *f = (torch_file){ 0 };
    cloob_status status = open_any(&r);
    if (status != CLOOB_OK) torch_close(f);
    return status;
}

cloob_status torch_open(cloob_ctx *ctx, const char *path, torch_file *f)
{
    file_map map;
    *f = (torch_file){ 0 };
    CLOOB_TRY(file_map_open(ctx, path, &map));
    bool arrays = arrays_looks_like(map.data, map.size);
    cloob_status status = (arrays ? arrays_open_bytes : torch_open_bytes)(ctx, map.data, map.size, path, f);
    if (status == CLOOB_OK) f->map = map;
    else file_map_close(&map);
    return status;
}

void torch_close(torch_file *f)
{
    file_map_close(&f->map);
    arena_release(&f->a);
    *f = (torch_file){ 0 };
}
