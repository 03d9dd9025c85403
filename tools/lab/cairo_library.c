/* The table of cairo_library.h as a shared object. */
#include "lab/cairo_library.h"

#include "core/shared_object.h"

cairo_functions cairo;

#define ROW(name) { "cairo_" #name, (void **)&cairo.name },
static const shared_function functions[] = { CAIRO_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libcairo.so.2" },
                                 .functions = functions,
                                 .install = "libcairo2 to draw charts and synthetic images" };
SHARED_LISTED(library)

cloob_status cairo_use(cloob_ctx *ctx) { return shared_object_use(ctx, &library); }

bool cairo_is_there(void) { return shared_object_is_there(&library); }
