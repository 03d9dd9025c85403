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

#endif
