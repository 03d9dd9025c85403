/* Reads the index of a sharded checkpoint: a map from tensors to files. */
#include "model/weights.h"

#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/text.h"

bool shards_looks_like(const char *path) { return text_ends_with(path, ".index.json"); }

typedef struct indexer {
    cloob_ctx *ctx;
    const char *index;
    weights *w;
} indexer;

/* The shard with this file name, opened on first use. A name with a slash is refused: it could leave the folder. */
static cloob_status shard_of(indexer *x, const char *name, weight_shard **out)
{
    weights *w = x->w;
    for (int64_t i = 0; i < w->shards; i++)
        if (strcmp(w->shard[i].name, name) == 0) {
            *out = &w->shard[i];
            return CLOOB_OK;
        }
    if (!*name || strchr(name, '/') || w->shards == WEIGHT_SHARDS)
        return ctx_fail(x->ctx, CLOOB_ERR_FORMAT, "%s: \"%.100s\" is not a file name in the index's folder", x->index,
                        name);
    const char *slash = strrchr(x->index, '/');
    char *folder = strdup(slash ? x->index : ""), *path;
    if (folder && slash) folder[slash - x->index + 1] = '\0';
    path = folder ? file_join(folder, name) : NULL;
    char *kept = arena_string(&w->a, name);
    free(folder);
    if (!path || !kept) {
        free(path);
        return ctx_no_memory(x->ctx, strlen(x->index), name);
    }
    weight_shard *s = *out = &w->shard[w->shards++];
    s->name = kept;
    cloob_status status =
        text_ends_with(name, ".safetensors") ? st_open(x->ctx, path, &s->st) : torch_open(x->ctx, path, &s->torch);
    free(path);
    return status;
}

static int64_t tensors_of(const weight_shard *s) { return s->torch.count ? s->torch.count : s->st.count; }

static bool holds(const weight_shard *s, const char *name)
{
    const st_entry *e = s->torch.count ? s->torch.entry : s->st.entry;
    for (int64_t i = 0; i < tensors_of(s); i++)
        if (strcmp(e[i].name, name) == 0) return true;
    return false;
}

static cloob_status open_all(indexer *x, const json *map)
{
    int64_t listed = 0, held = 0;
    for (const json *v = map->child; v; v = v->next, listed++) {
        weight_shard *s = NULL;
        const char *file = json_string(v);
        if (!file) return ctx_fail(x->ctx, CLOOB_ERR_FORMAT, "%s: %.100s has no file", x->index, v->key);
        CLOOB_TRY(shard_of(x, file, &s));
        if (!holds(s, v->key))
            return ctx_fail(x->ctx, CLOOB_ERR_FORMAT, "%s: %.100s is not in %.100s, where the index places it",
                            x->index, v->key, file);
    }
    for (int64_t i = 0; i < x->w->shards; i++) held += tensors_of(&x->w->shard[i]);
    if (held == listed && listed > 0) return CLOOB_OK;
    return ctx_fail(x->ctx, CLOOB_ERR_FORMAT, "%s: lists %lld tensors, but its shards have %lld", x->index,
                    (long long)listed, (long long)held);
}

cloob_status shards_open(cloob_ctx *ctx, const char *index, weights *w)
{
    arena a = { 0 };
    json *root;
    indexer x = { ctx, index, w };
    w->shard = arena_push(&w->a, WEIGHT_SHARDS * sizeof *w->shard);
    if (!w->shard) return ctx_no_memory(ctx, WEIGHT_SHARDS * sizeof *w->shard, index);
    memset(w->shard, 0, WEIGHT_SHARDS * sizeof *w->shard);
    cloob_status status = json_read_file(ctx, &a, index, &root);
    const json *map = status == CLOOB_OK ? json_get(root, "weight_map") : NULL;
    if (status == CLOOB_OK && (!map || map->kind != JSON_OBJECT))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not an index of shards (no weight_map in it)", index);
    if (status == CLOOB_OK) status = open_all(&x, map);
    arena_release(&a);
    return status;
}
