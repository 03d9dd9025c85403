/* Maps a model name to a path: an existing file, a model in the cache, or a download. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/needs.h"
#include "hub/hub.h"

static cloob_status no_such_model(cloob_ctx *ctx, const char *name)
{
    if (strncmp(name, "hf:", 3) == 0 || strncmp(name, "hf-hub:", 7) == 0)
        return ctx_fail(ctx, CLOOB_ERR_IO, "%.300s: not a model name; use hf:ORG/NAME or hf:ORG/NAME@REVISION", name);
    char hint[400];
    hub_name_hint(name, hint, sizeof hint);
    return ctx_fail(ctx, CLOOB_ERR_IO,
                    "%.300s: cannot open: No such file or directory, and not a known model name; %s; "
                    "download a model with cloob pull ViT-B-32/laion2b_s34b_b79k, or list others with cloob pull",
                    name, hint);
}

static bool is_offline(void) { return hub_is_set("HF_HUB_OFFLINE") || hub_is_set("TRANSFORMERS_OFFLINE"); }

/* Finds a model in the folder of OpenAI's package, which is separate from Hugging Face's cache. */
static bool find_clip_file(cloob_ctx *ctx, const hub_name *n, char path[HUB_PATH])
{
    const char *home = getenv("HOME");
    if (!n->clip_file[0] || !home) return false;
    return hub_put(ctx, path, "%s/.cache/clip/%s", home, n->clip_file) == CLOOB_OK && file_exists(path);
}

static cloob_status not_cached(cloob_ctx *ctx, const hub_repo *r, const char *name)
{
    if (is_offline())
        return ctx_fail(ctx, CLOOB_ERR_IO,
                        "%s: not in %s, and HF_HUB_OFFLINE disables downloads; unset it or download the model first",
                        name, r->folder);
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: not in the cache; download it with cloob pull %s", name, name);
}

/* Downloads the model. If the hub cannot be reached, or if no newer version is requested and the download fails, uses
 * the cached copy: it has the weights, and other missing files may not be needed. */
static cloob_status fetch(cloob_ctx *ctx, const hub_repo *r, bool cached, bool refresh, char path[HUB_PATH])
{
    char commit[HUB_COMMIT];
    bool whole;
    cloob_status status = hub_download(ctx, r, commit);
    bool unreached = status == CLOOB_ERR_BUSY || status == CLOOB_ERR_UNSUPPORTED;
    if (cached && (unreached || (!refresh && status == CLOOB_ERR_IO))) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; using the copy in the cache", cloob_error(ctx));
        return CLOOB_OK;
    }
    if (status != CLOOB_OK || hub_snapshot_find(ctx, r, commit, path, &whole)) return status;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: removed from %s by another program; try again", r->name.repo, r->folder);
}

cloob_status hub_resolve(cloob_ctx *ctx, const char *name, bool download, bool refresh, char path[HUB_PATH])
{
    hub_name n;
    hub_repo r;
    char commit[HUB_COMMIT] = "";
    bool whole = false;
    if (!hub_name_parse(name, &n)) return no_such_model(ctx, name);
    CLOOB_TRY(hub_repo_init(ctx, &n, &r));
    bool cached = hub_ref_read(&r, commit) && hub_snapshot_find(ctx, &r, commit, path, &whole);
    bool fixed = strcmp(n.revision, commit) == 0; /* a commit never changes */
    download = download && !is_offline();
    if (cached && (!download || (whole && (!refresh || fixed)))) return CLOOB_OK;
    if (!cached && !refresh && find_clip_file(ctx, &n, path)) return CLOOB_OK;
    if (!download) return not_cached(ctx, &r, name);
    return fetch(ctx, &r, cached, refresh, path);
}

cloob_status cloob_hub_path(cloob_ctx *ctx, const char *name, bool download, char *path, size_t size)
{
    char found[HUB_PATH];
    API_NEEDS(ctx, name && path);
    if (file_exists(name)) CLOOB_TRY(hub_put(ctx, found, "%s", name));
    else CLOOB_TRY(hub_resolve(ctx, name, download, false, found));
    if (strlen(found) >= size)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: its path needs %zu bytes, but `size` is %zu", name,
                        strlen(found) + 1, size);
    memcpy(path, found, strlen(found) + 1);
    return CLOOB_OK;
}
