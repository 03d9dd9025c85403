/* Images in class folders, on disk or in a tar, in order of class and name.
 *
 * On disk, DIR/CLASS/.../image.jpg: a folder of images without class folders is a set without classes, and text files
 * next to the images (image.txt for image.jpg) are the captions. In a tar, plain or gzip, the class is the folder that
 * an image is in. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/arena.h"
#include "core/file.h"
#include "data/sets/dataset_kind.h"

enum { MAX_DEPTH = 16 }; /* of folders */

typedef struct class_image {
    const char *name;      /* below the folder, or in the tar */
    int64_t label, member; /* member: of the tar */
} class_image;

typedef struct class_set {
    char root[FILE_PATH];
    tar_index tar;
    class_image *image;
    int64_t count, capacity;
    arena names;
} class_set;

static cloob_status create(cloob_ctx *ctx, const char *source, dataset_part *p)
{
    class_set *s = p->self = calloc(1, sizeof *s);
    return s ? file_in(ctx, "", source, s->root) : ctx_no_memory(ctx, sizeof *s, source);
}

static void close_classes(dataset_part *p)
{
    class_set *s = p->self;
    if (!s) return;
    tar_release(&s->tar);
    arena_release(&s->names);
    free(s->image);
    free(s);
}

static cloob_status add_image(cloob_ctx *ctx, class_set *s, const char *name, int64_t label, int64_t member)
{
    if (!name || !heap_grow(&s->image, s->count, &s->capacity, sizeof *s->image))
        return ctx_no_memory(ctx, (size_t)s->count * sizeof *s->image, "a list of images");
    s->image[s->count++] = (class_image){ name, label, member };
    return CLOOB_OK;
}

static int by_label_and_name(const void *a, const void *b)
{
    const class_image *p = a, *q = b;
    if (p->label != q->label) return p->label < q->label ? -1 : 1;
    return strcmp(p->name, q->name);
}

static void sort_images(class_set *s, dataset_part *p)
{
    if (s->count) qsort(s->image, (size_t)s->count, sizeof *s->image, by_label_and_name);
    p->count = s->count;
}

/* ---- on disk --------------------------------------------------------------------------------------- */

static bool entry_is_dir(const char *path, const struct dirent *e)
{
    if (e->d_type == DT_DIR) return true;
    return e->d_type != DT_REG && file_is_dir(path); /* links, and file systems without d_type */
}

/* A folder that is being listed, and the folder that it was found in. */
typedef struct place {
    const struct place *outer;
    struct stat st;
    int depth;
} place;

/* False in a folder that contains itself through a link, and in folders that are too deep. */
static bool enter(DIR *d, const place *outer, place *here)
{
    *here = (place){ .outer = outer, .depth = outer ? outer->depth + 1 : 0 };
    if (fstat(dirfd(d), &here->st) != 0 || here->depth > MAX_DEPTH) return false;
    for (; outer; outer = outer->outer)
        if (outer->st.st_ino == here->st.st_ino && outer->st.st_dev == here->st.st_dev) return false;
    return true;
}

/* Everything in a folder: images to the set, names of folders to `dirs`, or without it what is in them. */
static cloob_status list(cloob_ctx *ctx, class_set *s, const char *below, const char *keys, int64_t label,
                         const place *outer, name_list *dirs)
{
    char full[FILE_PATH], inner[FILE_PATH], path[FILE_PATH];
    place here;
    CLOOB_TRY(file_in(ctx, s->root, below, full));
    DIR *d = opendir(full);
    if (!d) return file_fail(ctx, full, "cannot open");
    cloob_status status = CLOOB_OK;
    bool entered = enter(d, outer, &here);
    for (struct dirent *e; entered && status == CLOOB_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        status = file_in(ctx, below, e->d_name, inner);
        if (status == CLOOB_OK) status = file_in(ctx, full, e->d_name, path);
        if (status != CLOOB_OK) break;
        if (!entry_is_dir(path, e)) {
            if (name_has_suffix(e->d_name, keys)) status = add_image(ctx, s, arena_string(&s->names, inner), label, -1);
        } else if (dirs) status = name_list_add(ctx, dirs, e->d_name, strlen(e->d_name));
        else status = list(ctx, s, inner, keys, label, &here, NULL);
    }
    closedir(d);
    return status;
}

/* "a/b.jpg" to "ROOT/a/b.txt". */
static cloob_status text_path(cloob_ctx *ctx, const class_set *s, const char *name, char path[FILE_PATH])
{
    CLOOB_TRY(file_in(ctx, s->root, name, path));
    char *dot = strrchr(path, '.');
    if (dot - path + 5 > FILE_PATH) return ctx_fail(ctx, CLOOB_ERR_IO, "%.200s...: a path that is too long", path);
    memcpy(dot, ".txt", 5);
    return CLOOB_OK;
}

static cloob_status has_text(cloob_ctx *ctx, const class_set *s, int64_t i, bool *out)
{
    char path[FILE_PATH];
    CLOOB_TRY(text_path(ctx, s, s->image[i].name, path));
    *out = file_exists(path);
    return CLOOB_OK;
}

/* The first images decide whether the set has captions; if so, images without a text are left out. */
static cloob_status take_texts(cloob_ctx *ctx, class_set *s, dataset_part *p)
{
    enum { LOOKS = 16 };
    int64_t kept = 0;
    for (int64_t i = 0; i < s->count && i < LOOKS && !p->captions; i++) CLOOB_TRY(has_text(ctx, s, i, &p->captions));
    if (!p->captions) return CLOOB_OK;
    for (int64_t i = 0; i < s->count; i++) {
        bool there;
        CLOOB_TRY(has_text(ctx, s, i, &there));
        if (there) s->image[kept++] = s->image[i];
        else p->skipped++;
    }
    p->count = s->count = kept;
    return CLOOB_OK;
}

static cloob_status open_folder(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    name_list *c = &p->classes;
    place root = { 0 };
    CLOOB_TRY(create(ctx, source, p));
    class_set *s = p->self;
    if (stat(s->root, &root.st) != 0) return file_fail(ctx, s->root, "cannot open");
    CLOOB_TRY(list(ctx, s, "", o->image_key, -1, NULL, c));
    int64_t loose = s->count;
    name_list_sort(c);
    for (int64_t i = 0; i < c->count; i++) CLOOB_TRY(list(ctx, s, c->name[i], o->image_key, i, &root, NULL));
    if (s->count == loose) name_list_release(c); /* folders without images are not classes */
    else if (loose) {
        /* with class folders, images outside them do not count */
        s->count -= loose;
        memmove(s->image, s->image + loose, (size_t)s->count * sizeof *s->image);
    }
    sort_images(s, p);
    return take_texts(ctx, s, p);
}

static cloob_status fetch_text(cloob_ctx *ctx, const class_set *f, int64_t i, stored_sample *s)
{
    file_bytes bytes;
    char path[FILE_PATH];
    CLOOB_TRY(text_path(ctx, f, f->image[i].name, path));
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    cloob_status status = stored_caption(ctx, bytes.data, bytes.size, s);
    file_bytes_release(&bytes);
    return status;
}

static cloob_status fetch_folder(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                                 stored_sample *s)
{
    const class_set *f = p->self;
    (void)pick;
    s->label = f->image[i].label;
    sbuf_printf(&s->name, "%s/%s", f->root, f->image[i].name);
    if (s->name.failed) return ctx_no_memory(ctx, strlen(f->image[i].name), "a file name");
    if (p->captions && (what & FETCH_CAPTION)) CLOOB_TRY(fetch_text(ctx, f, i, s));
    return what & FETCH_IMAGE ? stored_read_path(ctx, s->name.data, s) : CLOOB_OK;
}

const dataset_ops dataset_folder = { "folder", open_folder, close_classes, fetch_folder };

/* ---- in a tar -------------------------------------------------------------------------------------- */

/* "a/sea/1.jpg": "sea" and 3. Length 0 for an image outside folders. */
static const char *folder_of(const char *name, size_t *n)
{
    const char *base = file_base(name), *from = base > name ? base - 1 : name;
    const char *end = from;
    while (from > name && from[-1] != '/') from--;
    *n = (size_t)(end - from);
    return from;
}

/* The distinct folder names of images, sorted. */
static cloob_status find_classes(cloob_ctx *ctx, const tar_index *t, const char *keys, name_list *classes)
{
    size_t n;
    for (int64_t i = 0; i < t->count; i++) {
        const char *folder = folder_of(tar_name(t, i), &n);
        if (!n || !name_has_suffix(tar_name(t, i), keys)) continue;
        const char *last = classes->count ? classes->name[classes->count - 1] : NULL; /* usually the same */
        if (last && strlen(last) == n && memcmp(last, folder, n) == 0) continue;
        CLOOB_TRY(name_list_add(ctx, classes, folder, n));
    }
    name_list_sort(classes);
    int64_t kept = 0;
    for (int64_t i = 0; i < classes->count; i++) {
        if (kept && strcmp(classes->name[i], classes->name[kept - 1]) == 0) free(classes->name[i]);
        else classes->name[kept++] = classes->name[i];
    }
    classes->count = kept;
    return CLOOB_OK;
}

static int64_t find_class(const name_list *classes, const char *folder, size_t n)
{
    for (int64_t low = 0, high = classes->count; low < high;) {
        int64_t middle = (low + high) / 2;
        int order = strncmp(classes->name[middle], folder, n);
        if (order == 0 && classes->name[middle][n]) order = 1;
        if (order == 0) return middle;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

static cloob_status open_tarfolder(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    CLOOB_TRY(create(ctx, source, p));
    class_set *s = p->self;
    CLOOB_TRY(open_single(ctx, source, o->cache, &p->files));
    CLOOB_TRY(tar_open(ctx, p->files, 0, &s->tar));
    p->skipped = s->tar.skipped;
    CLOOB_TRY(find_classes(ctx, &s->tar, o->image_key, &p->classes));
    for (int64_t i = 0; i < s->tar.count; i++) {
        size_t n;
        const char *name = tar_name(&s->tar, i), *folder = folder_of(name, &n);
        if (!name_has_suffix(name, o->image_key) || file_base(name)[0] == '.') continue;
        int64_t label = n ? find_class(&p->classes, folder, n) : -1;
        if (label < 0 && p->classes.count) p->skipped++; /* outside the class folders */
        else CLOOB_TRY(add_image(ctx, s, name, label, i));
    }
    sort_images(s, p);
    return CLOOB_OK;
}

static cloob_status fetch_tarfolder(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                                    stored_sample *s)
{
    const class_set *set = p->self;
    const class_image *at = &set->image[i];
    const tar_member *m = &set->tar.member[at->member];
    (void)pick;
    s->label = at->label;
    sbuf_printf(&s->name, "%s: %s", fileset_name(p->files, 0), at->name);
    return what & FETCH_IMAGE ? stored_read(ctx, p->files, 0, m->offset, m->size, s) : CLOOB_OK;
}

const dataset_ops dataset_tarfolder = { "tarfolder", open_tarfolder, close_classes, fetch_tarfolder };
