/* Shared libraries opened on first use, and pointers to their functions. A program that never decodes a HEIC image
 * starts on a machine without libheif; one that does gets one line that says what to install.
 *
 *     #define HEIF_FUNCTIONS(X) X(heif_context_alloc) X(heif_context_free)
 *     static struct { HEIF_FUNCTIONS(SHARED_MEMBER) } heif;
 *     #define ROW(name) SHARED_ROW(heif, name)
 *     static const shared_function functions[] = { HEIF_FUNCTIONS(ROW) { NULL, NULL } };
 *     static shared_object library = { .file = { "libheif.so.1" },
 *                                      .functions = functions,
 *                                      .install = "libheif1 to read HEIC and AVIF images" };
 *     SHARED_LISTED(library)
 *
 *     CLOOB_TRY(shared_object_use(ctx, &library));
 *     heif.heif_context_alloc(); */
#ifndef CORE_SHARED_OBJECT_H
#define CORE_SHARED_OBJECT_H

#include "core/ctx.h"

typedef struct shared_function {
    const char *name; /* NULL ends a list */
    void **to;
} shared_function;

#define SHARED_MEMBER(name)     __typeof__(&name) name;
#define SHARED_ROW(table, name) { #name, (void **)&(table).name },

/* One library. The first file that loads and has all functions is used, and stays open for the life of the process. A
 * failure is cached: the files are searched once. */
typedef struct shared_object {
    const char *file[3]; /* names as the dynamic linker resolves them, the best first */
    const shared_function *functions;
    const char *install; /* what to install, or another remedy, for the error */
    int state;           /* 0 at first; read and written atomically */
    const char *loaded;  /* the file taken */
    char failure[256];
    struct shared_object *next; /* of those listed, by name */
} shared_object;

/* Adds a library to the list of `cloob doctor` before main runs; opens nothing. */
#define SHARED_LISTED(o)                                                                                               \
    __attribute__((constructor)) static void list_##o(void) { shared_object_list(&(o)); }
void shared_object_list(shared_object *o);
shared_object *shared_object_first(void);

/* Any thread may call it at any time. Fails with CLOOB_ERR_UNSUPPORTED and one line that names the library, the reason
 * and the remedy. */
cloob_status shared_object_use(cloob_ctx *ctx, shared_object *o);

/* The same without an error, for a library that has a replacement. */
bool shared_object_is_there(shared_object *o);

#endif
