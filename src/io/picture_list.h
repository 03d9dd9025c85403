/* The pictures below a folder, by their endings (jpg, jpeg, png, webp), in order of their paths.
 *
 *     picture_list l = { 0 };
 *     CLOOB_TRY(picture_list_add(ctx, &l, "photos"));
 *     ... l.item[i].path ...
 *     picture_list_release(&l);
 */
#ifndef IO_PICTURE_LIST_H
#define IO_PICTURE_LIST_H

#include "core/arena.h"
#include "core/ctx.h"

typedef struct picture_entry {
    const char *path;
    int64_t size, mtime_ns;
    bool named; /* given by name, not found in a folder */
} picture_entry;

typedef struct picture_list {
    picture_entry *item;
    int64_t count, capacity;
    arena a;
} picture_list;

/* Adds a file, or all pictures of a folder and the folders in it; links to folders are not followed, names
 * that begin with a dot are left out. A path that is not there is an error. */
cloob_status picture_list_add(cloob_ctx *ctx, picture_list *l, const char *path);
void picture_list_release(picture_list *l);

#endif
