/* Libraries loaded at run time: a function that is there works; what is missing is named. */
#include <string.h>

#include "check.h"
#include "tensor/shared_object.h"

static cloob_ctx *ctx;

static double (*cosine)(double);

static void a_function_is_found(void)
{
    const shared_function list[] = { { "cos", (void **)&cosine }, { NULL, NULL } };
    CHECK_OK(ctx, shared_object_load(ctx, "libm.so.6", list));
    CHECK(cosine(0.0) == 1.0);
}

static void a_missing_library_is_named(void)
{
    const shared_function list[] = { { NULL, NULL } };
    CHECK(shared_object_load(ctx, "libnot-here.so.7", list) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "libnot-here.so.7 cannot be loaded") != NULL);
}

static void a_missing_function_is_named(void)
{
    void *none = NULL;
    const shared_function list[] = { { "no_such_function", &none }, { NULL, NULL } };
    CHECK(shared_object_load(ctx, "libm.so.6", list) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "no_such_function") != NULL);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(a_function_is_found);
    RUN(a_missing_library_is_named);
    RUN(a_missing_function_is_named);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
