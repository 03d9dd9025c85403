/* The table is made by CMakeLists.txt out of the files beside it. */
#include "serve/page/page.h"

#include <string.h>

#include "page_files.h"

const char page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'";

const page_file *page_find(const char *path)
{
    for (size_t i = 0; i < sizeof page_files / sizeof *page_files; i++)
        if (strcmp(page_files[i].path, path) == 0) return &page_files[i];
    return NULL;
}
