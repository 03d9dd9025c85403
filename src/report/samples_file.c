/* Reading samples.json. */
#include "report/run_files.h"

#include <math.h>
#include <stdlib.h>

#include "core/file.h"

cloob_status samples_file_read(cloob_ctx *ctx, arena *a, const char *dir, samples_file *out, int64_t *damaged)
{
    json *root;
    char *path = file_join(dir, "samples.json");
    *out = (samples_file){ 0 };
    if (!path) return ctx_no_memory(ctx, 64, dir);
    bool there = file_exists(path), good = there && json_read_file(ctx, a, path, &root) == CLOOB_OK;
    free(path);
    if (there && !good) ctx_log(ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(ctx)), ++*damaged;
    if (!good) return CLOOB_OK;
    const json *images = samples_list(root, "images");
    out->image = arena_push(a, (size_t)(images ? images->count + 1 : 1) * sizeof *out->image);
    if (!out->image) return ctx_no_memory(ctx, 64, "samples");
    for (const json *i = images ? images->child : NULL; i; i = i->next) out->image[out->images++] = i;
    out->root = root;
    return CLOOB_OK;
}

const json *samples_image(const samples_file *f, const json *number)
{
    int64_t i;
    return number && json_int(number, &i) && i >= 0 && i < f->images ? f->image[i] : NULL;
}

const json *samples_list(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->kind == JSON_ARRAY && v->count ? v : NULL;
}

double samples_number(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->kind == JSON_NUMBER ? v->number : NAN;
}
