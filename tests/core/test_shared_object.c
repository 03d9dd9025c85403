/* Libraries loaded on first use: a function that is there works; what is missing is named with its remedy. */
#include <string.h>

#include "check.h"
#include "core/shared_object.h"

static cloob_ctx *ctx;

static double (*cosine)(double);
static const shared_function cosine_list[] = { { "cos", (void **)&cosine }, { NULL, NULL } };

static void a_function_is_found(void)
{
    shared_object o = { .file = { "libm.so.6" }, .functions = cosine_list, .install = "glibc" };
    CHECK_OK(ctx, shared_object_use(ctx, &o));
    CHECK(cosine(0.0) == 1.0);
    CHECK(shared_object_is_there(&o));
}

static void the_next_name_is_tried(void)
{
    shared_object o = { .file = { "libnot-here.so.8", "libnot-here.so.7", "libm.so.6" },
                        .functions = cosine_list,
                        .install = "glibc" };
    cosine = NULL;
    CHECK(shared_object_is_there(&o));
    CHECK(cosine && cosine(0.0) == 1.0);
}

static void a_missing_library_is_named_with_its_remedy(void)
{
    shared_object o = { .file = { "libnot-here.so.7" },
                        .functions = cosine_list,
                        .install = "libnothere7 (holograms)" };
    for (int i = 0; i < 2; i++) { /* the failure is remembered, and its text */
        CHECK(shared_object_use(ctx, &o) == CLOOB_ERR_UNSUPPORTED);
        CHECK(strstr(cloob_error(ctx), "libnot-here.so.7 cannot be loaded") != NULL);
        CHECK(strstr(cloob_error(ctx), "install libnothere7 (holograms)") != NULL);
    }
    CHECK(!shared_object_is_there(&o));
}

static void a_missing_function_is_named(void)
{
    void *none = NULL;
    const shared_function list[] = { { "no_such_function", &none }, { NULL, NULL } };
    shared_object o = { .file = { "libm.so.6" }, .functions = list, .install = "glibc" };
    CHECK(shared_object_use(ctx, &o) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "libm.so.6 has no no_such_function") != NULL);
}

static shared_object late = { .file = { "libnot-here.so.7" }, .functions = cosine_list, .install = "libnothere7" };
static shared_object early = { .file = { "libm.so.6" }, .functions = cosine_list, .install = "glibc" };
SHARED_LISTED(late)
SHARED_LISTED(early)

static void listed_libraries_come_by_name_and_are_not_opened(void)
{
    bool order = true;
    int found = 0;
    for (shared_object *o = shared_object_first(); o; o = o->next) {
        if (o->next) order = order && strcmp(o->file[0], o->next->file[0]) <= 0;
        found += o == &late || o == &early;
    }
    CHECK(order);
    CHECK(found == 2);
    CHECK(early.state == 0);
    CHECK(shared_object_is_there(&early) && strcmp(early.loaded, "libm.so.6") == 0);
    CHECK(!shared_object_is_there(&late) && !late.loaded);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(a_function_is_found);
    RUN(the_next_name_is_tried);
    RUN(a_missing_library_is_named_with_its_remedy);
    RUN(a_missing_function_is_named);
    RUN(listed_libraries_come_by_name_and_are_not_opened);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
