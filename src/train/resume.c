/* Finds checkpoints in the folder of a run. */

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/text.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"

typedef struct candidate {
    char path[RESUME_PATH];
    int64_t updates;
} candidate;

enum { MAX_CANDIDATES = 1024 };

/* Checks the header, the tensors of the model and the checksum. */
static cloob_status check_valid(cloob_ctx *ctx, const char *path)
{
    weights w;
    CLOOB_TRY(weights_read_native(ctx, path, &w));
    cloob_status status = checkpoint_verify(ctx, path, &w);
    if (status == CLOOB_OK && !weights_get_meta(&w, "train.updates"))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds no training state", path);
    weights_release(&w);
    return status;
}

/* The number of updates, from the header; -1: cannot be read. */
static int64_t updates_of(cloob_ctx *ctx, const char *path)
{
    st_file f;
    if (st_open(ctx, path, &f) != CLOOB_OK) return -1;
    const char *text = st_meta_get(&f, "train.updates");
    int64_t n = text ? strtoll(text, NULL, 10) : -1;
    st_close(&f);
    return n;
}

static int newest_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->updates != y->updates ? (x->updates < y->updates ? 1 : -1) : strcmp(x->path, y->path);
}

static int list(cloob_ctx *ctx, const char *folder, candidate *c)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && n < MAX_CANDIDATES && (e = readdir(d));) {
        if (!text_ends_with(e->d_name, ".safetensors") || strcmp(e->d_name, "latest.safetensors") == 0) continue;
        if (snprintf(c[n].path, RESUME_PATH, "%s/%s", folder, e->d_name) >= RESUME_PATH) continue;
        c[n].updates = updates_of(ctx, c[n].path);
        if (c[n].updates >= 0) n++;
    }
    if (d) closedir(d);
    qsort(c, (size_t)n, sizeof *c, newest_first);
    return n;
}

static cloob_status find_other(cloob_ctx *ctx, const char *folder, char path[RESUME_PATH])
{
    candidate *c = malloc(MAX_CANDIDATES * sizeof *c);
    if (!c) return ctx_no_memory(ctx, MAX_CANDIDATES * sizeof *c, "a list of checkpoints");
    int n = list(ctx, folder, c), i = 0;
    while (i < n && check_valid(ctx, c[i].path) != CLOOB_OK) {
        ctx_log(ctx, CLOOB_LOG_WARN, "skipped: %s", cloob_error(ctx));
        i++;
    }
    if (i < n) memcpy(path, c[i].path, RESUME_PATH);
    free(c);
    if (i < n) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO,
                    "%s: no valid checkpoint to resume from; start without `resume` and with another `name`", folder);
}

cloob_status resume_find(cloob_ctx *ctx, const char *folder, char path[RESUME_PATH])
{
    if (snprintf(path, RESUME_PATH, "%s/latest.safetensors", folder) >= RESUME_PATH)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: too long a path", folder);
    if (file_exists(path)) {
        if (check_valid(ctx, path) == CLOOB_OK) return CLOOB_OK;
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; looking for an earlier one", cloob_error(ctx));
    }
    CLOOB_TRY(find_other(ctx, folder, path));
    ctx_log(ctx, CLOOB_LOG_WARN, "resuming from %s", path);
    return CLOOB_OK;
}

bool resume_is_inside(const char *folder, const char *path)
{
    char a[PATH_MAX], b[PATH_MAX], own[RESUME_PATH];
    snprintf(own, sizeof own, "%s", path);
    char *slash = strrchr(own, '/');
    if (slash) *slash = '\0';
    return realpath(slash ? own : ".", a) && realpath(folder, b) && strcmp(a, b) == 0;
}

void resume_real_name(const char *folder, const char *path, char name[RESUME_PATH])
{
    struct stat want, st;
    name[0] = '\0';
    if (stat(path, &want) != 0 || !resume_is_inside(folder, path)) return;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && !name[0] && (e = readdir(d));) {
        char file[RESUME_PATH];
        if (!text_ends_with(e->d_name, ".safetensors") || strcmp(e->d_name, "latest.safetensors") == 0) continue;
        if (strcmp(e->d_name, "best.safetensors") == 0) continue; /* a second name, which is not deleted */
        if (snprintf(file, sizeof file, "%s/%s", folder, e->d_name) >= (int)sizeof file || stat(file, &st) != 0)
            continue;
        if (st.st_ino == want.st_ino && st.st_dev == want.st_dev) memcpy(name, file, sizeof file);
    }
    if (d) closedir(d);
}

void resume_clean(const char *folder)
{
    char path[RESUME_PATH];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strstr(e->d_name, ".safetensors.tmp") &&
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
            unlink(path);
    if (d) closedir(d);
}
