/* Files below an index's folder: no way out of it, by .. or by links. */
#ifndef SERVE_FILES_H
#define SERVE_FILES_H

#include "serve/state.h"

/* The entry whose path below the folder this is; -1: none. */
int64_t entry_find(const cloob_search *s, const char *path);

/* Opens an entry's file, which must be a plain file below the folder after all links. -1: not possible. */
int entry_open(const cloob_search *s, const char *path, int64_t *bytes);

/* Its bytes, mapped; false: not possible. */
typedef struct file_view {
    const void *data;
    size_t bytes;
} file_view;
bool file_view_open(int fd, int64_t bytes, file_view *out);
void file_view_close(file_view *v);

#endif
