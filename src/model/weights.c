/* Weights: named tensors, metadata and configuration, and cloob's file format. */
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "model/digest.h"
#include "model/params.h"
#include "tensor/device.h"

void weights_init(weights *w) { *w = (weights){ 0 }; }

void weights_release(weights *w)
{
    st_close(&w->st);
    torch_close(&w->torch);
    for (int64_t i = 0; i < w->shards; i++) st_close(&w->shard[i].st), torch_close(&w->shard[i].torch);
    arena_release(&w->a);
    *w = (weights){ 0 };
}

/* ---- tensors ------------------------------------------------------------------------------------- */

cloob_status weights_add(cloob_ctx *ctx, weights *w, const char *name, const tensor *t)
{
    st_entry *entry = arena_grow(&w->a, w->entry, w->count, &w->capacity, 512, sizeof *entry);
    char *copy = arena_string(&w->a, name);
    if (!entry || !copy) return ctx_no_memory(ctx, (size_t)w->capacity * sizeof *entry, name);
    w->entry = entry;
    w->entry[w->count++] = (st_entry){ copy, *t };
    return CLOOB_OK;
}

const tensor *weights_find(const weights *w, const char *name)
{
    for (int64_t i = 0; i < w->count; i++)
        if (strcmp(w->entry[i].name, name) == 0) return &w->entry[i].t;
    return NULL;
}

void weights_drop_pages(const weights *w, const tensor *t)
{
    size_t bytes = tensor_bytes(t);
    if (file_map_drop(&w->st.map, t->data, bytes) || file_map_drop(&w->torch.map, t->data, bytes)) return;
    for (int64_t i = 0; i < w->shards; i++)
        if (file_map_drop(&w->shard[i].st.map, t->data, bytes) || file_map_drop(&w->shard[i].torch.map, t->data, bytes))
            return;
}

/* Unlike safetensors, tensors of a torch file may share bytes, so its memory is not dropped. */
void weights_forget(const weights *w, const tensor *t)
{
    weights_drop_pages(w, t);
    if (w->st.map.copied) host_memory_drop(t->data, tensor_bytes(t), w->st.map.data, w->st.map.size);
    for (int64_t i = 0; i < w->shards; i++) {
        const file_map *m = &w->shard[i].st.map;
        if (m->copied) host_memory_drop(t->data, tensor_bytes(t), m->data, m->size);
    }
}

cloob_status weights_convert(cloob_ctx *ctx, weights *w, cloob_dtype to)
{
    for (int64_t i = 0; i < w->count; i++) {
        tensor *t = &w->entry[i].t, from = *t;
        if (!dtype_is_float(t->dtype) || t->dtype == to || t->ndim < 2) continue;
        t->dtype = to;
        t->data = arena_push(&w->a, tensor_bytes(t));
        if (!t->data) return ctx_no_memory(ctx, tensor_bytes(t), w->entry[i].name);
        dtype_convert(to, t->data, from.dtype, from.data, tensor_count(t));
        weights_drop_pages(w, &from);
    }
    return CLOOB_OK;
}

/* ---- metadata ------------------------------------------------------------------------------------ */

static st_meta *find_meta(const weights *w, const char *key)
{
    for (int64_t i = 0; i < w->meta_count; i++)
        if (strcmp(w->meta[i].key, key) == 0) return &w->meta[i];
    return NULL;
}

const char *weights_get_meta(const weights *w, const char *key)
{
    const st_meta *m = find_meta(w, key);
    return m ? m->value : NULL;
}

cloob_status weights_set_meta(cloob_ctx *ctx, weights *w, const char *key, const char *value)
{
    st_meta *m = find_meta(w, key);
    if (!value) {
        if (m) *m = w->meta[--w->meta_count];
        return CLOOB_OK;
    }
    st_meta copy = { arena_string(&w->a, key), arena_string(&w->a, value) };
    st_meta *meta = m ? w->meta : arena_grow(&w->a, w->meta, w->meta_count, &w->meta_capacity, 16, sizeof *meta);
    if (!copy.key || !copy.value || !meta) return ctx_no_memory(ctx, strlen(value), key);
    w->meta = meta;
    if (!m) m = &w->meta[w->meta_count++];
    *m = copy;
    return CLOOB_OK;
}

/* ---- checking ------------------------------------------------------------------------------------ */

cloob_status weights_check(cloob_ctx *ctx, const weights *w, const char *path)
{
    arena a = { 0 };
    st_entry *row;
    int64_t count, bad = 0;
    sbuf s = { 0 };
    char have[SHAPE_TEXT], want[SHAPE_TEXT];
    cloob_status status = model_shapes(ctx, &a, &w->config, &row, &count);
    for (int64_t i = 0; status == CLOOB_OK && i < count; i++) {
        const tensor *t = weights_find(w, row[i].name);
        if (t && tensor_same_shape(t, &row[i].t)) continue;
        if (bad++ >= 6) continue;
        sbuf_printf(&s, "%s%s ", bad > 1 ? "; " : "", row[i].name);
        if (!t) sbuf_puts(&s, "is missing");
        else sbuf_printf(&s, "is %s, not %s", tensor_shape_text(t, have), tensor_shape_text(&row[i].t, want));
    }
    if (bad > 6) sbuf_printf(&s, "; and %lld more", (long long)bad - 6);
    if (bad && status == CLOOB_OK)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: tensors do not match the configuration: %s", path,
                          s.data ? s.data : "");
    sbuf_release(&s);
    arena_release(&a);
    return status;
}

/* ---- the native file ----------------------------------------------------------------------------- */

static cloob_status read_native(cloob_ctx *ctx, const char *path, weights *w)
{
    CLOOB_TRY(st_open(ctx, path, &w->st));
    const char *format = st_meta_get(&w->st, "format");
    if (!format || strcmp(format, "cloob") != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not a cloob checkpoint; convert it with cloob convert", path);
    CLOOB_TRY(
        digest_check_model(ctx, path,
                           &(digest_input){ w->st.entry, w->st.count, w->st.meta, w->st.meta_count, NULL, NULL }));
    const char *config = st_meta_get(&w->st, "config");
    if (!config) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no configuration in its metadata", path);
    CLOOB_TRY(model_config_from_text(ctx, config, path, &w->config));
    for (int64_t i = 0; i < w->st.meta_count; i++)
        CLOOB_TRY(weights_set_meta(ctx, w, w->st.meta[i].key, w->st.meta[i].value));
    for (int64_t i = 0; i < w->st.count; i++) CLOOB_TRY(weights_add(ctx, w, w->st.entry[i].name, &w->st.entry[i].t));
    return weights_check(ctx, w, path);
}

cloob_status weights_read_native(cloob_ctx *ctx, const char *path, weights *w)
{
    weights_init(w);
    cloob_status status = read_native(ctx, path, w);
    if (status != CLOOB_OK) weights_release(w);
    return status;
}

static cloob_status describe(cloob_ctx *ctx, weights *w)
{
    sbuf config = { 0 }, pre = { 0 };
    model_config_to_json(&w->config, &config);
    model_config_to_preprocess(&w->config, &pre);
    cloob_status status = config.failed || pre.failed ? ctx_no_memory(ctx, config.len, "metadata") : CLOOB_OK;
    if (status == CLOOB_OK) status = weights_set_meta(ctx, w, "format", "cloob");
    if (status == CLOOB_OK) status = weights_set_meta(ctx, w, "config", config.data);
    if (status == CLOOB_OK) status = weights_set_meta(ctx, w, "preprocess", pre.data);
    if (status == CLOOB_OK) status = weights_set_meta(ctx, w, "activation", model_act_name(w->config.text.act));
    if (status == CLOOB_OK) status = weights_set_meta(ctx, w, "version", cloob_version());
    sbuf_release(&config);
    sbuf_release(&pre);
    return status;
}

cloob_status weights_verify(cloob_ctx *ctx, const char *path, const weights *w, bool *stored)
{
    return digest_check_train(ctx, path, &(digest_input){ w->entry, w->count, w->meta, w->meta_count, NULL, NULL },
                              stored);
}

static void drop_entry(void *user, const st_entry *e) { weights_drop_pages(user, &e->t); }

/* Writes version and checksums; call after all other metadata is set. */
static cloob_status seal(cloob_ctx *ctx, weights *w)
{
    char text[DIGEST_TEXT];
    snprintf(text, sizeof text, "%d", DIGEST_FILE_VERSION);
    CLOOB_TRY(weights_set_meta(ctx, w, "checksum", NULL)); /* written by older versions */
    CLOOB_TRY(weights_set_meta(ctx, w, "file_version", text));
    CLOOB_TRY(digest_train(ctx, &(digest_input){ w->entry, w->count, w->meta, w->meta_count, NULL, NULL }, text));
    CLOOB_TRY(weights_set_meta(ctx, w, "digest.train", text));
    CLOOB_TRY(digest_model(ctx, &(digest_input){ w->entry, w->count, w->meta, w->meta_count, drop_entry, w }, text));
    return weights_set_meta(ctx, w, "digest.model", text);
}

cloob_status weights_write_native(cloob_ctx *ctx, const char *path, weights *w)
{
    CLOOB_TRY(describe(ctx, w));
    CLOOB_TRY(seal(ctx, w));
    return st_write_dropping(ctx, path, w->entry, w->count, w->meta, w->meta_count, drop_entry, w);
}
