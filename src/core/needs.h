/* The argument check at the start of every public function: an invalid call returns a status and an error text instead
 * of crashing.
 *
 *     API_NEEDS(ctx, path && out);
 *
 * The public header names the pointers that may be NULL. A closed handle cannot be detected, like freed memory. */
#ifndef CORE_NEEDS_H
#define CORE_NEEDS_H

#include "core/ctx.h"

#define API_NEEDS(ctx, condition)                                                                                      \
    do {                                                                                                               \
        if (!(ctx)) return CLOOB_ERR_ARGUMENT;                                                                         \
        if (!(condition))                                                                                              \
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: invalid argument: requires %s", __func__, #condition);       \
    } while (0)

/* Option structs begin with their size, so that fields can be added at their end: a struct of an older header has the
 * defaults in the fields it lacks, one of a newer header is refused. A size of 0, of a struct that its init did not
 * fill, counts as the library's own. `o` becomes a copy; `type`_init fills the defaults.
 *
 *     OPTIONS_READ(ctx, cloob_model_options, o);      o may be NULL: defaults */
#define OPTIONS_READ(ctx, type, o)                                                                                     \
    type o##_read;                                                                                                     \
    type##_init(&o##_read);                                                                                            \
    if (o) CLOOB_TRY(options_read(ctx, #type, &o##_read, sizeof o##_read, o));                                         \
    (o) = &o##_read

cloob_status options_read(cloob_ctx *ctx, const char *name, void *into, size_t known, const void *from);

#endif
