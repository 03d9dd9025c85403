/* The page that the server shows at /: its files, compiled in. */
#ifndef SERVE_PAGE_PAGE_H
#define SERVE_PAGE_PAGE_H

#include <stddef.h>

typedef struct page_file {
    const char *path, *type;    /* "/page/app.js"; the Content-Type */
    const unsigned char *bytes; /* not zero-terminated */
    const size_t *count;
} page_file;

/* NULL: the page has no such file. */
const page_file *page_find(const char *path);

/* What the page may do, for the header Content-Security-Policy: nothing from elsewhere, nothing inline. */
extern const char page_policy[];

#endif
