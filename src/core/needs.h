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

/* Option structs begin with their size (CLOOB_OPTIONS_INIT in cloob/types.h), so that members can be added at the end.
 * OPTIONS_READ makes `o` point to a copy that has every member that this library knows: those that the caller's struct
 * lacks have their defaults. `o` may be NULL: defaults.
 *
 *     OPTIONS_READ(ctx, cloob_model_options, o);
 *     OPTIONS_ROOM(ctx, cloob_train_options, o, data);      with CLOOB_OPTIONS_INSIDE: nothing is set in the room */
#define OPTIONS_READ(ctx, type, o)                                                                                     \
    type o##_read;                                                                                                     \
    type##_init(&o##_read);                                                                                            \
    if (o) CLOOB_TRY(options_read(ctx, #type, &o##_read, sizeof o##_read, o));                                         \
    (o) = &o##_read
#define OPTIONS_ROOM(ctx, type, o, inside)                                                                             \
    CLOOB_TRY(options_unset(ctx, #type, (o)->inside##_room, sizeof(o)->inside##_room))

cloob_status options_read(cloob_ctx *ctx, const char *name, void *into, size_t known, const void *from);
cloob_status options_unset(cloob_ctx *ctx, const char *name, const char *bytes, size_t count);
/* For TYPE_init_size: writes `defaults` of `known` bytes to a caller's struct of `size`. `to` may be NULL. */
void options_write(void *to, size_t size, const void *defaults, size_t known);

#endif
