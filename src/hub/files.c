/* Selects the files that a model needs from the list of a repository's files, which is untrusted. */
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/text.h"
#include "hub/hub.h"

const char *const hub_small_files[] = {
    "config.json",
    "open_clip_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "bpe_simple_vocab_16e6.txt.gz",
    NULL,
};

/* File names of weights, in order of preference. */
static const char *const weights[] = {
    "open_clip_model.safetensors",
    "open_clip_model.safetensors.index.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_pytorch_model.bin",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
};

/* ---- list of files ------------------------------------------------------------------------------- */

/* Reads name, size and hash of a list entry. The hash is that of the content: SHA-256 for large files (LFS), else the
 * Git blob's SHA-1. */
static bool read_entry(const json *v, hub_file *f)
{
    static const int64_t MAX_BYTES = INT64_MAX / HUB_MAX_FILES; /* the sum of all sizes cannot overflow */
    const json *lfs = json_get(v, "lfs");
    const char *type = json_string(json_get(v, "type")), *name = json_string(json_get(v, "path"));
    const char *etag = json_string(json_get(lfs ? lfs : v, "oid"));
    if (!type || strcmp(type, "file") != 0 || !name || strchr(name, '/') || !hub_path_is_safe(name)) return false;
    if (!etag || !hub_is_hex(etag, lfs ? 64 : 40) || !json_int(json_get(lfs ? lfs : v, "size"), &f->bytes))
        return false;
    memcpy(f->name, name, strlen(name) + 1);
    memcpy(f->etag, etag, strlen(etag) + 1);
    return f->bytes >= 0 && f->bytes <= MAX_BYTES;
}

bool hub_listing_put(hub_listing *l, const hub_file *f)
{
    if (!heap_grow(&l->file, l->count, &l->cap, sizeof *l->file)) return false;
    l->file[l->count++] = *f;
    return true;
}

cloob_status hub_listing_add(cloob_ctx *ctx, hub_listing *l, const char *text, size_t len)
{
    enum { MAX_VALUES = 200000, MAX_FILES = 4096 };
    json_doc *doc;
    cloob_status status = json_doc_parse(ctx, text, len, "the hub's list of files", MAX_VALUES, &doc);
    if (status != CLOOB_OK) return status;
    if (json_kind_of(json_doc_root(doc)) != JSON_ARRAY)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "the hub's list of files is not a JSON array");
    const json *v = status == CLOOB_OK ? json_first(json_doc_root(doc)) : NULL;
    for (; v && status == CLOOB_OK; v = json_next(v)) {
        hub_file f;
        if (!read_entry(v, &f) || hub_listing_find(l, f.name)) continue;
        if (l->count == MAX_FILES) status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "the hub lists too many files");
        else if (!hub_listing_put(l, &f)) status = ctx_no_memory(ctx, sizeof f, "the list of files");
    }
    json_doc_close(doc);
    return status;
}

const hub_file *hub_listing_find(const hub_listing *l, const char *name)
{
    for (int64_t i = 0; i < l->count; i++)
        if (strcmp(l->file[i].name, name) == 0) return &l->file[i];
    return NULL;
}

void hub_listing_release(hub_listing *l)
{
    free(l->file);
    *l = (hub_listing){ 0 };
}

/* ---- weights ------------------------------------------------------------------------------------- */

bool hub_is_index(const char *name) { return text_ends_with(name, ".index.json"); }

void hub_choose_weights(hub_has_fn *has, const void *folder, char name[256])
{
    name[0] = '\0';
    for (size_t i = 0; i < sizeof weights / sizeof *weights && !name[0]; i++)
        if (has(folder, weights[i])) memcpy(name, weights[i], strlen(weights[i]) + 1);
}

const hub_file *hub_only_weights(const hub_listing *l)
{
    static const char *const endings[] = { ".safetensors", ".pt", ".pth", ".bin" };
    for (size_t e = 0; e < sizeof endings / sizeof *endings; e++) {
        const hub_file *found = NULL;
        int64_t count = 0;
        for (int64_t i = 0; i < l->count; i++)
            if (text_ends_with(l->file[i].name, endings[e])) found = &l->file[i], count++;
        if (count) return count == 1 ? found : NULL;
    }
    return NULL;
}

static bool add_name(hub_names *n, const char *name)
{
    for (int64_t i = 0; i < n->count; i++)
        if (strcmp(n->name[i], name) == 0) return true;
    char(*more)[256] = realloc(n->name, (size_t)(n->count + 1) * sizeof *more);
    if (!more) return false;
    n->name = more;
    memcpy(n->name[n->count++], name, strlen(name) + 1);
    return true;
}

void hub_names_release(hub_names *n)
{
    free(n->name);
    *n = (hub_names){ 0 };
}

cloob_status hub_index_shards(cloob_ctx *ctx, const char *path, hub_names *out)
{
    arena a = { 0 };
    json *root;
    *out = (hub_names){ 0 };
    cloob_status status = json_read_file(ctx, &a, path, &root);
    const json *v = status == CLOOB_OK ? json_first(json_get(root, "weight_map")) : NULL;
    if (status == CLOOB_OK && !v) status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not an index of shards", path);
    for (; v && status == CLOOB_OK; v = json_next(v)) {
        const char *name = json_string(v);
        if (!name || strchr(name, '/') || !hub_path_is_safe(name) || out->count == HUB_MAX_FILES)
            status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: lists \"%.100s\", which is not a file name in its folder",
                              path, name ? name : "");
        else if (!add_name(out, name)) status = ctx_no_memory(ctx, sizeof *out->name, path);
    }
    if (status != CLOOB_OK) hub_names_release(out);
    arena_release(&a);
    return status;
}
