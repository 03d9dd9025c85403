/* Where the larger frozen values are: the folder named by CLOOB_SHARED, or shared/ beside the repository. Tests that want
 * them skip with a word when they are not there. */
#ifndef TESTS_SHARED_H
#define TESTS_SHARED_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The path of a file there in a caller's buffer; NULL when it does not exist. */
static inline const char *shared_path(const char *name, char path[1024])
{
    const char *root = getenv("CLOOB_SHARED");
    snprintf(path, 1024, "%s/%s", root ? root : TESTS_DIR "/../../shared", name);
    return access(path, R_OK) == 0 ? path : NULL;
}

#endif
