/* The images below a folder, by their endings (jpg, jpeg, png, webp, gif, bmp, tif, tiff, heic, heif, avif), in order
 * of their paths.
 *
 *     image_list l = { 0 };
 *     CLOOB_TRY(image_list_add(ctx, &l, "photos"));
 *     ... l.item[i].path ...
 *     image_list_release(&l);
 */
#ifndef IO_IMAGE_IMAGE_LIST_H
#define IO_IMAGE_IMAGE_LIST_H

#include "core/arena.h"
#include "core/ctx.h"

typedef struct image_entry {
    const char *path;
    int64_t size, mtime_ns;
    bool named; /* given by name, not found in a folder */
} image_entry;

typedef struct image_list {
    image_entry *item;
    int64_t count, capacity;
    arena a;
} image_list;

/* Adds a file, or all images of a folder and the folders in it; links to folders are not followed, names that begin
 * with a dot are left out. A path that does not exist is an error, or without must_exist an entry, which readers
 * skip. */
cloob_status image_list_add(cloob_ctx *ctx, image_list *l, const char *path, bool must_exist);
void image_list_release(image_list *l);

/* Adds files, folders (with the folders in them) and glob patterns: what is named is taken as it is, folders give files
 * with the endings of known formats, in order. A single path that is not there is an error that names it; one of
 * several is listed, and readers skip it. */
cloob_status image_list_find(cloob_ctx *ctx, image_list *l, const char *const *what, int64_t n);

#endif
