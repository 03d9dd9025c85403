/* The check at the head of every public function: a call that cannot be meant is refused with a status and a line, not
 * a crash.
 *
 *     API_NEEDS(ctx, path && out);
 *
 * Pointers that may be NULL are named in the public header. A handle that was closed cannot be told from one that was
 * not, like memory that was freed: that is the caller's promise. */
#ifndef CORE_NEEDS_H
#define CORE_NEEDS_H

#include "core/ctx.h"

#define API_NEEDS(ctx, condition)                                                                                      \
    do {                                                                                                               \
        if (!(ctx)) return CLOOB_ERR_ARGUMENT;                                                                         \
        if (!(condition))                                                                                              \
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: called wrongly, it needs %s", __func__, #condition);         \
    } while (0)

#endif
