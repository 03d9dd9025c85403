/* Class folders: DIR/CLASS/.../image.jpg, classes and images in the order of their names. A folder of images without
 * class folders is a set without classes. Text files next to the images (image.txt for image.jpg) are the captions. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "data/sets/dataset_kind.h"

enum { MAX_DEPTH = 16 }; /* of folders: links may form rings */

typedef struct image_file {
    char *path; /* below the root */
    int64_t label;
} image_file;

typedef struct folder_set {
    char *root;
    image_file *file;
    int64_t count, capacity;
} folder_set;

static cloob_status add_image(cloob_ctx *ctx, folder_set *f, const char *path, int64_t label)
{
    if (!heap_grow(&f->file, f->count, &f->capacity, sizeof *f->file))
        return ctx_no_memory(ctx, (size_t)f->count * sizeof *f->file, "a list of images");
    image_file p = { strdup(path), label };
    if (!p.path) return ctx_no_memory(ctx, strlen(path), "a file name");
    f->file[f->count++] = p;
    return CLOOB_OK;
}

static bool entry_is_dir(const char *path, const struct dirent *e)
{
    if (e->d_type == DT_DIR) return true;
    return e->d_type != DT_REG && file_is_dir(path); /* links, and file systems without d_type */
}

/* Everything in a folder, once: names of folders to `dirs`, images below to the set (if label is not negative). */
static cloob_status list(cloob_ctx *ctx, folder_set *f, const char *below, const char *keys, int64_t label, int depth,
                         name_list *dirs)
{
    char *full = file_join(f->root, below);
    DIR *d = full ? opendir(full) : NULL;
    cloob_status status = CLOOB_OK;
    if (!d) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s/%s: cannot open: %s", f->root, below, strerror(errno));
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        char *inner = file_join(below, e->d_name), *path = file_join(full, e->d_name);
        if (!inner || !path) status = ctx_no_memory(ctx, strlen(e->d_name), "a file name");
        else if (entry_is_dir(path, e)) {
            if (dirs) status = name_list_add(ctx, dirs, e->d_name, strlen(e->d_name));
            else if (depth < MAX_DEPTH) status = list(ctx, f, inner, keys, label, depth + 1, NULL);
        } else if (name_has_suffix(e->d_name, keys)) status = add_image(ctx, f, inner, label);
        free(inner);
        free(path);
    }
    if (d) closedir(d);
    free(full);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int by_label_and_path(const void *a, const void *b)
{
    const image_file *p = a, *q = b;
    if (p->label != q->label) return p->label < q->label ? -1 : 1;
    return strcmp(p->path, q->path);
}

static void drop_images(folder_set *f)
{
    for (int64_t i = 0; i < f->count; i++) free(f->file[i].path);
    f->count = 0;
}

static cloob_status list_classes(cloob_ctx *ctx, folder_set *f, const char *keys, dataset_part *p)
{
    name_list *c = &p->classes;
    qsort(c->name, (size_t)c->count, sizeof *c->name, by_name);
    for (int64_t i = 0; i < c->count; i++) CLOOB_TRY(list(ctx, f, c->name[i], keys, i, 1, NULL));
    return CLOOB_OK;
}

/* ---- captions next to the images ------------------------------------------------------------------ */

/* "a/b.jpg" to "ROOT/a/b.txt"; the caller frees. */
static char *text_path(const folder_set *f, const char *name)
{
    char *path = file_join(f->root, name), *dot = path ? strrchr(path, '.') : NULL;
    size_t stem = dot ? (size_t)(dot - path) : 0;
    char *text = dot ? malloc(stem + 5) : NULL;
    if (text) memcpy(text, path, stem), memcpy(text + stem, ".txt", 5);
    free(path);
    return text;
}

static cloob_status has_text(cloob_ctx *ctx, const folder_set *f, int64_t i, bool *out)
{
    char *path = text_path(f, f->file[i].path);
    *out = path && file_exists(path);
    free(path);
    return path ? CLOOB_OK : ctx_no_memory(ctx, 64, "a file name");
}

/* A look at the first images decides; those without a text are then left out. */
static cloob_status take_texts(cloob_ctx *ctx, folder_set *f, dataset_part *p)
{
    enum { LOOKS = 16 };
    int64_t kept = 0, all = f->count;
    for (int64_t i = 0; i < all && i < LOOKS && !p->captions; i++) CLOOB_TRY(has_text(ctx, f, i, &p->captions));
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < all && p->captions; i++) {
        bool there = true;
        if (status == CLOOB_OK) status = has_text(ctx, f, i, &there);
        if (there || status != CLOOB_OK) f->file[kept++] = f->file[i];
        else free(f->file[i].path), p->skipped++;
    }
    if (p->captions) f->count = kept;
    return status;
}

static cloob_status fetch_text(cloob_ctx *ctx, const folder_set *f, int64_t i, stored_sample *s)
{
    file_bytes bytes;
    char *path = text_path(f, f->file[i].path);
    cloob_status status = path ? file_read(ctx, path, FILE_TEXT_LIMIT, &bytes) : ctx_no_memory(ctx, 64, "a file name");
    free(path);
    CLOOB_TRY(status);
    status = stored_caption(ctx, bytes.data, bytes.size, s);
    file_bytes_release(&bytes);
    return status;
}

static cloob_status open_folder(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    folder_set *f = p->self = calloc(1, sizeof *f);
    if (!f || !(f->root = strdup(source))) return ctx_no_memory(ctx, sizeof *f, source);
    CLOOB_TRY(list(ctx, f, "", o->image_key, -1, 0, &p->classes));
    int64_t loose = f->count;
    if (p->classes.count) CLOOB_TRY(list_classes(ctx, f, o->image_key, p));
    if (f->count == loose) name_list_release(&p->classes); /* folders without images are not classes */
    else if (loose) {
        drop_images(f); /* with class folders, images outside them do not count */
        CLOOB_TRY(list_classes(ctx, f, o->image_key, p));
    }
    if (f->count) qsort(f->file, (size_t)f->count, sizeof *f->file, by_label_and_path);
    CLOOB_TRY(take_texts(ctx, f, p));
    p->count = f->count;
    return CLOOB_OK;
}

static void close_folder(dataset_part *p)
{
    folder_set *f = p->self;
    if (!f) return;
    drop_images(f);
    free(f->file);
    free(f->root);
    free(f);
}

static cloob_status fetch_folder(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                                 stored_sample *s)
{
    const folder_set *f = p->self;
    (void)pick;
    s->label = f->file[i].label;
    sbuf_printf(&s->name, "%s/%s", f->root, f->file[i].path);
    if (s->name.failed) return ctx_no_memory(ctx, strlen(f->file[i].path), "a file name");
    if (p->captions && (what & FETCH_CAPTION)) CLOOB_TRY(fetch_text(ctx, f, i, s));
    return what & FETCH_IMAGE ? stored_read_path(ctx, s->name.data, s) : CLOOB_OK;
}

const dataset_ops dataset_folder = { "folder", open_folder, close_folder, fetch_folder };
