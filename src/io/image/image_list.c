/* Folders are read depth first and sorted at the end, so that the order is that of the paths on every system.
 */
#include "io/image/image_list.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/arena.h"
#include "core/file.h"

enum { FOLDERS_DEEP = 64 };

static bool looks_like_image(const char *name)
{
    static const char *const endings[] = { ".jpg", ".jpeg", ".png",  ".webp", ".gif", ".bmp",
                                           ".tif", ".tiff", ".heic", ".heif", ".avif" };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

static cloob_status add_file(cloob_ctx *ctx, image_list *l, const char *path, const struct stat *st, bool named)
{
    if (!heap_grow(&l->item, l->count, &l->capacity, sizeof *l->item))
        return ctx_no_memory(ctx, (size_t)l->count * sizeof *l->item, "a list of images");
    const char *kept = arena_string(&l->a, path);
    if (!kept) return ctx_no_memory(ctx, strlen(path), "a path");
    l->item[l->count++] = (image_entry){ kept, (int64_t)st->st_size, time_ns(st->st_mtim), named };
    return CLOOB_OK;
}

static cloob_status add_folder(cloob_ctx *ctx, image_list *l, const char *path, int depth);

static cloob_status add_found(cloob_ctx *ctx, image_list *l, const char *path, const char *name, int depth)
{
    struct stat st;
    if (lstat(path, &st) != 0) return CLOOB_OK; /* deleted since the folder was read */
    if (S_ISDIR(st.st_mode)) return add_folder(ctx, l, path, depth + 1);
    if (!looks_like_image(name) || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return CLOOB_OK;
    return add_file(ctx, l, path, &st, false);
}

static cloob_status add_folder(cloob_ctx *ctx, image_list *l, const char *path, int depth)
{
    cloob_status status = CLOOB_OK;
    if (depth > FOLDERS_DEEP) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: folders deeper than %d", path, FOLDERS_DEEP);
    DIR *d = opendir(path);
    if (!d) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: %s", path, strerror(errno));
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        char inside[FILE_PATH];
        status = file_in(ctx, path, e->d_name, inside);
        if (status == CLOOB_OK) status = add_found(ctx, l, inside, e->d_name, depth);
    }
    closedir(d);
    return status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const image_entry *)a)->path, ((const image_entry *)b)->path);
}

cloob_status image_list_add(cloob_ctx *ctx, image_list *l, const char *path, bool must_exist)
{
    struct stat st = { 0 };
    int64_t before = l->count;
    if (stat(path, &st) != 0 && must_exist)
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: %s; check the path", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return add_file(ctx, l, path, &st, true);
    CLOOB_TRY(add_folder(ctx, l, path, 0));
    if (l->count > before) qsort(l->item + before, (size_t)(l->count - before), sizeof *l->item, by_path);
    return CLOOB_OK;
}

void image_list_release(image_list *l)
{
    free(l->item);
    arena_release(&l->a);
    *l = (image_list){ 0 };
}

/* ---- paths, folders and patterns ------------------------------------------------------------------ */

/* A pattern that matches nothing is taken as a name, which then is not there. */
static cloob_status add_pattern(cloob_ctx *ctx, image_list *l, const char *what, bool only)
{
    glob_t g;
    if (file_exists(what) || glob(what, 0, NULL, &g) != 0) return image_list_add(ctx, l, what, only);
    cloob_status status = CLOOB_OK;
    for (size_t i = 0; status == CLOOB_OK && i < g.gl_pathc; i++) status = image_list_add(ctx, l, g.gl_pathv[i], true);
    globfree(&g);
    return status;
}

cloob_status image_list_find(cloob_ctx *ctx, image_list *l, const char *const *what, int64_t n)
{
    for (int64_t i = 0; i < n; i++) CLOOB_TRY(add_pattern(ctx, l, what[i], n == 1));
    return CLOOB_OK;
}
