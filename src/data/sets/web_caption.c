/* Captions out of text members, and shard names out of sources. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "data/sets/dataset_web.h"

/* ---- captions ---------------------------------------------------------------------------------------------
 */

/* Entry `rank` of "txt;json:title": its suffix and the text after a colon (NULL: none). */
static void key_entry(const char *keys, int rank, const char **entry, size_t *n, const char **mode, size_t *mode_n)
{
    for (; rank > 0 && *keys; rank--) {
        keys += strcspn(keys, ";");
        keys += *keys == ';';
    }
    *entry = keys;
    *n = strcspn(keys, ";:");
    *mode = keys[*n] == ':' ? keys + *n + 1 : NULL;
    *mode_n = *mode ? strcspn(*mode, ";") : 0;
}

static bool blank_line(const char *line, size_t n)
{
    while (n && strchr(" \t\r\v\f", line[n - 1])) n--;
    return n == 0;
}

static cloob_status pick_line(cloob_ctx *ctx, const char *text, size_t size, uint64_t pick, stored_sample *s)
{
    s->captions = 0;
    for (int pass = 0; pass < 2; pass++) { /* count, then take */
        int64_t wanted = pass ? (int64_t)(pick % (uint64_t)s->captions) : -1, seen = 0;
        for (const char *line = text, *end = text + size; line < end;) {
            const char *stop = memchr(line, '\n', (size_t)(end - line));
            if (!stop) stop = end;
            if (!blank_line(line, (size_t)(stop - line)) && seen++ == wanted)
                return stored_caption(ctx, line, (size_t)(stop - line), s);
            line = stop + 1;
        }
        s->captions = seen;
        if (!seen) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: empty caption", s->name.data);
    }
    return CLOOB_OK;
}

static const json *caption_value(const json *root, const char *field)
{
    static const char *const usual[] = { "caption", "captions", "text" };
    if (root->kind == JSON_ARRAY || root->kind == JSON_STRING) return field ? NULL : root;
    if (field) return json_get(root, field);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (json_get(root, usual[i])) return json_get(root, usual[i]);
    return NULL;
}

static cloob_status take_value(cloob_ctx *ctx, const json *value, const char *field, uint64_t pick, stored_sample *s)
{
    if (value && value->kind == JSON_ARRAY && value->count > 0) {
        s->captions = value->count;
        uint64_t at = pick % (uint64_t)value->count;
        value = value->child;
        while (at-- > 0) value = value->next;
    }
    const char *text = json_string(value);
    if (!text)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: its JSON has no text under \"%s\"", s->name.data,
                        field ? field : "caption");
    return stored_caption(ctx, text, strlen(text), s);
}

static cloob_status pick_json(cloob_ctx *ctx, const char *text, size_t size, const char *field, uint64_t pick,
                              stored_sample *s)
{
    arena a = { 0 };
    json *root;
    cloob_status status = json_parse(ctx, &a, text, size, s->name.data, &root);
    if (status == CLOOB_OK) status = take_value(ctx, caption_value(root, field), field, pick, s);
    arena_release(&a);
    return status;
}

cloob_status web_caption(cloob_ctx *ctx, const web_keys *keys, int rank, const char *text, size_t size, uint64_t pick,
                         stored_sample *s)
{
    const char *entry, *mode;
    size_t n, mode_n;
    key_entry(keys->text, rank, &entry, &n, &mode, &mode_n);
    if (n == 4 && strncmp(entry, "json", 4) == 0) {
        char *field = mode ? strndup(mode, mode_n) : NULL;
        if (mode && !field) return ctx_no_memory(ctx, mode_n, "a field");
        cloob_status status = pick_json(ctx, text, size, field, pick, s);
        free(field);
        return status;
    }
    if (mode && mode_n == 5 && strncmp(mode, "lines", 5) == 0) return pick_line(ctx, text, size, pick, s);
    return stored_caption(ctx, text, size, s);
}

/* ---- shard names ------------------------------------------------------------------------------------------
 */

static bool is_tar_name(const char *name) { return name_has_suffix(name, "tar;tgz") || strstr(name, ".tar.gz"); }

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static cloob_status folder_names(cloob_ctx *ctx, const char *dir, name_list *names)
{
    cloob_status status = CLOOB_OK;
    DIR *d = opendir(dir);
    if (!d) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot open: %s", dir, strerror(errno));
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(d));) {
        if (!is_tar_name(e->d_name)) continue;
        char *path = file_join(dir, e->d_name);
        status = path ? name_list_add(ctx, names, path, strlen(path)) : ctx_no_memory(ctx, strlen(dir), "a file name");
        free(path);
    }
    closedir(d);
    if (status == CLOOB_OK && names->count == 0) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no .tar files in it", dir);
    if (names->count) qsort(names->name, (size_t)names->count, sizeof *names->name, by_name);
    return status;
}

cloob_status web_names(cloob_ctx *ctx, const char *source, name_list *names)
{
    return file_is_dir(source) ? folder_names(ctx, source, names) : braces_expand(ctx, source, names);
}
