/* Reading factors.tsv against prompts.json. */
#include "infer/world_truth.h"

#include <stdlib.h>
#include <string.h>

#include "core/file.h"

static cloob_status read_header(cloob_ctx *ctx, world_truth *w, char *line, const char *path)
{
    char *field = strsep(&line, "\t");
    if (!field || strcmp(field, "filepath") != 0 || !(field = strsep(&line, "\t")) || strcmp(field, "split") != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: begins with no header of cloob synth (filepath, split, ...)", path);
    while ((field = strsep(&line, "\t"))) {
        if (w->F == CLOOB_FACTORS)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: more than %d factors", path, CLOOB_FACTORS);
        if (!(w->name[w->F] = arena_string(&w->memory, field))) return ctx_no_memory(ctx, 64, path);
        CLOOB_TRY(prompts_find(ctx, &w->prompts, field, &w->set[w->F]));
        w->F++;
    }
    return w->F ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: names no factor", path);
}

static int64_t class_of(const prompt_set *s, const char *value)
{
    for (int64_t c = 0; c < s->class_count; c++)
        if (strcmp(s->classes[c].item[0], value) == 0) return c;
    return -1;
}

static cloob_status read_row(cloob_ctx *ctx, world_truth *w, char *line, int64_t number, const char *path)
{
    char *field = (strsep(&line, "\t"), strsep(&line, "\t"));
    if (!field || strcmp(field, "val") != 0) return CLOOB_OK;
    for (int64_t k = 0; k < w->F; k++) {
        field = strsep(&line, "\t");
        int64_t c = field ? class_of(w->set[k], field) : -1;
        if (c < 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                            "%s: line %lld: %s \"%.40s\" is none of the classes in "
                            "prompts.json",
                            path, (long long)number, w->name[k], field ? field : "");
        w->label[k][w->N] = c;
    }
    w->N++;
    return CLOOB_OK;
}

static cloob_status read_lines(cloob_ctx *ctx, world_truth *w, char *text, const char *path)
{
    int64_t lines = 1, number = 1;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    CLOOB_TRY(read_header(ctx, w, strsep(&text, "\n"), path));
    for (int64_t k = 0; k < w->F; k++) {
        w->label[k] = arena_push(&w->memory, (size_t)lines * sizeof **w->label);
        if (!w->label[k]) return ctx_no_memory(ctx, (size_t)lines * sizeof **w->label, path);
    }
    for (char *line; (line = strsep(&text, "\n"));) CLOOB_TRY(read_row(ctx, w, line, ++number, path));
    return CLOOB_OK;
}

bool world_truth_exists(const char *dir)
{
    char *names = file_join(dir, "prompts.json"), *factors = file_join(dir, "factors.tsv");
    bool there = names && factors && file_exists(names) && file_exists(factors);
    free(names), free(factors);
    return there;
}

cloob_status world_truth_read(cloob_ctx *ctx, const char *dir, world_truth *w)
{
    file_bytes bytes;
    memset(w, 0, sizeof *w);
    char *path = file_join(dir, "prompts.json");
    if (!path) return ctx_no_memory(ctx, 64, dir);
    cloob_status status = prompts_open(ctx, path, &w->prompts);
    free(path);
    CLOOB_TRY(status);
    if (!(path = file_join(dir, "factors.tsv"))) return ctx_no_memory(ctx, 64, dir);
    status = file_read(ctx, path, FILE_TEXT_LIMIT, &bytes);
    if (status == CLOOB_OK) {
        status = read_lines(ctx, w, bytes.data, path);
        file_bytes_release(&bytes);
    }
    free(path);
    return status;
}

void world_truth_release(world_truth *w)
{
    prompts_release(&w->prompts);
    arena_release(&w->memory);
}
