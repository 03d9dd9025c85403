#include "tensor/shared_object.h"

#include <dlfcn.h>

cloob_status shared_object_load(cloob_ctx *ctx, const char *name, const shared_function *list)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ctx_fail(
            ctx, CLOOB_ERR_UNSUPPORTED,
            "%s cannot be loaded (%s): install it, name its folder in LD_LIBRARY_PATH, or use another device", name,
            dlerror());
    for (const shared_function *f = list; f->name; f++)
        if (!(*f->to = dlsym(library, f->name)))
            return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s has no %s: install the release this build is for", name,
                            f->name);
    return CLOOB_OK;
}
