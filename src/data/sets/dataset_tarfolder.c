/* Class folders inside a tar, plain or gzip: the class is the folder of an image. */
#include <stdlib.h>
#include <string.h>

#include "data/sets/dataset_kind.h"

typedef struct tar_image {
    int64_t member, label;
} tar_image;

typedef struct tarfolder_set {
    tar_index index;
    tar_image *image;
} tarfolder_set;

/* "a/sea/1.jpg": "sea" and 3. Length 0 for an image outside folders. */
static const char *folder_of(const char *name, size_t *n)
{
    const char *base = name_base(name), *from = base > name ? base - 1 : name;
    const char *end = from;
    while (from > name && from[-1] != '/') from--;
    *n = (size_t)(end - from);
    return from;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The distinct folder names, sorted. */
static cloob_status find_classes(cloob_ctx *ctx, const tar_index *t, const char *keys, name_list *classes)
{
    size_t n;
    for (int64_t i = 0; i < t->count; i++) {
        const char *folder = folder_of(tar_name(t, i), &n);
        if (!n || !name_has_suffix(tar_name(t, i), keys)) continue;
        const char *last = classes->count ? classes->name[classes->count - 1] : NULL; /* mostly the one before */
        if (last && strlen(last) == n && memcmp(last, folder, n) == 0) continue;
        CLOOB_TRY(name_list_add(ctx, classes, folder, n));
    }
    if (!classes->count) return CLOOB_OK;
    qsort(classes->name, (size_t)classes->count, sizeof *classes->name, by_name);
    int64_t kept = 1;
    for (int64_t i = 1; i < classes->count; i++) {
        if (strcmp(classes->name[i], classes->name[kept - 1]) == 0) free(classes->name[i]);
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

/* In the order of class and name, as the same images unpacked would come; qsort has no place for the index.
 */
typedef struct sort_key {
    const char *name;
    tar_image at;
} sort_key;

static int by_label_and_name(const void *a, const void *b)
{
    const sort_key *p = a, *q = b;
    if (p->at.label != q->at.label) return p->at.label < q->at.label ? -1 : 1;
    return strcmp(p->name, q->name);
}

static cloob_status list_images(cloob_ctx *ctx, tarfolder_set *s, const char *keys, dataset_part *p)
{
    size_t bytes = (size_t)(s->index.count ? s->index.count : 1) * sizeof(sort_key), n;
    sort_key *key = malloc(bytes);
    s->image = malloc(bytes);
    if (!key || !s->image) {
        free(key);
        return ctx_no_memory(ctx, bytes, "a list of images");
    }
    for (int64_t i = 0; i < s->index.count; i++) {
        const char *name = tar_name(&s->index, i), *folder = folder_of(name, &n);
        if (!name_has_suffix(name, keys) || name_base(name)[0] == '.') continue;
        int64_t label = n ? find_class(&p->classes, folder, n) : -1;
        if (label < 0 && p->classes.count) p->skipped++; /* outside the class folders */
        else key[p->count++] = (sort_key){ name, { i, label } };
    }
    if (p->count) qsort(key, (size_t)p->count, sizeof *key, by_label_and_name);
    for (int64_t i = 0; i < p->count; i++) s->image[i] = key[i].at;
    free(key);
    return CLOOB_OK;
}

static cloob_status open_tarfolder(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    tarfolder_set *s = p->self = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, source);
    CLOOB_TRY(open_single(ctx, source, o->cache, &p->files));
    CLOOB_TRY(tar_open(ctx, p->files, 0, &s->index));
    p->skipped = s->index.skipped;
    CLOOB_TRY(find_classes(ctx, &s->index, o->image_key, &p->classes));
    return list_images(ctx, s, o->image_key, p);
}

static void close_tarfolder(dataset_part *p)
{
    tarfolder_set *s = p->self;
    if (!s) return;
    tar_release(&s->index);
    free(s->image);
    free(s);
}

static cloob_status fetch_tarfolder(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                                    stored_sample *s)
{
    const tarfolder_set *set = p->self;
    const tar_image *at = &set->image[i];
    const tar_member *m = &set->index.member[at->member];
    (void)pick;
    s->label = at->label;
    sbuf_printf(&s->name, "%s: %s", fileset_name(p->files, 0), tar_name(&set->index, at->member));
    return what & FETCH_IMAGE ? stored_read(ctx, p->files, 0, m->offset, m->size, s) : CLOOB_OK;
}

const dataset_ops dataset_tarfolder = { "tarfolder", open_tarfolder, close_tarfolder, fetch_tarfolder };
