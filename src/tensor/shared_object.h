/* A shared library opened at run time, and pointers to its functions. */
#ifndef TENSOR_SHARED_OBJECT_H
#define TENSOR_SHARED_OBJECT_H

#include "core/ctx.h"

typedef struct shared_function {
    const char *name; /* NULL ends a list */
    void **to;
} shared_function;

/* Opens the library (looked for where the dynamic linker looks) and writes every pointer of the list. It stays open for
 * the life of the process. Fails with one line that names the library or the function that is missing. */
cloob_status shared_object_load(cloob_ctx *ctx, const char *name, const shared_function *list);

#endif
