/* Memory for tools. The library reports a failed allocation as a status; a tool has nothing to save, so it prints one
 * line and exits with code 1.
 *
 *     double *mean = must(malloc(n * sizeof *mean));
 *     char *name = must(arena_string(a, text)); */
#ifndef LAB_MEMORY_H
#define LAB_MEMORY_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The pointer; NULL ends the program. */
static inline void *must(void *made)
{
    if (made) return made;
    fprintf(stderr, "%scloob: out of memory\n", isatty(STDERR_FILENO) ? "\r\033[K" : "");
    _Exit(1);
}

#endif
