/* Finding and reading zero-shot results. */
#include "lab/report/run_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"

static bool wanted(const char *name)
{
    size_t n = strlen(name);
    bool known =
        strncmp(name, "zeroshot", 8) == 0 || strncmp(name, "examples", 8) == 0 || strncmp(name, "classify", 8) == 0;
    return known && n > 5 && strcmp(name + n - 5, ".json") == 0;
}

/* "zeroshot-shape.json" is of the set "shape". */
static const char *set_of(arena *a, const char *name)
{
    const char *from = name + strcspn(name, "-_.");
    if (*from && *from != '.') from++;
    size_t n = strlen(from) - strlen(".json");
    return n ? arena_string_n(a, from, n) : "zero-shot";
}

/* The run whose folder contains the checkpoint. */
static const char *run_of(const json *root, const run_files *runs, int64_t n)
{
    const char *checkpoint = json_string(json_get(root, "checkpoint"));
    for (int64_t i = 0; checkpoint && i < n; i++) {
        const char *at = strstr(checkpoint, runs[i].name);
        size_t len = strlen(runs[i].name);
        for (; at; at = strstr(at + 1, runs[i].name))
            if ((at == checkpoint || at[-1] == '/') && at[len] == '/') return runs[i].name;
    }
    return n == 1 ? runs[0].name : "";
}

static bool seen(const score_files *s, const char *path)
{
    for (int64_t i = 0; i < s->count; i++)
        if (strcmp(s->file[i].path, path) == 0) return true;
    return false;
}

static bool grow(arena *a, score_files *s)
{
    score_file *all = arena_grow(a, s->file, s->count, &s->room, 16, sizeof *all);
    if (all) s->file = all;
    return all != NULL;
}

static cloob_status add(cloob_ctx *ctx, arena *a, const char *path, const char *name, const run_files *run,
                        const run_files *runs, int64_t n, score_files *s)
{
    json *root;
    if (seen(s, path)) return CLOOB_OK;
    if (json_read_file(ctx, a, path, &root) != CLOOB_OK) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(ctx));
        s->damaged++;
        return CLOOB_OK;
    }
    const char *kept = arena_string(a, path), *set = set_of(a, name);
    if (!kept || !set || !grow(a, s)) return ctx_no_memory(ctx, 64, path);
    s->file[s->count++] = (score_file){ kept, set, run ? run->name : run_of(root, runs, n), root };
    return CLOOB_OK;
}

static int by_set(const void *a, const void *b)
{
    const score_file *x = a, *y = b;
    int order = strcmp(x->set, y->set);
    return order ? order : strcmp(x->run, y->run);
}

cloob_status score_files_scan(cloob_ctx *ctx, arena *a, const char *folder, const run_files *run, const run_files *runs,
                              int64_t n, score_files *out)
{
    char *real = realpath(folder, NULL); /* so that one file reached in two ways is one */
    DIR *d = real ? opendir(real) : NULL;
    cloob_status status = CLOOB_OK;
    for (struct dirent *e; d && status == CLOOB_OK && (e = readdir(d));) {
        if (!wanted(e->d_name)) continue;
        char *path = file_join(real, e->d_name);
        status = path ? add(ctx, a, path, e->d_name, run, runs, n, out) : ctx_no_memory(ctx, 64, folder);
        free(path);
    }
    if (d) closedir(d);
    free(real);
    if (out->count) qsort(out->file, (size_t)out->count, sizeof *out->file, by_set);
    return status;
}
